// A double barrier: members enter together, and leave together. In the keys of Go's client, and one more for each member of ours:
//
//   key                               lease            there:
//   NAME/waiters/ID                   of the session   a member, from its call of enter to that of leave
//   NAME/ready                        none             the barrier is open: the last to enter puts it, the last to leave deletes it
//   /leasehold/barrier/NAME//m/ID     for 30 days      beside the first one; without it, the session of the member has ended
//   the same                          for ten minutes  a member has left while its put was in doubt: a late attempt puts nothing
//
// The members of a round are the first ones, by their create revisions. `ready` names them, so a member that came too late doesn't take the
// round of the others for its own. It is put only while all of them are there, in one transaction with that condition. A `ready`
// that is older than every member is left from a round whose members have all died.
import type { Compare, KeyValue } from "../../etcd/port.js";
import { BARRIERS, pathOf, prefixEnd } from "../../keys.js";
import type { EtcdServices } from "../../lock/session/connection.js";
import { fieldsOf, type SeenKey, seenKey } from "./await-keys.js";

/** etcd takes 128 conditions in a transaction. */
export const MAX_MEMBERS = 100;
/** The record of a member that has left. */
export const LEFT = JSON.stringify({ left: true });

/** The keys of one barrier. */
export class BarrierKeys {
  readonly queue: string;
  readonly waiters: { readonly key: string; readonly end: string };
  readonly ready: string;
  readonly records: { readonly key: string; readonly end: string };

  constructor(services: EtcdServices, name: string) {
    this.queue = pathOf(services, name);
    const waiters = `${this.queue}/waiters/`;
    this.waiters = { key: waiters, end: prefixEnd(waiters) };
    this.ready = `${this.queue}/ready`;
    const records = `${BARRIERS}${this.queue}//`;
    // Where `Barrier` has its mark, if that is the name of one, too.
    this.records = { key: `${records}m/`, end: `${records}m0` };
  }

  /** From `ready` to the last member: what else is between them is ignored. */
  get all(): { readonly key: string; readonly end: string } {
    return { key: this.ready, end: this.waiters.end };
  }
}

export interface Waiter extends SeenKey {
  readonly key: Buffer;
}

/** The members and the open state, as etcd has them at one revision. */
export interface View {
  /** The oldest first. */
  readonly waiters: readonly Waiter[];
  readonly ready: SeenKey | undefined;
}

const byAge = (a: SeenKey, b: SeenKey): number => (a.createRevision < b.createRevision ? -1 : 1);
export const latin1 = (key: string): string => Buffer.from(key).toString("latin1");
export const waiterOf = (kv: KeyValue): Waiter => ({ key: kv.key, ...seenKey(kv) });

/** The members at one revision. */
export const waitersIn = (keys: ReadonlyMap<string, SeenKey>, directory: string): readonly Waiter[] =>
  [...keys]
    .filter(([key]) => key.startsWith(directory))
    .map(([key, kv]) => ({ key: Buffer.from(key, "latin1"), ...kv }))
    .sort(byAge);

/** Who was let in: a member of ours says so; of Go's, it's not known. */
export function admitted(ready: SeenKey): ReadonlySet<bigint> | undefined {
  const revisions = fieldsOf(ready)?.["members"];
  if (!Array.isArray(revisions) || revisions.length > MAX_MEMBERS) return undefined;
  const texts = revisions.filter((each) => typeof each === "string" && /^\d{1,19}$/.test(each)) as string[];
  return new Set(texts.map(BigInt));
}

/** How many members the owner of a key waits for; undefined: Go's client doesn't say. */
export function membersIn(kv: SeenKey): number | undefined {
  const members = fieldsOf(kv)?.["members"];
  return typeof members === "number" ? members : undefined;
}

export const hasLeft = (kv: Pick<KeyValue, "value">): boolean => fieldsOf(kv)?.["left"] === true;

export const readyIs = (key: string, last: SeenKey | undefined): Compare =>
  last ? { kind: "modified at", key, revision: last.modRevision } : { kind: "created at", key, revision: 0n };
