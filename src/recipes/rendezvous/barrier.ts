// A barrier: one key, that of the name itself, as Go's client puts it. While it is there, the barrier is closed.
//
//   key                               lease            there:
//   NAME                              none             held, until somebody releases it
//   NAME                              of the session   held with onCrash: "break", while the session lives
//   /leasehold/barrier/NAME//hold     none             beside the second one, from the same revision on: without it, its holder has died
//   /leasehold/barrier/NAME//by/ID    for ten minutes  the call of hold with this ID has closed it: an attempt that etcd executes later,
//                                                      or again, after somebody has released it, does not close it once more
import { BarrierBrokenError } from "../../errors.js";
import type { Compare, KeyValue, Operation, Txn } from "../../etcd/port.js";
import { checkName, checkWait } from "../../base/options/check.js";
import { settleWithin } from "../../base/util/settle.js";
import { BARRIERS, pathOf } from "../../keys.js";
import type { Asking } from "../../lock/queue/contenders.js";
import { type LeaseSource, leaseSourceOf, type SessionSource } from "../../lock/session/cluster.js";
import type { Dependent, Lease } from "../../lock/session/lease.js";
import { defaultOwner } from "../../lock/session/open-lease.js";
import type { WaitOptions } from "../../lock/session/session-options.js";
import { askBy } from "../../observe/inspect.js";
import { ATTEMPTS, checkOnCrash, ownerIn, timedOut, untilKeys, withLongLease } from "./await-keys.js";

const HOLD_TIMEOUT_MS = 5000;
const ON_CRASH = ["stay", "break"] as const;

/** Options of `Barrier.hold`. */
export interface HoldBarrierOptions extends WaitOptions {
  /**
   * What follows when the session of the source ends before somebody releases the barrier: "stay" keeps it closed until then, as Go's client and
   * Curator do; no session is used. "break" puts it on the session: those who wait get a BarrierBrokenError that names the holder, and so do
   * all others, until somebody calls `release()`. Another client that deletes the key breaks it, too. @default "stay"
   */
  readonly onCrash?: "stay" | "break" | undefined;
}

/** The two keys of a barrier. */
interface Found {
  readonly gate: KeyValue | undefined;
  readonly mark: KeyValue | undefined;
}

/**
 * A barrier that one process closes and any process opens: `wait()` resolves while nobody holds it, or when it is released. In the keys of
 * Go's `recipe.Barrier`, so that programs with either client meet in one barrier. It may be held again after a release.
 *
 * Its key is the name itself: a lock of that name does not meet it, and one of a name above, such as `a` above `a/b`, waits for it.
 */
export class Barrier {
  readonly #source: LeaseSource;
  readonly #queue: string;
  readonly #gate: string;
  readonly #mark: string;
  /** The session that this object holds it with is in use, though it has no lock. */
  readonly #user: Dependent = { sessionEnded: () => undefined };
  #lease: Lease | undefined;

  /** @throws {TypeError | RangeError} on bad arguments. */
  constructor(
    source: SessionSource,
    readonly name: string,
  ) {
    this.#source = leaseSourceOf(source);
    this.#gate = pathOf(this.#source.services, checkName(name));
    this.#queue = `${BARRIERS}${this.#gate}`;
    this.#mark = `${this.#queue}//hold`;
  }

  /**
   * Closes the barrier. Resolves with true if this call has closed it, and with false if it was closed. A call whose answer is lost closes
   * it once, also if somebody has released it meanwhile: for that, it leaves a key below `/leasehold/barrier/` for ten minutes. Costs a
   * request, and one more for a lease at most every 75 seconds. `timeoutMs` defaults to 5000. On abort: rejects at once with the signal's
   * reason; the barrier may be closed nevertheless.
   * @throws {BarrierBrokenError} if the last holder died, and nobody has called `release()` since.
   * @throws {EtcdUnavailableError} if etcd does not answer in time: it may be closed. @throws {EtcdRefusedError} if etcd rejects the request: after
   * a lost answer, it may be closed. @throws {SessionLostError | SessionClosedError} if the session is over, or the cluster closed.
   * @throws {TypeError | RangeError} on bad options.
   */
  async hold(options?: HoldBarrierOptions): Promise<boolean> {
    const { signal, timeoutMs } = checkWait("hold", options, ["onCrash"]);
    const breaks = checkOnCrash(options?.onCrash, ON_CRASH) === "break";
    const limits = { signal, timeoutMs: timeoutMs ?? HOLD_TIMEOUT_MS };
    const lease = breaks ? await this.#source.lease(limits) : undefined;
    lease?.assertOpen();
    const { clock } = this.#source.services;
    const holder = {
      owner: lease?.owner ?? defaultOwner(),
      since: clock.date().toISOString(),
      id: clock.randomId().toString(36),
    };
    return this.#ask("hold", { signal, timeoutMs }, (asking) => this.#hold(asking, lease, holder));
  }

  async #hold(
    { services, policy }: Asking,
    lease: Lease | undefined,
    { id, ...holder }: { readonly owner: string; readonly since: string; readonly id: string },
  ): Promise<boolean> {
    const keys = [this.#gate, this.#mark];
    const by = `${this.#queue}//by/${id}`;
    const value = JSON.stringify({ ...holder, id });
    const leaseId = lease?.leaseId ?? 0n;
    const mark: readonly Operation[] = lease ? [{ kind: "put", key: this.#mark, value, leaseId: 0n }] : [];
    const txn = (long: bigint): Txn => ({
      queues: [this.#queue],
      compare: [...keys, by].map((key) => ({ kind: "created at", key, revision: 0n })),
      success: [
        { kind: "put", key: this.#gate, value, leaseId },
        { kind: "put", key: by, value: "", leaseId: long },
        ...mark,
      ],
      failure: [...keys, by].map((key) => ({ kind: "range", key })),
    });
    const limits = { what: policy.what, signal: policy.signal ?? services.closed };
    const renew = lease && { renew: () => lease.renewNow() };
    let inDoubt = false;
    const onUnanswered = (): void => void (inDoubt = true);
    const answer = await withLongLease(services, ATTEMPTS, { ...limits, ...renew }, (long) =>
      services.client.txn(txn(long), { ...policy, onUnanswered }),
    ).catch((error: unknown) => {
      throw lease?.over ? lease.signal.reason : error;
    });
    if (answer.succeeded) return this.#held(lease);
    const [gate, broken, own] = answer.ranges.map((range) => range?.kvs[0]);
    // An attempt may still be on its way, or may have closed it after this answer.
    if (!own && inDoubt && !(await this.#renounces({ services, policy }, by))) return this.#held(lease);
    if (!gate && broken) throw this.#broken(broken);
    // With its own key, an attempt whose answer was lost has closed it; somebody may have released it since.
    return own ? this.#held(lease) : false;
  }

  /** From now on, no attempt that is still on its way closes it. false: one has. */
  async #renounces({ services, policy }: Asking, by: string): Promise<boolean> {
    const limits = { what: policy.what, signal: policy.signal ?? services.closed };
    const value = "renounced";
    const answer = await withLongLease(services, ATTEMPTS, limits, (leaseId) =>
      services.client.txn(
        {
          queues: [this.#queue],
          compare: [{ kind: "created at", key: by, revision: 0n }],
          success: [{ kind: "put", key: by, value, leaseId }],
          failure: [{ kind: "range", key: by }],
        },
        policy,
      ),
    );
    return answer.succeeded || answer.ranges[0]?.kvs[0]?.value === value;
  }

  /** @throws the end of the session, which may have come before the answer was read. */
  #held(lease: Lease | undefined): true {
    this.#unused();
    if (lease?.over) throw lease.signal.reason;
    this.#lease = lease;
    lease?.waits.add(this.#user);
    return true;
  }

  /** Somebody else may have released what it held with that session. */
  #unused(): void {
    this.#lease?.waits.delete(this.#user);
  }

  /**
   * Opens the barrier, whoever holds it, and lets those pass that wait. Of a barrier that a crash has broken, it ends that. Does nothing if
   * the barrier is open. Costs two requests. `timeoutMs` defaults to 5000. On abort: rejects at once with the signal's reason; it may
   * be open nevertheless. @throws as `hold`.
   */
  async release(options?: WaitOptions): Promise<void> {
    const wait = checkWait("release", options);
    await this.#ask("release", wait, async (asking) => {
      const { gate, mark } = await this.#read(asking);
      const there = gate ? { at: this.#gate, kv: gate } : mark && { at: this.#mark, kv: mark };
      if (!there) return this.#unused();
      // A repeated attempt, after an answer that was lost, must not open what somebody has closed since.
      const isOpened = await this.#open(asking, [
        { kind: "modified at", key: there.at, revision: there.kv.modRevision },
      ]);
      // Its holder may have died after the read: then the second key is left of it.
      if (!isOpened && gate && mark?.modRevision === gate.createRevision)
        await this.#open(asking, [
          { kind: "created at", key: this.#gate, revision: 0n },
          { kind: "modified at", key: this.#mark, revision: mark.modRevision },
        ]);
      this.#unused();
    });
  }

  /** false: it is no longer as it was. */
  async #open({ services: { client }, policy }: Asking, compare: readonly Compare[]): Promise<boolean> {
    const success = [this.#gate, this.#mark].map((key) => ({ kind: "delete", key }) as const);
    return (await client.txn({ queues: [this.#queue], compare, success, failure: [] }, policy)).succeeded;
  }

  /**
   * Resolves when nobody holds the barrier: at once if nobody does. Costs a read, and until the release one watch. Needs no session.
   * No limit of time by default. On abort: rejects at once with the signal's reason.
   * @throws {BarrierBrokenError} if the holder has died, by `hold({ onCrash: "break" })`. @throws {WaitTimeoutError} after `timeoutMs`.
   * @throws {EtcdUnavailableError} after `timeoutMs`, if etcd does not answer. @throws {EtcdRefusedError} if etcd rejects a request.
   * @throws {SessionClosedError} if the cluster is closed. @throws {TypeError | RangeError} on bad options.
   */
  async wait(options?: WaitOptions): Promise<void> {
    const wait = checkWait("wait", options);
    const { services } = this.#source;
    const { signal, timeoutMs } = wait;
    signal?.throwIfAborted();
    services.closed.throwIfAborted();
    const stop = new AbortController();
    const unlisten = services.aborts.add(services.closed, () => stop.abort(services.closed.reason));
    const what = `wait for the barrier "${this.name}"`;
    let holder: string | undefined;
    const missing = (): string => `it is still held${holder === undefined ? "" : ` by ${holder}`}`;
    const waiting = this.#wait({ services, policy: { what, signal: stop.signal } }, (gate) => {
      holder = ownerIn(gate);
    });
    try {
      await settleWithin(waiting, wait, services, {
        onTimeout: () => timedOut(services, { name: this.name, what, timeoutMs: timeoutMs ?? 0 }, missing()),
        onGiveUp: () => stop.abort(),
      });
    } finally {
      unlisten();
    }
  }

  /** Until the hold ends that is there now. */
  async #wait(asking: Asking, held: (gate: Pick<KeyValue, "value">) => void): Promise<void> {
    const { services, policy } = asking;
    const { gate, mark } = await this.#read(asking);
    if (!gate && mark) throw this.#broken(mark);
    if (!gate) return;
    held(gate);
    const range = { key: this.#gate, end: `${this.#gate}\0` };
    const ends = policy.signal ? [policy.signal] : [];
    const key = Buffer.from(this.#gate).toString("latin1");
    await untilKeys<void>(
      { services, range, name: this.name, what: policy.what, ends },
      ({ keys }, { resolve }) => {
        if (keys.get(key)?.createRevision !== gate.createRevision) resolve();
      },
      { signal: undefined, timeoutMs: undefined },
      { missing: () => "" },
    );
    const after = (await this.#read(asking)).mark;
    if (after?.modRevision === gate.createRevision) throw this.#broken(after);
  }

  async #read({ services: { client }, policy }: Asking): Promise<Found> {
    const { ranges } = await client.ranges([{ key: this.#gate }, { key: this.#mark }], policy);
    const [gate, mark] = ranges.map(({ kvs }) => kvs[0]);
    return { gate, mark };
  }

  #broken(mark: KeyValue): BarrierBrokenError {
    return new BarrierBrokenError(
      this.name,
      "hold",
      [ownerIn(mark)],
      ". Call release() when others may pass",
    );
  }

  #ask<T>(
    call: string,
    wait: Parameters<typeof askBy>[1]["wait"],
    run: (asking: Asking) => Promise<T>,
  ): Promise<T> {
    return askBy(this.#source.services, { what: `${call} the barrier "${this.name}"`, wait }, run);
  }
}
