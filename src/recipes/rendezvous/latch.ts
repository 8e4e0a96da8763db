// A count-down latch. Each count is a key of its own, so that a request which is sent again counts once:
//
//   key                              lease             there:
//   LATCH/latch                      for ttlMs         since the first count: the number, the round, and whether it is open
//   LATCH/ROUND/counted/ID           the same one      a count
//   LATCH/ROUND/enlisted/ID          the same one      a counter that has not counted yet
//   LATCH/ROUND/alive/ID             of its session    the same, while its session lives
//
// LATCH is `/leasehold/latch/NAME/`: no name has two slashes in a row, or one at its start, so no queue and no other latch contains it.
// A counter that is enlisted and not alive has died. All keys of a round but the last have one lease, so they end together, and the keys
// of a round that is over count for nothing. A reset changes the round: an attempt that etcd executes late finds another first key.
import { type Compare, LeaseNotFoundError, type Txn, type TxnAnswer } from "../../etcd/port.js";
import type { CallPolicy } from "../../etcd/retry.js";
import {
  CountMismatchError,
  EtcdUnavailableError,
  LatchBrokenError,
  WaitTimeoutError,
} from "../../errors.js";
import {
  checkInteger,
  checkName,
  checkOptions,
  checkShown,
  checkWait,
  type CheckedWait,
  rangeError,
} from "../../base/options/check.js";
import { LATCHES, pathOf, prefixEnd } from "../../keys.js";
import type { Asking } from "../../lock/queue/contenders.js";
import { type LeaseSource, leaseSourceOf, type SessionSource } from "../../lock/session/cluster.js";
import type { Dependent, Lease } from "../../lock/session/lease.js";
import { defaultOwner } from "../../lock/session/open-lease.js";
import type { WaitOptions } from "../../lock/session/session-options.js";
import { askBy } from "../../observe/inspect.js";
import type { QueueChange } from "../../observe/queue-watch.js";
import { settleWithin } from "../../base/util/settle.js";
import {
  checkOnCrash,
  REJECT_OR_CONTINUE,
  fieldsOf,
  ownerIn,
  type SeenKey,
  timedOut,
  untilKeys,
  type WaitEnds,
  withLongLease,
} from "./await-keys.js";

const MAX_COUNT = 10_000;
const DAY_MS = 86_400_000;
const MIN_TTL_MS = 60_000;
const DEFAULT_TTL_MS = 7 * DAY_MS;
const ENLIST_TIMEOUT_MS = 10_000;
/** Options of a latch. */
export interface LatchOptions {
  /**
   * How long the latch exists from its first count on, open or not: milliseconds, a minute to 366 days, and up to an eighth longer. Then
   * etcd deletes its keys, and its name stands for a new latch. @default 604800000: 7 days
   */
  readonly ttlMs?: number | undefined;
}

/** Options of a count. */
export interface CountOptions extends WaitOptions {
  /**
   * What is counted, such as the ID of a job, 1 to 256 bytes: counted once, however often, and from whichever process.
   * @default each call is a count
   */
  readonly id?: string | undefined;
}

/** Options of a wait for a latch. */
export interface LatchWaitOptions extends WaitOptions {
  /**
   * What follows when the session of an enlisted counter ends before it has counted, or has ended before the call: "reject", with a
   * LatchBrokenError that names the counter; "continue", so that another one may count in its place. @default "reject"
   */
  readonly onCrash?: "reject" | "continue" | undefined;
}

/** A counter that those who wait know of before it counts. */
export interface LatchCounter {
  readonly latchName: string;
  /** Aborts when its session ends: those who wait are told that it has crashed. */
  readonly signal: AbortSignal;
  /**
   * Counts, once, however often it is called. `timeoutMs` defaults to 5000. On abort: rejects at once with the signal's reason; it may
   * have counted.
   * @throws {SessionLostError | SessionClosedError} if its session had ended: it has not counted.
   * @throws {LatchBrokenError} if the latch was reset. @throws {EtcdUnavailableError} if etcd does not answer in time: call it again.
   */
  countDown(options?: WaitOptions): Promise<void>;
  /** Leaves without counting, and nobody is told. Resolves when it is gone, or its session is over. Idempotent. */
  leave(): Promise<void>;
}

/** What the first key of a latch says. */
interface Round {
  readonly count: number;
  readonly id: string;
  readonly isOpen: boolean;
  readonly revision: bigint;
  readonly leaseId: bigint;
}

/** The keys of one latch. */
class LatchKeys {
  readonly queue: string;
  readonly base: string;
  readonly latch: string;

  constructor({ services }: LeaseSource, name: string) {
    this.queue = `${LATCHES}${pathOf(services, name)}`;
    this.base = `${this.queue}//`;
    this.latch = `${this.base}latch`;
  }

  get range(): { readonly key: string; readonly end: string } {
    return { key: this.base, end: prefixEnd(this.base) };
  }

  of(part: "counted" | "enlisted" | "alive", round: string, id: string): string {
    return `${this.base}${round}/${part}/${id}`;
  }

  /** etcd counts the keys of the range, whatever the limit is. */
  counts(round: string) {
    const key = this.of("counted", round, "");
    return { key, end: prefixEnd(key), limit: 1, keysOnly: true } as const;
  }
}

/**
 * A count-down latch that processes share: `wait()` resolves when `countDown()` was called `count` times, in any process. It opens once,
 * and stays open until `reset()`, or until `ttlMs` has passed since the first count. Any object with the same name and count
 * stands for the same latch. A count is counted once, also if the answer to its request is lost.
 *
 * A process that dies before it calls `countDown` has counted nothing, and nobody knows of it, unless it has called `enlist` before.
 * Waiting and counting need no session; `enlist` uses one.
 */
export class CountDownLatch {
  readonly #source: LeaseSource;
  readonly #keys: LatchKeys;
  readonly #ttlMs: number;
  /** As last seen: it may have ended since. */
  #round: Round | undefined;

  /**
   * @param count how many counts open it, 1..10000: the same for all who use the latch.
   * @throws {TypeError | RangeError} on bad arguments.
   */
  // eslint-disable-next-line max-params -- public: the options come last, as everywhere
  constructor(
    source: SessionSource,
    readonly name: string,
    count: number,
    options?: LatchOptions,
  ) {
    this.#source = leaseSourceOf(source);
    this.#keys = new LatchKeys(this.#source, checkName(name));
    if (count === undefined) throw new TypeError("Expected count to be a number, got undefined");
    this.total = checkInteger("count", count, { min: 1, max: MAX_COUNT, fallback: NaN });
    const { ttlMs } = checkOptions("CountDownLatch", options, ["ttlMs"]);
    const limits = { min: MIN_TTL_MS, max: 366 * DAY_MS, fallback: DEFAULT_TTL_MS };
    this.#ttlMs = checkInteger("ttlMs", ttlMs, limits);
  }

  /** How many counts open it. */
  readonly total: number;

  /**
   * Counts one. Does nothing if the latch is open. Resolves when etcd has stored the count. `timeoutMs` defaults to 5000.
   *
   * On abort: rejects at once with the signal's reason. The count may have been stored then, as after an EtcdUnavailableError: with an
   * `id`, the call can be repeated.
   * @throws {EtcdUnavailableError} if etcd does not answer in time. @throws {EtcdRefusedError} if etcd rejects the request.
   * @throws {CountMismatchError} if others use the latch with another count. @throws {LatchBrokenError} "unreadable".
   * @throws {SessionClosedError} if the cluster is closed. @throws {TypeError | RangeError} on bad options.
   */
  async countDown(options?: CountOptions): Promise<void> {
    const wait = checkWait("countDown", options, ["id"]);
    const { id } = options ?? {};
    if (id === "") throw rangeError("id", "a string of 1 to 256 bytes", id);
    const given = checkShown("id", id);
    // "=" is in no ID of ours.
    const counted = given === undefined ? this.#newId() : `=${encodeURIComponent(given)}`;
    const value = this.#value(defaultOwner());
    await this.#ask("countDown", wait, (asking) =>
      this.#write(asking, undefined, (round) => ({
        puts: [{ key: this.#keys.of("counted", round, counted), value }],
        counts: true,
      })),
    );
  }

  /**
   * Resolves when the latch is open: at once if it is. Costs a read, and until it opens one watch. No limit of time by default.
   *
   * On abort: rejects at once with the signal's reason.
   * @throws {LatchBrokenError} "crashed": see `onCrash`; "reset": by `reset()`, or by the end of `ttlMs`.
   * @throws {CountMismatchError} if others use the latch with another count. @throws {WaitTimeoutError} after `timeoutMs`.
   * @throws {EtcdUnavailableError} after `timeoutMs`, if etcd does not answer. @throws {EtcdRefusedError} if etcd rejects a request.
   * @throws {SessionClosedError} if the cluster is closed. @throws {TypeError | RangeError} on bad options.
   */
  async wait(options?: LatchWaitOptions): Promise<void> {
    const wait = checkWait("wait", options, ["onCrash"]);
    const onCrash = checkOnCrash(options?.onCrash, REJECT_OR_CONTINUE);
    const { services } = this.#source;
    const { signal, timeoutMs } = wait;
    signal?.throwIfAborted();
    services.closed.throwIfAborted();
    const what = `wait for the latch "${this.name}"`;
    const state = new LatchState(this, this.#keys, onCrash === "reject");
    const reading = new AbortController();
    const ending = [services.aborts.add(services.closed, () => reading.abort(services.closed.reason))];
    const start = services.clock.monotonic();
    try {
      const policy = { what, signal: reading.signal };
      const onTimeout = (): Error =>
        timedOut(services, { name: this.name, what, timeoutMs: timeoutMs ?? 0 }, state.missing());
      const onGiveUp = (): void => reading.abort();
      const handlers = { onTimeout, onGiveUp };
      if ((await settleWithin(this.#left({ services, policy }), wait, services, handlers)) === 0) return;
    } finally {
      for (const stop of ending) stop();
    }
    const left =
      timeoutMs === undefined ? undefined : Math.max(1, timeoutMs - (services.clock.monotonic() - start));
    await untilKeys<void>(
      { services, range: this.#keys.range, name: this.name, what, ends: [services.closed] },
      (change, ends) => state.judge(change, ends),
      { signal, timeoutMs: left },
      { missing: () => state.missing() },
    ).catch((error: unknown) => {
      // Its time began with the call.
      throw error instanceof WaitTimeoutError
        ? new WaitTimeoutError(this.name, timeoutMs ?? 0, state.missing())
        : error;
    });
  }

  /**
   * How many counts are missing: 0 when it is open. `timeoutMs` defaults to 5000. On abort: rejects at once with the signal's reason.
   * @throws as `countDown`.
   */
  async count(options?: WaitOptions): Promise<number> {
    const wait = checkWait("count", options);
    return this.#ask("count", wait, (asking) => this.#left(asking));
  }

  /**
   * Registers a counter with those who wait, on the session of the source. If that session ends before the counter has counted or left, they
   * are told, as they have chosen by `onCrash`: a crash neither counts nor lets them wait for ever. More may be enlisted than the latch counts. In a latch that is
   * open, nothing is registered. `timeoutMs` defaults to 10000.
   *
   * On abort: rejects at once with the signal's reason; the counter leaves in the background.
   * @throws {SessionLostError | SessionClosedError} if the session is over. @throws as `countDown`.
   */
  async enlist(options?: WaitOptions): Promise<LatchCounter> {
    const { signal, timeoutMs = ENLIST_TIMEOUT_MS } = checkWait("enlist", options);
    signal?.throwIfAborted();
    const lease = await this.#source.lease({ signal, timeoutMs });
    lease.assertOpen();
    const counter = new Counter(this.name, lease, this.#keys, (key) => this.#countFor(lease, key));
    const id = this.#newId();
    const { services } = lease;
    const what = `enlist a counter of the latch "${this.name}"`;
    const policy = { ...lease.policy(what), onLeaseGone: undefined };
    const value = this.#value(lease.owner);
    const enlisting = this.#write({ services, policy }, lease, (round) => ({
      puts: [
        { key: this.#keys.of("enlisted", round, id), value },
        { key: this.#keys.of("alive", round, id), value, leaseId: lease.leaseId },
      ],
      counts: false,
    })).then(({ round, at: revision }) =>
      counter.enlisted({ round: round.id, leaseId: round.leaseId, id, revision }),
    );
    const settled = settleWithin(enlisting, { signal, timeoutMs }, services, {
      onTimeout: () => new EtcdUnavailableError(what, services.client.hosts.whyUnanswered(timeoutMs)),
    });
    try {
      await settled;
      return counter;
    } catch (error) {
      void enlisting.catch(() => undefined).then(() => counter.leave());
      throw error;
    }
  }

  /**
   * Begins a new round: all counts of this object's number are missing again, for all who use the name. Does nothing if nobody has counted or
   * enlisted yet. Those who wait are rejected with a LatchBrokenError, "reset". `timeoutMs` defaults to 5000.
   * On abort: rejects at once with the signal's reason; it may be reset nevertheless.
   * @throws as `countDown`, except for CountMismatchError: a reset may change the number.
   */
  async reset(options?: WaitOptions): Promise<void> {
    const wait = checkWait("reset", options);
    const { queue, latch: key } = this.#keys;
    const round = this.#newId();
    const value = roundValue({ count: this.total, round, isOpen: false });
    await this.#ask("reset", wait, async ({ services, policy }) => {
      const { client } = services;
      const limits = { what: policy.what, signal: policy.signal ?? services.closed };
      const reset = (): Promise<boolean> =>
        withLongLease(services, { ms: this.#ttlMs, atLeast: true }, limits, async (leaseId) => {
          const [kv] = (await client.range({ key }, policy)).kvs;
          if (!kv || roundIn(kv)?.id === round) return true;
          const compare = [{ kind: "modified at", key, revision: kv.modRevision }] as const;
          const success = [{ kind: "put", key, value, leaseId }] as const;
          return (await client.txn({ queues: [queue], compare, success, failure: [] }, policy)).succeeded;
        });
      while (!(await reset()));
      this.#round = undefined;
    });
  }

  #ask<T>(call: string, wait: CheckedWait, run: (asking: Asking) => Promise<T>): Promise<T> {
    return askBy(this.#source.services, { what: `${call} of the latch "${this.name}"`, wait }, run);
  }

  #newId(): string {
    return this.#source.services.clock.randomId().toString(36);
  }

  #value(owner: string): string {
    return JSON.stringify({ owner, since: this.#source.services.clock.date().toISOString() });
  }

  /** @throws CountMismatchError | LatchBrokenError */
  #roundOf(kv: SeenKey | undefined): Round | undefined {
    if (kv === undefined) return undefined;
    const round = roundIn(kv);
    if (round === undefined) throw new LatchBrokenError(this.name, "unreadable");
    if (round.count !== this.total) throw new CountMismatchError(this.name, this.total, round.count);
    return round;
  }

  async #left({ services: { client }, policy }: Asking): Promise<number> {
    const latch = { key: this.#keys.latch };
    for (;;) {
      const known = this.#round;
      const reads = known ? [latch, this.#keys.counts(known.id)] : [latch];
      const { ranges } = await client.ranges(reads, policy);
      const round = (this.#round = this.#roundOf(ranges[0]?.kvs[0]));
      if (!round) return this.total;
      if (round.isOpen) return 0;
      if (round.id === known?.id) return Math.max(0, this.total - (ranges[1]?.count ?? 0));
    }
  }

  /**
   * Puts keys into the present round, or into a new one. Sent again after a lost answer, it puts the same keys. Whether an attempt was
   * executed is read from them, in the round in which it would have put them.
   */
  async #write(asking: Asking, lease: Lease | undefined, make: (round: string) => Write): Promise<Written> {
    const { services, policy } = asking;
    const fresh = this.#newId();
    for (;;) {
      const known = this.#round;
      if (known?.isOpen) {
        // It may have been reset since.
        const [kv] = (await services.client.range({ key: this.#keys.latch }, policy)).kvs;
        const round = (this.#round = this.#roundOf(kv));
        if (round?.isOpen) return { round, at: undefined };
        continue;
      }
      const write = make(known?.id ?? fresh);
      try {
        const limits = { what: policy.what, signal: policy.signal ?? services.closed };
        const renew = lease && { renew: () => lease.renewNow() };
        const lifetime = { ms: this.#ttlMs, atLeast: true };
        const written = known
          ? await this.#put(asking, known, write)
          : await withLongLease(services, lifetime, { ...limits, ...renew }, (leaseId) =>
              this.#begin(asking, { id: fresh, leaseId }, write),
            );
        if (written) return written;
      } catch (error) {
        if (!known || !(error instanceof LeaseNotFoundError)) throw error;
        // The round has ended with its lease, or the session has.
        this.#round = undefined;
        await lease?.renewNow();
      }
    }
  }

  /** With the first key. undefined: somebody else was faster. */
  async #begin(asking: Asking, { id, leaseId }: Pick<Round, "id" | "leaseId">, write: Write) {
    const isOpen = write.counts && this.total === 1;
    const value = roundValue({ count: this.total, round: id, isOpen });
    const first = { kind: "put", key: this.#keys.latch, value, leaseId } as const;
    const answer = await this.#txn(asking, { id, leaseId, at: undefined }, { write, first: [first] });
    if (!answer.succeeded) return this.#executed(asking, answer, { before: id, write });
    const { revision } = answer.header;
    this.#round = { count: this.total, id, isOpen, revision, leaseId };
    return { round: this.#round, at: revision };
  }

  /** Into a round that was there. undefined: it has changed. */
  async #put(asking: Asking, round: Round, write: Write): Promise<Written | undefined> {
    const { id, leaseId, revision: at } = round;
    const answer = await this.#txn(asking, { id, leaseId, at }, { write, first: [] });
    if (!answer.succeeded) return this.#executed(asking, answer, { before: id, write });
    const isFull = write.counts && (answer.ranges.at(-1)?.count ?? 0) >= this.total;
    if (isFull) this.#round = await this.#open(asking, round);
    return { round, at: answer.header.revision };
  }

  #txn(
    { services, policy }: Asking,
    { id, leaseId, at }: Pick<Round, "id" | "leaseId"> & { readonly at: bigint | undefined },
    { write: { puts }, first }: { readonly write: Write; readonly first: Txn["success"] },
  ): Promise<TxnAnswer> {
    const { latch: key, queue } = this.#keys;
    const [mine] = puts as readonly [Put, ...Put[]];
    const unchanged: Compare =
      at === undefined
        ? { kind: "created at", key, revision: 0n }
        : { kind: "modified at", key, revision: at };
    const txn: Txn = {
      queues: [queue],
      compare: [unchanged],
      success: [
        ...first,
        ...puts.map((put) => ({ kind: "put", leaseId, ...put }) as const),
        { kind: "range", ...this.#keys.counts(id) },
      ],
      failure: [
        { kind: "range", key },
        { kind: "range", key: mine.key },
      ],
    };
    return services.client.txn(txn, policy);
  }

  /** What an earlier attempt has written; undefined: none was executed, and the next one has to be in another round. */
  async #executed(
    asking: Asking,
    { ranges }: TxnAnswer,
    { before, write }: { readonly before: string; readonly write: Write },
  ): Promise<Written | undefined> {
    const [there] = ranges[1]?.kvs ?? [];
    const found = (this.#round = this.#roundOf(ranges[0]?.kvs[0]));
    if (!there) return found?.isOpen ? { round: found, at: undefined } : undefined;
    const mayBeLast = write.counts && found?.id === before && !found.isOpen;
    if (mayBeLast) this.#round = await this.#openIfFull(asking, found);
    return { round: { ...(found ?? ENDED), id: before }, at: there.createRevision };
  }

  async #openIfFull(asking: Asking, round: Round): Promise<Round> {
    const { client } = asking.services;
    const { count } = await client.range(this.#keys.counts(round.id), asking.policy);
    return count >= this.total ? this.#open(asking, round) : round;
  }

  /** So that no further count puts a key. It is open by its counts, too. */
  async #open({ services: { client }, policy }: Asking, round: Round): Promise<Round> {
    const { queue, latch: key } = this.#keys;
    const value = roundValue({ count: round.count, round: round.id, isOpen: true });
    const { leaseId } = round;
    const txn = {
      queues: [queue],
      compare: [{ kind: "modified at", key, revision: round.revision }],
      success: [{ kind: "put", key, value, leaseId }],
      failure: [],
    } as const;
    const answer = await client.txn(txn, policy).catch(() => undefined);
    return answer?.succeeded ? { ...round, isOpen: true, revision: answer.header.revision } : round;
  }

  /** The count of an enlisted counter, in its round. */
  async #countFor(lease: Lease, place: Enlisted): Promise<"counted" | "reset" | "gone"> {
    const { services } = lease;
    const { round, id, leaseId, revision } = place;
    const policy = { ...lease.policy(`count down the latch "${this.name}"`), onLeaseGone: undefined };
    const { queue, latch } = this.#keys;
    const [counted, enlisted, alive] = (["counted", "enlisted", "alive"] as const).map((part) =>
      this.#keys.of(part, round, id),
    ) as [string, string, string];
    const txn: Txn = {
      queues: [queue],
      compare: [{ kind: "created at", key: alive, revision }],
      success: [
        { kind: "put", key: counted, value: this.#value(lease.owner), leaseId },
        { kind: "delete", key: enlisted },
        { kind: "delete", key: alive },
        { kind: "range", key: latch },
      ],
      failure: [
        { kind: "range", key: latch },
        { kind: "range", key: counted },
      ],
    };
    const answer = await services.client.txn(txn, policy).catch((error: unknown) => {
      if (error instanceof LeaseNotFoundError) return undefined;
      throw error;
    });
    // The round has ended with its lease.
    if (!answer) return "reset";
    const [first, own] = answer.ranges.filter((range) => range !== undefined);
    const [kv] = first?.kvs ?? [];
    const now = (this.#round = this.#roundOf(kv));
    if (now?.id !== round) return "reset";
    if (!answer.succeeded && own?.kvs.length === 0) return "gone";
    if (!now.isOpen) this.#round = await this.#openIfFull({ services, policy }, now);
    return "counted";
  }
}

interface Put {
  readonly key: string;
  readonly value: string;
  /** Default: the long lease. */
  readonly leaseId?: bigint;
}

/** What a call puts. `counts`: the first one is a count, which may open the latch. */
interface Write {
  readonly puts: readonly Put[];
  readonly counts: boolean;
}

/** `at`: the create revision of the keys; undefined if the latch is open, and nothing was put. */
interface Written {
  readonly round: Round;
  readonly at: bigint | undefined;
}

const ENDED: Omit<Round, "id"> = { count: 0, isOpen: false, revision: -1n, leaseId: 0n };

const roundValue = (round: {
  readonly count: number;
  readonly round: string;
  readonly isOpen: boolean;
}): string => JSON.stringify(round);

function roundIn(kv: SeenKey): Round | undefined {
  const { count, round, isOpen } = fieldsOf(kv) ?? {};
  if (typeof count !== "number" || !Number.isInteger(count) || count < 1 || count > MAX_COUNT)
    return undefined;
  if (typeof round !== "string" || !/^[0-9a-z]{1,13}$/.test(round)) return undefined;
  return { count, id: round, isOpen: isOpen === true, revision: kv.modRevision, leaseId: kv.leaseId };
}

/** What one round has, as a wait sees it. */
class RoundCounts {
  counted = 0;
  readonly enlisted = new Map<string, string | undefined>();
  readonly alive = new Set<string>();

  /** The counters that are enlisted, and whose session has ended. */
  get dead(): readonly (string | undefined)[] {
    if (this.enlisted.size <= this.alive.size) return [];
    return [...this.enlisted].flatMap(([id, owner]) => (this.alive.has(id) ? [] : [owner]));
  }
}

/** The keys of a latch, as a wait follows them: each change costs what it changes. */
class LatchState {
  readonly #rounds = new Map<string, RoundCounts>();
  /** The round that is waited for: the first one that was there. */
  #round: string | undefined;
  #left: number | undefined;

  constructor(
    private readonly latch: Pick<CountDownLatch, "name" | "total">,
    private readonly keys: LatchKeys,
    private readonly rejects: boolean,
  ) {}

  missing(): string {
    const { total } = this.latch;
    return `${this.#left ?? total} of ${total} counts are missing`;
  }

  judge({ keys, before }: QueueChange<SeenKey>, ends: WaitEnds<void>): void {
    for (const [key, was] of before) this.#changed(key, was !== undefined, keys.get(key));
    const { name, total } = this.latch;
    const kv = keys.get(Buffer.from(this.keys.latch).toString("latin1"));
    const round = kv && roundIn(kv);
    if (kv && !round) return ends.reject(new LatchBrokenError(name, "unreadable"));
    if (this.#round !== undefined && round?.id !== this.#round)
      return ends.reject(new LatchBrokenError(name, "reset"));
    if (!round) return;
    if (round.count !== total) return ends.reject(new CountMismatchError(name, total, round.count));
    this.#round = round.id;
    const counts = this.#rounds.get(round.id);
    this.#left = Math.max(0, total - (counts?.counted ?? 0));
    if (round.isOpen || this.#left === 0) return ends.resolve();
    const dead = this.rejects ? (counts?.dead ?? []) : [];
    if (dead.length > 0) ends.reject(new LatchBrokenError(name, "crashed", dead[0]));
  }

  #changed(bytes: string, was: boolean, kv: SeenKey | undefined): void {
    const key = Buffer.from(bytes, "latin1").toString().slice(this.keys.base.length);
    const [id = "", part, ...rest] = key.split("/");
    const [name] = rest;
    if (name === undefined || rest.length > 1) return;
    const counts = this.#rounds.get(id) ?? new RoundCounts();
    this.#rounds.set(id, counts);
    if (part === "counted") counts.counted += Number(kv !== undefined) - Number(was);
    if (part === "enlisted" && kv) counts.enlisted.set(name, ownerIn(kv));
    else if (part === "enlisted") counts.enlisted.delete(name);
    if (part === "alive" && kv) counts.alive.add(name);
    else if (part === "alive") counts.alive.delete(name);
  }
}

interface Enlisted {
  readonly round: string;
  readonly id: string;
  /** Of the round. */
  readonly leaseId: bigint;
  /** Create revision of its keys. */
  readonly revision: bigint;
}

class Counter implements LatchCounter {
  /** Its session is in use, though nothing is held. */
  readonly #user: Dependent = { sessionEnded: () => undefined };
  #place: Enlisted | undefined;
  #counting: Promise<void> | undefined;
  #leaving: Promise<void> | undefined;

  // eslint-disable-next-line max-params -- four things that it needs
  constructor(
    readonly latchName: string,
    private readonly lease: Lease,
    private readonly keys: LatchKeys,
    private readonly count: (place: Enlisted) => Promise<"counted" | "reset" | "gone">,
  ) {
    lease.waits.add(this.#user);
  }

  get signal(): AbortSignal {
    this.lease.refresh();
    return this.lease.signal;
  }

  enlisted(place: Omit<Enlisted, "revision"> & { readonly revision: bigint | undefined }): void {
    const { revision } = place;
    if (revision !== undefined) this.#place = { ...place, revision };
  }

  async countDown(options?: WaitOptions): Promise<void> {
    const { signal, timeoutMs = 5000 } = checkWait("countDown", options);
    signal?.throwIfAborted();
    if (this.#leaving) throw new TypeError(`This counter has left the latch "${this.latchName}"`);
    const { services } = this.lease;
    this.#counting ??= this.#count().catch((error: unknown) => {
      this.#counting = undefined;
      throw error;
    });
    await settleWithin(this.#counting, { signal, timeoutMs }, services, {
      onTimeout: () =>
        new EtcdUnavailableError(
          `count down the latch "${this.latchName}"`,
          services.client.hosts.whyUnanswered(timeoutMs),
        ),
    });
  }

  async #count(): Promise<void> {
    const place = this.#place;
    // The latch was open when it enlisted.
    if (place === undefined) return;
    if (this.lease.over) throw this.lease.signal.reason as Error;
    const outcome = await this.lease.inFlight.track(this.count(place));
    if (outcome === "gone") {
      // The answer may be known before the end of the session is.
      await this.lease.renewNow();
      throw new LatchBrokenError(this.latchName, "crashed", this.lease.owner);
    }
    this.lease.waits.delete(this.#user);
    if (outcome === "reset") throw new LatchBrokenError(this.latchName, "reset");
  }

  leave(): Promise<void> {
    return (this.#leaving ??= this.#leave()
      .catch(() => undefined)
      .finally(() => this.lease.waits.delete(this.#user)));
  }

  async #leave(): Promise<void> {
    await this.#counting?.catch(() => undefined);
    if (this.#counting || !this.#place) return;
    const { round, id, revision } = this.#place;
    const key = this.keys.of("alive", round, id);
    const policy: CallPolicy = {
      ...this.lease.policy(`leave the latch "${this.latchName}"`),
      untilConfirmed: true,
    };
    const txn = {
      queues: [this.keys.queue],
      compare: [{ kind: "created at", key, revision }],
      success: [
        { kind: "delete", key },
        { kind: "delete", key: this.keys.of("enlisted", round, id) },
      ],
      failure: [],
    } as const;
    await this.lease.inFlight.track(this.lease.services.client.txn(txn, policy));
  }
}
