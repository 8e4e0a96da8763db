import { EtcdRefusedError } from "../../../src/errors.js";
import {
  LeaseNotFoundError,
  type Range,
  TokenExpiredError,
  type Txn,
  UnansweredError,
} from "../../../src/etcd/port.js";
import { Mutex, Session } from "../../../src/index.js";
import { settle } from "./fake-clock.js";
import { FakeCluster, HEADER, LEASE_ID } from "./fake-connection.js";
import { type FakeCall, type FakeWatch, keyValue } from "./fake-member.js";

/** Another process holds `jobs` from the start to the end. */
const HOLDER = { key: "jobs/1", revision: 40n };
const LIMIT_MS = 5000;
const NOWHERE = 4711;

/** The reason of callers that abort. */
export const LEFT = new Error("the caller left");

export const FAILURES = {
  unanswered: () => new UnansweredError("lost"),
  refused: (what: string) => new EtcdRefusedError("permission", "a:1", `no ${what}`),
  "stale token": () => new TokenExpiredError("invalid auth token"),
  "no lease": () => new LeaseNotFoundError("requested lease not found"),
} as const;

/** Changes to a true answer; the last three apply only to reads that a member answers alone. */
export const TWISTS = [
  "true",
  "nobody",
  "only others",
  "reversed",
  "more",
  "not succeeded",
  "no answers",
] as const;
export const STALE_TWISTS = [
  "alone, long ago",
  "alone, at another member",
  "alone, of another place",
] as const;
export type Twist = (typeof TWISTS)[number] | (typeof STALE_TWISTS)[number];

type Kv = ReturnType<typeof keyValue>;
interface Ranges {
  readonly kvs: readonly Kv[];
  readonly more: boolean;
  readonly count: number;
}

/** A session, its callers and a member that answers anything, except that the holder is gone. */
export class NonsenseWorld {
  readonly cluster = new FakeCluster();
  readonly clock = this.cluster.clock;
  readonly lease = this.cluster.lease();
  /** The outcomes of callers: "granted", "refused" by `tryLock`, or the error. */
  readonly ends: unknown[] = [];
  readonly #mutex = new Mutex(Reflect.construct(Session, [this.lease]) as Session, "jobs");
  readonly #pending: FakeCall[] = [];
  readonly #callers = new Set<AbortController>();
  /** The session's keys in the store. */
  readonly #places = new Map<string, { readonly revision: bigint; readonly value: string }>();
  #revision = 50n;

  constructor() {
    this.cluster.onCall = (call) => void this.#pending.push(call);
  }

  call(how: "lock" | "tryLock"): void {
    const caller = new AbortController();
    this.#callers.add(caller);
    this.#mutex[how]({ signal: caller.signal, timeoutMs: LIMIT_MS }).then(
      (lock) => this.ends.push(lock ? "granted" : "refused"),
      (error: unknown) => this.ends.push(error),
    );
  }

  get calls(): number {
    return this.#callers.size;
  }

  abort(): void {
    for (const caller of this.#callers) caller.abort(LEFT);
  }

  fail(pick: number, failure: keyof typeof FAILURES): void {
    const [call] = this.#pending.splice(pick % Math.max(1, this.#pending.length), 1);
    if (!call) return;
    const puts = call.method === "txn" && (call.request as Txn).success.some(({ kind }) => kind === "put");
    // Only a call that puts a key gets an error about its lease.
    const fitting = failure === "no lease" && !puts ? "unanswered" : failure;
    call.fail(FAILURES[fitting](call.method));
  }

  answer(pick: number, twist: Twist): void {
    const [call] = this.#pending.splice(pick % Math.max(1, this.#pending.length), 1);
    if (!call) return;
    const { method, request } = call;
    if (method === "range") call.answer(this.#read(request as Range, twist));
    else if (method === "txn") call.answer(this.#commit(request as Txn, twist));
    else call.answer({ header: HEADER, leaseId: LEASE_ID, ttlSeconds: 10, keys: [] });
  }

  /** The open stream of watches, if there is one. */
  get #stream(): FakeWatch | undefined {
    return this.cluster.connected.flatMap(({ watches }) => watches).findLast(({ closed }) => !closed);
  }

  created(pick: number, revision: bigint): void {
    const { creates = [] } = this.#stream ?? {};
    const watchId = creates[pick % Math.max(1, creates.length)]?.watchId ?? NOWHERE;
    this.#stream?.answer({ watchId, created: true }, revision);
  }

  /** An event that is too old to matter, or for one of the session's keys, or for a watch that does not exist. */
  event(pick: number, revision: bigint): void {
    const { creates = [] } = this.#stream ?? {};
    const watch = creates[pick % (creates.length + 1)];
    const ours = watch !== undefined && String(watch.key).startsWith(`jobs/${LEASE_ID.toString(16)}`);
    const modRevision = ours || !watch || revision <= HOLDER.revision ? revision : HOLDER.revision;
    const kv = keyValue({ key: String(watch?.key ?? "jobs/1"), createRevision: 0n, modRevision });
    this.#stream?.answer({ watchId: watch?.watchId ?? NOWHERE, events: [{ kind: "DELETE", kv }] }, revision);
  }

  cancelled(pick: number, refused: boolean): void {
    const { creates = [] } = this.#stream ?? {};
    const watchId = creates[pick % (creates.length + 1)]?.watchId ?? NOWHERE;
    this.#stream?.answer({
      watchId: refused ? -1 : watchId,
      created: refused,
      cancelled: true,
      cancelReason: "no",
    });
  }

  endWatches(): void {
    this.#stream?.end();
  }

  renewal(leaseId: bigint, ttlSeconds: number, raftTerm: bigint): void {
    const open = this.cluster.connected
      .flatMap(({ keepalives }) => keepalives)
      .filter(({ closed }) => !closed);
    open.at(-1)?.answer(leaseId, ttlSeconds, { raftTerm });
  }

  /** All callers leave, the session is closed, and all time limits expire. */
  async end(): Promise<void> {
    await this.clock.pass(LIMIT_MS + 1000);
    const closing = this.lease.close(0);
    await this.clock.pass(60_000);
    await closing;
    await settle();
  }

  #read(range: Range, twist: Twist): object {
    const header = { ...HEADER, revision: this.#revision };
    const mine = this.#kvs().filter(({ key }) => key.toString() !== HOLDER.key);
    const stale = range.serializable && range.maxCreateRevision !== undefined ? twist : "true";
    const alone = { kvs: mine.slice(0, 1), more: false, count: 1 };
    if (stale === "alone, long ago") return { header: { ...header, revision: 1n }, ...alone };
    if (stale === "alone, at another member") return { header: { ...header, memberId: "q" }, ...alone };
    const strange = [keyValue({ key: `jobs/${LEASE_ID.toString(16)}-99`, createRevision: 1n })];
    if (stale === "alone, of another place") return { header, kvs: strange, more: false, count: 1 };
    return { header, ...this.#range(range, twist) };
  }

  #range(range: Omit<Range, "serializable">, twist: Twist): Ranges {
    const { key, end, maxCreateRevision: newest } = range;
    const within = this.#kvs().filter(
      (kv) =>
        (end !== undefined || kv.key.toString() === String(key)) && (!newest || kv.createRevision <= newest),
    );
    const kvs = range.order === "oldest first" ? within.reverse() : within;
    return twisted({ kvs, more: false, count: this.#places.size + 1 }, twist);
  }

  #commit({ compare, success, failure }: Txn, twist: Twist): object {
    const header = { ...HEADER, revision: ++this.#revision };
    const [put] = success.filter((each) => each.kind === "put");
    const succeeded = compare[0]?.kind !== "nothing in" && !(put && this.#places.has(put.key));
    if (succeeded && put) this.#places.set(put.key, { revision: this.#revision, value: put.value });
    for (const each of success)
      if (succeeded && each.kind === "delete") this.#places.delete(String(each.key));
    const branch = succeeded ? success : failure;
    const ranges = branch.map((each) =>
      each.kind === "range" ? this.#range(each, put ? twist : "true") : undefined,
    );
    if (twist === "no answers") return { header, succeeded, ranges: [] };
    return { header, succeeded: succeeded && twist !== "not succeeded", ranges };
  }

  /** The queue, latest first. */
  #kvs(): Kv[] {
    const ours = [...this.#places].map(([key, { revision, value }]) =>
      keyValue({ key, value, createRevision: revision, modRevision: revision, leaseId: LEASE_ID }),
    );
    const holder = keyValue({
      key: HOLDER.key,
      createRevision: HOLDER.revision,
      modRevision: HOLDER.revision,
    });
    return [holder, ...ours].reverse();
  }
}

function twisted(ranges: Ranges, twist: Twist): Ranges {
  const { kvs } = ranges;
  if (twist === "nobody") return { ...ranges, kvs: [], count: -1 };
  if (twist === "only others")
    return { ...ranges, kvs: kvs.filter(({ key }) => key.toString() === HOLDER.key), count: 2 };
  if (twist === "reversed") return { ...ranges, kvs: [...kvs].reverse() };
  return twist === "more" ? { ...ranges, more: true } : ranges;
}
