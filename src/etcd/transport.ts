// How members are reached. Above this file everything knows `Member` only: no code but `memberOf` asks which transport is in use, and
// no code but `memoryEntryOf` looks for an etcd in this process.
import { rangeError } from "../base/options/check.js";
import type { CheckedConnect } from "../base/options/connect.js";
import type { Clock } from "../base/util/clock.js";
import { Etcd3Member } from "./etcd3/member.js";
import { streamFailure } from "./http2/failure.js";
import { GrpcMember } from "./http2/member.js";
import { gaveUp, type Member, type MemberSetting, UnansweredError } from "./port.js";
import { reasonFailure, statusFailure } from "./refusals.js";

interface MemberContext {
  readonly options: CheckedConnect;
  readonly clock: Clock;
}

/** For members that other code makes: their errors must be of the classes of this copy of the library. */
export interface Failures {
  readonly gaveUp: typeof gaveUp;
  readonly reasonFailure: typeof reasonFailure;
  readonly statusFailure: typeof statusFailure;
  readonly UnansweredError: typeof UnansweredError;
  /** The error of a `StreamFailure`, whose declaration the package does not contain. */
  streamFailure(this: void, failure: Error, host: string, inDoubt: boolean): Error;
}
export const failures: Failures = { gaveUp, reasonFailure, statusFailure, UnansweredError, streamFailure };

/** What can take the place of `memberOf`. */
export type NewMember = (
  host: string,
  setting: MemberSetting,
  context: MemberContext & { readonly failures: Failures },
) => Member;

/** An etcd in this process, which `leasehold/testing` has started, as one cluster uses it. */
export interface MemoryEntry {
  readonly clock: Clock;
  readonly newMember: NewMember;
  /** Called for each cluster. Returns what is called at the end of each of its `close()`, after its sessions and connections. */
  readonly connected: (services: { readonly closed: AbortSignal }) => () => void;
  /** Called with the cluster, after that: a test names it. */
  readonly made: (cluster: object) => void;
}

/** By host. A function throws if the etcd must not be used here. */
export type MemoryEntries = Map<string, () => MemoryEntry>;

/**
 * The name of `MemoryEntries` in `globalThis`: `leasehold/testing` is a file of its own, and both exist as an ES module and as
 * CommonJS, so they have no other place in common.
 */
export const MEMORY = Symbol.for("leasehold.memoryEtcd");

/** Where hosts of `memoryEtcd()` lead; undefined for all others. @throws {RangeError} if one of them leads nowhere. */
export function memoryEntryOf(hosts: readonly string[]): MemoryEntry | undefined {
  if (!hosts.some((host) => host.startsWith("memory:"))) return undefined;
  const entries = (globalThis as { readonly [MEMORY]?: MemoryEntries })[MEMORY];
  const [first, ...others] = hosts.map((host) => entries?.get(host));
  if (first !== undefined && others.every((entry) => entry === first)) return first();
  throw rangeError(
    "hosts",
    "those of one memoryEtcd() that runs in this process and was not stopped",
    hosts.join(", "),
  );
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
