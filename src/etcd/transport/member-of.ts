import type { Clock } from "../../async/clock.js";
import type { CheckedConnect } from "../../options/connect.js";
import { Etcd3Member } from "../etcd3/member.js";
import { GrpcMember } from "../grpc/member.js";
import type { ConnectionSetting, Member } from "../port.js";
import { PrefixedMember } from "./prefixed-member.js";

interface MemberContext {
  readonly options: CheckedConnect;
  readonly clock: Clock;
}

/** A new connection to the member at `host`, over the transport and with the prefix that the options name. */
export function memberOf(host: string, setting: ConnectionSetting, context: MemberContext): Member {
  const member = memberOver(host, setting, context);
  const { prefix } = context.options;
  return prefix === "" ? member : new PrefixedMember(member, prefix);
}

function memberOver(host: string, setting: ConnectionSetting, context: MemberContext): Member {
  switch (context.options.transport) {
    case "etcd3":
      return new Etcd3Member(host, setting, context);
    case "http2":
      return new GrpcMember(host, setting, context);
  }
}
