import { DeadlockError, EtcdUnavailableError, LockLostError, TransferError } from "../../errors.js";
import type { KeyValue, Range, Txn, TxnAnswer } from "../../etcd/port.js";
import type { CallPolicy } from "../../etcd/retry.js";
import { acquire, holdOf, inQueue, type JoinTarget, timeBudget } from "../../lock/hold/acquire.js";
import { traceAcquire } from "../../lock/hold/events.js";
import { ExclusiveHoldHandle, type Lock } from "../../lock/hold/hold.js";
import { delayedBy, pathOf } from "../../keys.js";
import {
  type CheckedWait,
  checkName,
  checkOptions,
  checkSignal,
  checkValue,
  checkWait,
} from "../../base/options/check.js";
import {
  type CheckedLock,
  type CheckedQueueWait,
  checkLock,
  checkQueueWait,
} from "../../base/options/lock.js";
import type { JoinedEntry } from "../../lock/queue/entry.js";
import { queueRange } from "../../lock/queue/lock-mode.js";
import type { Queue } from "../../lock/queue/queue.js";
import { type LeaseSource, leaseSourceOf, type SessionSource } from "../../lock/session/cluster.js";
import type { EtcdServices } from "../../lock/session/connection.js";
import type { Lease } from "../../lock/session/lease.js";
import type { LockOptions, QueueWaitOptions, WaitOptions } from "../../lock/session/session-options.js";
import { acquireChannel, electionChannel } from "../../base/telemetry/channels.js";
import type { ElectionMessage } from "../../base/telemetry/messages.js";
import { withJson } from "../../base/telemetry/publish.js";
import { atCaller, withCallersStack } from "../../base/util/own-context.js";
import { settleWithin } from "../../base/util/settle.js";
import { Feed, QueueWatch } from "../../observe/queue-watch.js";
import {
  CANDIDATE_OPTIONS,
  type CandidateOptions,
  candidateRanges,
  checkCandidateOptions,
  type CheckedCandidate,
  checkTarget,
  type ElectionCandidate,
  isCandidate,
  type QueuedKey,
  queuedKeys,
  type TransferTarget,
} from "./candidates.js";
import { type CheckedHealth, HealthWatch } from "./health.js";
import { HandOver, nextOf, type Place, preferred } from "./transfer.js";

/** The leader of an election, as every client reads it. */
export interface Leader {
  readonly key: string;
  /** The value that it campaigned with or last proclaimed. */
  readonly value: string;
  /** Create revision of `key`, which strictly increases from leader to leader: the `revision` and `fence` of its Leadership. */
  readonly fence: bigint;
  /** Modification revision of `key`: increases with each `proclaim`. */
  readonly modRevision: bigint;
  readonly leaseId: bigint;
  /** bigints as decimal strings. */
  toJSON(): Readonly<Record<"key" | "value" | "fence" | "modRevision" | "leaseId", string>>;
}

/** All candidates, leading or waiting, in the order of their turns. */
const candidates = (path: string): Range => ({ ...queueRange(path), order: "oldest first" });

/** The leader, given the two oldest keys under the name: the older one may be the delay key of the other. */
function leaderOf(path: string, [first, second]: readonly (KeyValue | undefined)[]): Leader | undefined {
  const oldest = first && second && isDelayOf(first, second) ? second : first;
  if (oldest === undefined) return undefined;
  const key = oldest.key.toString();
  const { value, createRevision, modRevision, leaseId } = oldest;
  // The entry of a lock under the name of the election, or one of a name below this one: while it is first, there is no leader.
  if (!isCandidate(path, key, value)) return undefined;
  const leader = { key, value, fence: createRevision, modRevision, leaseId };
  const toJSON = (): ReturnType<Leader["toJSON"]> => ({
    key,
    value,
    fence: createRevision.toString(),
    modRevision: modRevision.toString(),
    leaseId: leaseId.toString(),
  });
  // Not enumerable, so that logs and comparisons see only the data.
  return Object.defineProperty(leader, "toJSON", { value: toJSON }) as Leader;
}

const isDelayOf = (delay: KeyValue, { key, createRevision }: KeyValue): boolean =>
  delay.createRevision === createRevision && delayedBy(delay.key.toString()) === key.toString();

/** Only the delay key of a leader that has crashed is left, with the value that it campaigned with. */
const isDelayOfLeader = ({ key, fence }: Leader, last: Leader | undefined): boolean =>
  fence === last?.fence && delayedBy(key) === last.key;

/** Whether both are the same leader with the same proclamation, or both are vacancies. */
export const sameLeader = (a: Leader | undefined, b: Leader | undefined): boolean =>
  a?.key === b?.key && a?.modRevision === b?.modRevision;

/** A consumer that has stopped reading must not fill the memory: of more unread items, the oldest are dropped. */
const MAX_UNREAD = 1000;

/** The iterator of `observe()`. Starts with the first `next()`. */
export class Observation extends Feed<Leader | undefined> {
  constructor(services: EtcdServices, name: string, signal: AbortSignal | undefined) {
    const what = `observe the election "${name}"`;
    const path = pathOf(services, name);
    let last: Leader | undefined;
    super({
      services,
      signal,
      maxUnread: MAX_UNREAD,
      same: sameLeader,
      start: ({ item, failed }) =>
        new QueueWatch<KeyValue>(
          { services, range: queueRange(path), what, keep: (kv) => kv },
          {
            changed: ({ keys }) => {
              const [first, second] = keys.values();
              const leader = leaderOf(path, [first, second]);
              if (!leader || !isDelayOfLeader(leader, last)) last = leader;
              item(last);
            },
            failed,
          },
        ),
    });
  }
}

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
function publishTerm(candidate: Candidate, leadership: LeadershipHandle): void {
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
   * `to` move to the end of the queue. They can, and `to` can be named, if their campaigns are `transferable`.
   *
   * With `campaign`, it resolves when etcd has confirmed the hand-over, so call it when your work has stopped. Under `lead`, `signal` aborts, and
   * it resolves at once, so work may await it: the hand-over follows when the work has ended, and not before. What the work throws
   * then because of the signal is ignored, and `lead` campaigns again after a pause.
   *
   * A candidate whose process has died counts as one that waits until its lease expires.
   *
   * On abort, `timeoutMs` (default 5000): both limit the check, and nothing has changed then.
   * @throws {TransferError} if there is no such candidate, or the leader can't hand over to it: the leadership goes on, unless
   * `resigned` of the error is true.
   * @throws {LockLostError | LockReleasedError} if this candidate no longer leads.
   * @throws {EtcdUnavailableError} if etcd does not answer the check in time.
   * @throws {EtcdRefusedError} if etcd rejects it.
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
    const handOver = new HandOver(services, place, { next, choose, workEnded });
    this.#transferred = true;
    const released = this.releaseBy(handOver.by);
    if (workEnded) return;
    await released;
    if (handOver.failure instanceof TransferError) throw handOver.failure.afterResignation();
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

/** A campaign, with the value that it puts. */
interface CampaignTarget extends JoinTarget {
  readonly value: string;
  readonly candidate: CheckedCandidate | undefined;
}

interface Campaign {
  readonly target: CampaignTarget;
  readonly wait: CheckedQueueWait;
  /** What is left of the time limit. */
  readonly left: () => number | undefined;
}

const AS_LEADER = {
  ...inQueue,
  made: (entry: JoinedEntry) => ({ entry, leadership: holdOf(entry, LeadershipHandle, true) }),
};

/** Default `timeoutMs` of `leader()`, and of other reads. */
const READ_TIMEOUT_MS = 5000;

/** The queue of an election, oldest first. */
async function readQueue(
  services: EtcdServices,
  path: string,
  { what, policy, wait }: { readonly what: string; readonly policy: CallPolicy; readonly wait: CheckedWait },
): Promise<readonly QueuedKey[]> {
  const { client } = services;
  const { signal, timeoutMs = READ_TIMEOUT_MS } = wait;
  const limits = { giveUpMs: timeoutMs, limitIsGiven: wait.timeoutMs !== undefined };
  const reading = client.ranges(candidateRanges(path), { ...policy, ...limits });
  const settled = settleWithin(reading, { signal, timeoutMs }, services, {
    onTimeout: () => new EtcdUnavailableError(what, client.hosts.whyUnanswered(timeoutMs)),
  });
  const { ranges } = await atCaller(settled);
  return queuedKeys(path, ranges);
}

/**
 * Leader election: one leader at a time among all processes and languages that use the same name on the same etcd. The
 * other candidates wait in order. An object is one candidate, or an observer; it holds no connection and needs no closing.
 */
export class Election {
  readonly name: string;
  readonly #source: LeaseSource;
  readonly #options: CheckedLock;
  #candidate: LeadershipHandle | "waiting" | undefined;

  /**
   * @throws {TypeError | RangeError} if `source` is not a Cluster or Session, or `name` is not 1..1024 bytes of
   * well-formed Unicode without "/" at its ends and without "//", and on invalid options.
   */
  constructor(source: SessionSource, name: string, options?: Pick<LockOptions, "label">) {
    this.#source = leaseSourceOf(source);
    this.name = checkName(name);
    const { label } = checkOptions("Election", options, ["label"]);
    this.#options = checkLock("Election", { label });
  }

  /**
   * Waits for its turn, then leads until it resigns or the session ends. `value`, at most 65536 bytes, is what other
   * clients read about this candidate. With a session of `Session.adopt`, it takes over the entry that the session has in the queue, with its key and fence,
   * and with what that one said of itself.
   *
   * On abort and throws: as `Mutex.lock`, with another reason for a DeadlockError.
   * @throws {DeadlockError} if this object is already waiting or leading; to publish another value, call `proclaim`.
   */
  async campaign(value: string, options?: QueueWaitOptions & CandidateOptions): Promise<Leadership> {
    checkValue("value", value);
    const also = CANDIDATE_OPTIONS;
    const wait = checkQueueWait(options, { where: "campaign", also, source: this.#source });
    const candidate = checkCandidateOptions(options);
    const target = {
      source: this.#source,
      kind: "leadership",
      name: this.name,
      options: this.#options,
      value,
      candidate,
      about: candidate?.about,
    } as const;
    if (!acquireChannel.hasSubscribers) return this.#run(target, wait);
    const call = { tries: false, signal: wait.signal };
    return traceAcquire(target, call, (traced) => this.#run(traced, wait));
  }

  async #run(target: CampaignTarget, wait: CheckedQueueWait): Promise<LeadershipHandle> {
    if (this.#busy) throw new DeadlockError(this.name, alreadyCandidate(this.name));
    this.#candidate = "waiting";
    if (electionChannel.hasSubscribers) publishElection(this.#event(undefined), { state: "campaigning" });
    try {
      return (this.#candidate = await this.#campaign(target, wait));
    } catch (error) {
      this.#candidate = undefined;
      throw error;
    }
  }

  /**
   * Returns the current leader; undefined if there is none, or if the first entry is that of a lock. The read is linearizable and
   * needs no session. `timeoutMs` defaults to 5000.
   *
   * On abort: rejects at once with the signal's own reason.
   * @throws {EtcdUnavailableError} if etcd does not answer in time.
   * @throws {EtcdRefusedError} if etcd rejects the request.
   * @throws {SessionClosedError} if the cluster is closed.
   * @throws {TypeError | RangeError} on bad options.
   */
  async leader(options?: WaitOptions): Promise<Leader | undefined> {
    const { signal, timeoutMs: given } = checkWait("leader", options);
    const timeoutMs = given ?? READ_TIMEOUT_MS;
    const { services } = this.#source;
    const { client, closed } = services;
    closed.throwIfAborted();
    const what = `ask for the leader of "${this.name}"`;
    const path = pathOf(services, this.name);
    const range = { ...candidates(path), limit: 2 };
    const policy = { what, giveUpMs: timeoutMs, limitIsGiven: given !== undefined, signal: closed };
    const reading = client.range(range, policy);
    const settled = settleWithin(reading, { signal, timeoutMs }, services, {
      onTimeout: () => new EtcdUnavailableError(what, client.hosts.whyUnanswered(timeoutMs)),
    });
    const { kvs } = await atCaller(settled);
    return leaderOf(path, kvs);
  }

  /**
   * Returns all candidates, the leader first, in the order of the queue, at most the 1000 oldest. Needs no session. `timeoutMs`
   * defaults to 5000. Whoever reads needs the right to read what candidates say of themselves: docs/operations.md.
   *
   * On abort and throws: as `leader`.
   */
  async candidates(options?: WaitOptions): Promise<readonly ElectionCandidate[]> {
    const wait = checkWait("candidates", options);
    const { services } = this.#source;
    const { closed } = services;
    closed.throwIfAborted();
    const what = `read the candidates of "${this.name}"`;
    const policy = { what, signal: closed };
    const queue = await readQueue(services, pathOf(services, this.name), { what, policy, wait });
    return queue.filter(({ isForeign }) => !isForeign).map(({ candidate }) => candidate);
  }

  /**
   * Yields the current leader, then every change of leader or value, in order; undefined means that there is no leader.
   * It starts with the first `next()`, needs no session, and continues through outages of etcd: changes during an outage
   * follow after it, one by one. Changes that etcd has compacted, or lost in a restore from a backup, are collapsed into
   * the latest state. The last 1000 unread items are kept. Leave the loop to stop.
   * On abort, or when the cluster is closed, the loop throws the reason.
   * @throws {EtcdRefusedError} from the loop, if etcd rejects the request.
   * @throws {TypeError | RangeError} at once, on bad options.
   */
  observe(options?: {
    readonly signal?: AbortSignal | undefined;
  }): AsyncIterableIterator<Leader | undefined> {
    const { signal } = checkOptions("observe", options, ["signal"]);
    return new Observation(this.#source.services, this.name, checkSignal(signal));
  }

  get #busy(): boolean {
    const candidate = this.#candidate;
    if (candidate === undefined || candidate === "waiting") return candidate === "waiting";
    candidate.refresh();
    return !candidate.signal.aborted;
  }

  async #campaign(target: CampaignTarget, wait: CheckedQueueWait): Promise<LeadershipHandle> {
    const left = timeBudget(this.#source.services.clock, wait.timeoutMs);
    /** The leases to which it has handed over. */
    const tried = new Set<bigint>();
    for (;;) {
      const limited = tried.size === 0 ? wait : { ...wait, timeoutMs: left() };
      const { entry, leadership } = await acquire(target, limited, AS_LEADER);
      if (await this.#yields(entry, leadership, { target, wait, left, tried })) continue;
      return this.#begin(entry, leadership, { target, wait, left });
    }
  }

  /** A candidate of a term that goes on, in an adopted session, does not hand over. */
  async #yields(
    entry: JoinedEntry,
    leadership: LeadershipHandle,
    { target, wait, left, tried }: Campaign & { readonly tried: Set<bigint> },
  ): Promise<boolean> {
    const { candidate } = target;
    if (!candidate || entry.adopted) return false;
    const { name, path, key, revision } = entry;
    const { services } = this.#source;
    const what = `read the candidates of "${name}"`;
    const policy = { ...entry.lease.policy(what), signal: leadership.signal };
    try {
      // Without a limit of its own, the campaign waits for etcd as long as the session lives.
      const limits = { signal: wait.signal, timeoutMs: left() ?? entry.lease.ttlMs };
      const queue = await readQueue(services, path, { what, policy, wait: limits });
      const { eligible } = candidate;
      const best = preferred({ name, path, key, revision }, queue, { eligible, tried });
      if (!best) return false;
      tried.add(best.leaseId);
      // If the key, or the session, was lost meanwhile, to join again is what follows, too.
      await leadership.yieldTo(best, queue).catch(() => undefined);
      return true;
    } catch (error) {
      // As if it were lost a moment later: the leadership tells.
      if (leadership.signal.aborted) return false;
      void leadership.resign();
      throw withCallersStack(error);
    }
  }

  async #begin(
    entry: JoinedEntry,
    leadership: LeadershipHandle,
    { target, wait, left }: Campaign,
  ): Promise<LeadershipHandle> {
    const { value } = target;
    try {
      // An adopted entry still has the value of its last candidate.
      if (entry.value !== value) await this.#within(wait, left(), leadership.proclaim(value));
      leadership.started(target);
      if (electionChannel.hasSubscribers) publishTerm(this.#event(entry.lease.owner), leadership);
      return leadership;
    } catch (error) {
      void leadership.resign();
      throw withCallersStack(error);
    }
  }

  #event(owner: string | undefined): Candidate {
    const { hosts } = this.#source.services.options;
    return { hosts, name: this.name, label: this.#options.label, owner };
  }

  /** `leftMs` is what earlier steps have left of the time limit. */
  #within(
    { signal, timeoutMs = 0 }: CheckedWait,
    leftMs: number | undefined,
    call: Promise<void>,
  ): Promise<void> {
    const { services } = this.#source;
    const what = `proclaim a value as leader of "${this.name}" within ${timeoutMs} ms`;
    const onTimeout = (): Error =>
      new EtcdUnavailableError(what, services.client.hosts.whyUnanswered(leftMs));
    return settleWithin(call, { signal, timeoutMs: leftMs }, services, { onTimeout });
  }
}

const alreadyCandidate = (name: string): string =>
  `This candidate of the election "${name}" waits or leads already; ` +
  `use proclaim to publish another value, or another Election for another candidate`;
