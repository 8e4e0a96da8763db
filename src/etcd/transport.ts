// How members are reached. Above this file everything knows `Member` only: no code but `memberOf` asks which transport is in use.
import type { CheckedConnect } from "../options/connect.js";
import type { Clock } from "../util/clock.js";
import { Etcd3Member } from "./etcd3/member.js";
import { GrpcMember } from "./http2/member.js";
import type { Member, MemberSetting } from "./port.js";

interface MemberContext {
  readonly options: CheckedConnect;
  readonly clock: Clock;
}

/** A new connection to the member at `host`, over the transport that the options name. */
export function memberOf(host: string, setting: MemberSetting, context: MemberContext): Member {
  switch (context.options.transport) {
    case "etcd3":
      return new Etcd3Member(host, setting, context);
    case "http2":
      return new GrpcMember(host, setting, context);
  }
}
