// The public count-down latch. Its keys and their transactions are in latch-store.ts, what a wait sees of them in latch-wait.ts.
import { EtcdUnavailableError, WaitTimeoutError } from "../../errors.js";
import {
  checkInteger,
  checkName,
  checkOptions,
  checkShown,
  checkWait,
  type CheckedWait,
  rangeError,
} from "../../base/options/check.js";
import { settleWithin } from "../../base/util/settle.js";
import type { Asking } from "../../lock/queue/contenders.js";
import { type LeaseSource, leaseSourceOf, type SessionSource } from "../../lock/session/cluster.js";
import { defaultOwner } from "../../lock/session/open-lease.js";
import type { WaitOptions } from "../../lock/session/session-options.js";
import { askBy } from "../../observe/inspect.js";
import { checkOnCrash, REJECT_OR_CONTINUE, timedOut, untilKeys } from "./await-keys.js";
import { Counter, type LatchCounter } from "./counter.js";
import { LatchStore, MAX_COUNT, newId, valueOf } from "./latch-store.js";
import { LatchState } from "./latch-wait.js";

export type { LatchCounter } from "./counter.js";

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
  readonly #latch: LatchStore;

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
    checkName(name);
    if (count === undefined) throw new TypeError("Expected count to be a number, got undefined");
    this.total = checkInteger("count", count, { min: 1, max: MAX_COUNT, fallback: NaN });
    const { ttlMs } = checkOptions("CountDownLatch", options, ["ttlMs"]);
    const limits = { min: MIN_TTL_MS, max: 366 * DAY_MS, fallback: DEFAULT_TTL_MS };
    const checkedMs = checkInteger("ttlMs", ttlMs, limits);
    this.#latch = new LatchStore(this.#source.services, name, this.total, checkedMs);
  }

  /** How many counts open it. */
  readonly total: number;

  /**
   * Counts one. Does nothing if the latch is open. Resolves when etcd has stored the count. `timeoutMs` defaults to 5000.
   *
   * On abort: rejects at once with the signal's reason. The count may have been stored then, as after an EtcdUnavailableError, or an
   * EtcdRefusedError that follows a lost answer: with an `id`, the call can be repeated.
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
    const counted = given === undefined ? newId(this.#source.services) : `=${encodeURIComponent(given)}`;
    const value = valueOf(defaultOwner(), this.#source.services);
    await this.#ask("countDown", wait, (asking) =>
      this.#latch.write(asking, undefined, (round) => ({
        puts: [{ key: this.#latch.keys.of("counted", round, counted), value }],
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
    const state = new LatchState(this.#latch, onCrash === "reject");
    const reading = new AbortController();
    const ending = [services.aborts.add(services.closed, () => reading.abort(services.closed.reason))];
    const start = services.clock.monotonic();
    try {
      const policy = { what, signal: reading.signal };
      const onTimeout = (): Error =>
        timedOut(services, { name: this.name, what, timeoutMs: timeoutMs ?? 0 }, state.missing());
      const onGiveUp = (): void => reading.abort();
      const handlers = { onTimeout, onGiveUp };
      if ((await settleWithin(this.#latch.left({ services, policy }), wait, services, handlers)) === 0)
        return;
    } finally {
      for (const stop of ending) stop();
    }
    const left =
      timeoutMs === undefined ? undefined : Math.max(1, timeoutMs - (services.clock.monotonic() - start));
    await untilKeys<void>(
      { services, range: this.#latch.keys.range, name: this.name, what, ends: [services.closed] },
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
    return this.#ask("count", wait, (asking) => this.#latch.left(asking));
  }

  /**
   * Registers a counter with those who wait, on the session of the source. If that session ends before the counter has counted or left, they
   * are told, as they have chosen by `onCrash`: a crash neither counts nor lets them wait for ever. More may be enlisted than the latch counts. In a latch that is
   * open, nothing is registered. `timeoutMs` defaults to 10000.
   *
   * On abort: rejects at once with the signal's reason. Whatever it rejects with, the counter leaves in the background.
   * @throws {SessionLostError | SessionClosedError} if the session is over. @throws as `countDown`.
   */
  async enlist(options?: WaitOptions): Promise<LatchCounter> {
    const { signal, timeoutMs = ENLIST_TIMEOUT_MS } = checkWait("enlist", options);
    signal?.throwIfAborted();
    const lease = await this.#source.lease({ signal, timeoutMs });
    lease.assertOpen();
    const counter = new Counter(this.#latch, lease);
    const id = newId(this.#source.services);
    const { services } = lease;
    const what = `enlist a counter of the latch "${this.name}"`;
    const onUnanswered = (): void => counter.isInDoubt();
    const policy = { ...lease.policy(what), onLeaseGone: undefined, onUnanswered };
    const value = valueOf(lease.owner, lease.services);
    const enlisting = this.#latch
      .write({ services, policy }, lease, (round) => ({
        puts: [
          { key: this.#latch.keys.of("enlisted", round, id), value },
          { key: this.#latch.keys.of("alive", round, id), value, leaseId: lease.leaseId },
        ],
        counts: false,
        unless: (["enlisted", "counted", "left"] as const).map((part) =>
          this.#latch.keys.of(part, round, id),
        ),
        tried: (leaseId) => counter.mayBeAt({ round, leaseId, id }),
      }))
      .then(({ at }) => counter.enlisted(at));
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
    await this.#ask("reset", wait, (asking) => this.#latch.reset(asking));
  }

  #ask<T>(call: string, wait: CheckedWait, run: (asking: Asking) => Promise<T>): Promise<T> {
    return askBy(this.#source.services, { what: `${call} of the latch "${this.name}"`, wait }, run);
  }
}
