import { LockLostError, TransferError } from "../../errors.js";
import type { Txn, TxnAnswer } from "../../etcd/port.js";
import { ExclusiveHoldHandle, type Lock } from "../../lock/hold/hold.js";
import { pathOf } from "../../keys.js";
import { checkValue, checkWait } from "../../base/options/check.js";
import type { JoinedEntry } from "../../lock/queue/entry.js";
import type { Queue } from "../../lock/queue/queue.js";
import type { Lease } from "../../lock/session/lease.js";
import type { WaitOptions } from "../../lock/session/session-options.js";
import { electionChannel } from "../../base/telemetry/channels.js";
import type { ElectionMessage } from "../../base/telemetry/messages.js";
import { withJson } from "../../base/telemetry/publish.js";
import {
  checkTarget,
  type ElectionCandidate,
  type QueuedKey,
  readQueue,
  type TransferTarget,
} from "./candidates.js";
import { type CheckedHealth, HealthWatch } from "./health.js";
import { HandOver, nextOf, type Place } from "./transfer.js";

/** What all events of a candidate have in common. */
export type Candidate = Pick<ElectionMessage, "hosts" | "name" | "label" | "owner">;
type Event = Pick<ElectionMessage, "state"> & Partial<ElectionMessage>;

const NOTHING = { fence: undefined, error: undefined, delayMs: undefined };

/** Publishes what happened to a candidate. */
export function publishElection(candidate: Candidate, event: Event): void {
  if (!electionChannel.hasSubscribers) return;
  electionChannel.publish(withJson({ ...NOTHING, ...candidate, ...event }));
}

/** Publishes the beginning of a leadership term, and its end. */
export function publishTerm(candidate: Candidate, leadership: LeadershipHandle): void {
  const { fence, signal } = leadership;
  publishElection(candidate, { state: "elected", fence });
  const ended = (): void => {
    const error = signal.reason as Error & { readonly code: string };
    if (error.code === "LOCK_RELEASED") publishElection(candidate, { state: "resigned", fence });
    else if (leadership.explained) void leadership.explained.then(() => lost(error));
    else lost(error);
  };
  const lost = (error: Error): void => publishElection(candidate, { state: "lost", fence, error });
  if (signal.aborted) ended();
  else signal.addEventListener("abort", ended, { once: true });
}

/** A leadership term: an exclusive hold of the election's name, with a value that other clients read. */
export interface Leadership extends Lock {
  /**
   * Publishes another value to all observers, under the same key and fence. Calls are sent one at a time, in order.
   * Resolves when etcd has stored the value; retries for as long as this candidate leads, however long etcd is away.
   * @throws {LockLostError | LockReleasedError} if this candidate no longer leads.
   * @throws {EtcdRefusedError} if etcd rejects the request.
   * @throws {TypeError | RangeError} if `value` is not a well-formed string of at most 65536 bytes.
   */
  proclaim(value: string): Promise<void>;
  /** The same as `release()`, under the name that elections use: a leadership ends as every hold does. */
  resign(): Promise<void>;
  /**
   * Resigns so that the candidate `to` is the next leader: that of `candidates()`, or the first one whose session has this `owner`. First, it
   * checks that this candidate waits and can be handed over to; only then does the leadership end, as by `resign()`. Candidates that wait before
   * `to` move to the end of the queue, in any order. They can, and `to` can be named, if their campaigns are `transferable`. In this turn,
   * `to` leads whatever the `priority` of others and its `eligible` say, unless its lease has a key that the leader's user may not write
   * (etcd 3.6 or later).
   *
   * With `campaign`, it resolves when etcd has confirmed the hand-over, so call it when your work has stopped. Under `lead`, `signal` aborts, and
   * it resolves at once, so work may await it, and a `resign()` after it: the hand-over follows when the work has ended, and not before. What
   * the work throws then because of the signal is ignored, and `lead` campaigns again after a pause.
   *
   * A candidate whose process has died counts as one that waits until its lease expires. The next one in the queue leads if `to` leaves between
   * the check and the hand-over, or if etcd rejects the hand-over; under `lead`, no call reports either. A `--max-txn-ops` below etcd's default
   * is too low for a long queue. Costs two requests; more than 40 candidates before `to` are moved by several transactions, the leader's own
   * key with the last ones.
   *
   * On abort, `timeoutMs` (default 5000): both limit the check, and nothing has changed then.
   * @throws {TransferError} if there is no such candidate, or the leader can't hand over to it: the leadership goes on, unless
   * `resigned` of the error is true.
   * @throws {LockLostError | LockReleasedError} if this candidate no longer leads.
   * @throws {EtcdUnavailableError} if etcd does not answer the check in time.
   * @throws {EtcdRefusedError} if etcd rejects it, or the hand-over: the leader has resigned then, and the next candidate leads.
   * @throws {TypeError | RangeError} on bad arguments.
   */
  transfer(to: TransferTarget, options?: WaitOptions): Promise<void>;
  /**
   * Tells `lead` that the work goes on: see `LeadOptions.withinMs`. A call after the limit comes too late, and finds the term ended. Without
   * that option it does nothing.
   */
  heartbeat(): void;
}

export class LeadershipHandle extends ExclusiveHoldHandle implements Leadership {
  readonly #lease: Lease;
  /** Modification revision of the key, as last seen by this process. */
  #modified: bigint;
  #proclaiming: Promise<unknown> = Promise.resolve();
  #health: HealthWatch | undefined;
  /** Of `lead`: its work runs. */
  #work: { readonly ended: Promise<void>; readonly end: () => void } | undefined;
  #transferred = false;

  constructor(queue: Queue, entry: JoinedEntry, watched: boolean) {
    super(queue, entry, watched);
    this.#lease = queue.lease;
    this.#modified = this.revision;
  }

  async proclaim(value: string): Promise<void> {
    checkValue("value", value);
    const proclaimed = this.#proclaiming.then(() => this.#proclaim(value));
    this.#proclaiming = proclaimed.catch(() => undefined);
    return proclaimed;
  }

  protected override get title(): string {
    return "Leadership";
  }

  resign(): Promise<void> {
    return this.release();
  }

  /** Under `lead`, a hand-over waits for the end of the work, which would wait for itself if it awaited this. */
  override release(): Promise<void> {
    const released = super.release();
    return this.#transferred && this.#work ? Promise.resolve() : released;
  }

  async transfer(to: TransferTarget, options?: WaitOptions): Promise<void> {
    const target = checkTarget(to);
    const wait = checkWait("transfer", options);
    const place = this.#place;
    this.#assertLeads();
    const { services } = this.#lease;
    const what = `read the candidates of "${this.name}"`;
    const policy = { ...this.#lease.policy(what), signal: this.signal };
    const reading = readQueue(services, place.path, { what, policy, wait });
    const queue = await reading.finally(() => this.#assertLeads());
    const choose = (found: readonly QueuedKey[]) => nextOf(place, found, target);
    const next = choose(queue);
    const workEnded = this.#work?.ended;
    const handOver = new HandOver(services, place, { next, choose, chosen: true, workEnded });
    this.#transferred = true;
    const released = this.releaseBy(handOver.by);
    if (workEnded) return;
    await released;
    const { failure } = handOver;
    if (failure) throw failure instanceof TransferError ? failure.afterResignation() : failure;
  }

  /** A candidate whose turn has come makes room for another one, before its caller hears of it. */
  async yieldTo(to: ElectionCandidate, queue: readonly QueuedKey[]): Promise<void> {
    const choose = (found: readonly QueuedKey[]) => nextOf(this.#place, found, to);
    const how = { next: choose(queue), choose };
    await this.releaseBy(new HandOver(this.#lease.services, this.#place, how).by);
  }

  /** The term has been handed over to another candidate, or is about to be. */
  get transferred(): boolean {
    return this.#transferred;
  }

  get #place(): Place {
    const { name, key, revision } = this;
    return { name, key, revision, path: pathOf(this.#lease.services, name) };
  }

  #assertLeads(): void {
    this.refresh();
    this.signal.throwIfAborted();
  }

  heartbeat(): void {
    this.#health?.beat();
  }

  /** A transfer waits for the end of this work. */
  workBegins(): void {
    let end = (): void => {};
    const ended = new Promise<void>((resolve) => (end = resolve));
    this.#work = { ended, end };
  }

  workEnded(): void {
    this.#ignoreHealth();
    this.#work?.end();
    this.#work = undefined;
  }

  /** Ends the term when its work is not healthy: the signal aborts, and after a grace the key is deleted. */
  watchHealth(options: CheckedHealth): void {
    const failed = (reason: Error): void => {
      // Both deadlines may have passed while the process stood still: that of the lease is told, whatever looks first.
      this.refresh();
      if (this.end) return;
      this.giveUp(new LockLostError(this.name, this.key, "unhealthy", reason));
      this.releaseAfter(options.graceMs);
    };
    this.limits = this.#health = new HealthWatch(options, this.#lease.services.clock, { failed });
  }

  /** The work has ended: too late, if its limit has passed. */
  #ignoreHealth(): void {
    this.#health?.refresh();
    this.#health?.stop();
  }

  async #proclaim(value: string): Promise<void> {
    for (;;) {
      const { succeeded, header, ranges } = await this.#put(value);
      const own = ranges[0]?.kvs[0];
      if (!succeeded && own?.createRevision !== this.revision) {
        this.keyDeleted();
        await this.explained;
        throw this.signal.reason as Error;
      }
      // Not succeeded: another client wrote the key, or an unanswered attempt of ours was executed.
      this.#modified = own?.modRevision ?? header.revision;
      if (succeeded || own?.value === value) return;
    }
  }

  async #put(value: string): Promise<TxnAnswer> {
    this.refresh();
    this.signal.throwIfAborted();
    const what = `proclaim a value as leader of "${this.name}"`;
    try {
      const policy = { ...this.#lease.policy(what), signal: this.signal };
      return await this.#lease.services.client.txn(this.#putTxn(value), policy);
    } catch (error) {
      this.signal.throwIfAborted();
      throw error;
    }
  }

  /**
   * An unanswered attempt may still be executed later. The create revision protects a later holder's key from it; the
   * modification revision protects values that were proclaimed since.
   */
  #putTxn(value: string): Txn {
    const { key, revision } = this;
    return {
      queues: [pathOf(this.#lease.services, this.name)],
      compare: [
        { kind: "created at", key, revision },
        { kind: "modified at", key, revision: this.#modified },
      ],
      success: [{ kind: "put", key, value, leaseId: this.#lease.leaseId }],
      failure: [{ kind: "range", key }],
    };
  }
}
