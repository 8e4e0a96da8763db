import { inspect } from "node:util";
import { contenderOf, type Contender } from "../contender.js";
import { printable } from "../printable.js";
import type { InspectedKey, QueueKind } from "./entry.js";
import { kindOfQueue, type Split } from "./holders.js";

/** The queue of a name at one revision of etcd. */
export interface QueueState {
  readonly name: string;
  /** As far as keys and values show; "unknown" also for an empty queue. */
  readonly kind: QueueKind;
  /** In the order of the queue, at most `limit` of them. */
  readonly holders: readonly Contender[];
  /** The next one first, at most `limit` of them. */
  readonly waiters: readonly Contender[];
  /** How many there are, whatever `limit` is. */
  readonly total: { readonly holders: number; readonly waiters: number };
  /** The revision of etcd whose state this is. */
  readonly revision: bigint;
  /** Bigints become decimal strings, dates ISO 8601. */
  toJSON(): Readonly<Record<string, unknown>>;
}

/** What a state is made of. */
export interface StateParts {
  readonly name: string;
  /** Of the cluster. */
  readonly prefix: string;
  readonly revision: bigint;
  /** All of them. */
  readonly split: Split<InspectedKey>;
  readonly limit: number;
  /** Milliseconds, by lease; undefined if they were not read. */
  readonly ttls?: ReadonlyMap<bigint, number>;
}

/** The first `limit` holders and the first `limit` waiters. */
export const reported = <E>({ holders, waiters }: Split<E>, limit: number): Split<E> => ({
  holders: holders.slice(0, limit),
  waiters: waiters.slice(0, limit),
});

export function stateOf({ name, prefix, revision, split, limit, ttls }: StateParts): QueueState {
  const { holders, waiters } = reported(split, limit);
  const contenders = (keys: readonly InspectedKey[], state: Contender["state"]): Contender[] =>
    keys.map((key) =>
      contenderAt(name, key, { prefix, state, ttlRemainingMs: ttls?.get(key.facts.leaseId) }),
    );
  const data: StateData = {
    name,
    kind: kindOfQueue([...holders, ...waiters]),
    holders: contenders(holders, "holding"),
    waiters: contenders(waiters, "waiting"),
    total: { holders: split.holders.length, waiters: split.waiters.length },
    revision,
  };
  // Not enumerable, so that logs and comparisons show only the data.
  const toJSON = (): Record<string, unknown> => ({ ...data, revision: revision.toString() });
  Object.defineProperty(data, inspect.custom, { value: () => textOf(data) });
  return Object.defineProperty(data, "toJSON", { value: toJSON }) as QueueState;
}

/** Complete keys that are no text, by the contender that shows them: its `key` has U+FFFD in the place of some bytes. */
const binaryKeys = new WeakMap<Contender, Buffer>();

/** The exact key of a contender that this process has read, without the prefix of the cluster. */
export const exactKey = (contender: Contender, prefix: string): string | Buffer =>
  binaryKeys.get(contender)?.subarray(Buffer.byteLength(prefix)) ?? contender.key.slice(prefix.length);

/** What a contender has besides its key. */
interface Circumstances extends Pick<Contender, "state" | "ttlRemainingMs"> {
  /** Of the cluster. */
  readonly prefix: string;
}

export function contenderAt(
  name: string,
  { key, createRevision, facts: { leaseId, owner, since } }: InspectedKey,
  { prefix, ...now }: Circumstances,
): Contender {
  const place = { name, key: `${prefix}${key.toString()}`, revision: createRevision, leaseId };
  const contender = contenderOf({ ...place, owner, since, ...now });
  if (typeof key !== "string") binaryKeys.set(contender, Buffer.concat([Buffer.from(prefix), key]));
  return contender;
}

type StateData = Omit<QueueState, "toJSON">;

/** What `util.inspect` shows, and so console.log: a line for the queue and one for each contender, without control characters. */
function textOf({ name, kind, holders, waiters, total, revision }: StateData): string {
  const more = total.holders - holders.length + total.waiters - waiters.length;
  return [
    `QueueState "${printable(name, Infinity)}" (${kind}) at revision ${revision}: ${total.holders} holding, ${total.waiters} waiting`,
    ...[...holders, ...waiters].map((contender) => `  ${lineOf(contender)}`),
    ...(more > 0 ? [`  and ${more} more`] : []),
  ].join("\n");
}

function lineOf({ state, owner, since, key, revision, leaseId, ttlRemainingMs }: Contender): string {
  return [
    state,
    owner === undefined ? printable(key) : `${printable(owner)}  ${printable(key)}`,
    `revision ${revision}`,
    `lease ${leaseId.toString(16)}`,
    ...(since === undefined ? [] : [`since ${since.toISOString()}`]),
    ...(ttlRemainingMs === undefined ? [] : [`${ttlRemainingMs / 1000} s left`]),
  ].join("  ");
}
