import { DeadlockError, EtcdUnavailableError } from "../../errors.js";
import { acquire, holdOf, inQueue, type JoinTarget, timeBudget } from "../../lock/hold/acquire.js";
import { traceAcquire } from "../../lock/hold/events.js";
import { pathOf } from "../../keys.js";
import { checkName, checkOptions, checkSignal, checkValue, checkWait } from "../../base/options/check.js";
import {
  type CheckedLock,
  type CheckedQueueWait,
  checkLock,
  checkQueueWait,
} from "../../base/options/lock.js";
import type { JoinedEntry } from "../../lock/queue/entry.js";
import { type LeaseSource, leaseSourceOf, type SessionSource } from "../../lock/session/cluster.js";
import type { LockOptions, QueueWaitOptions, WaitOptions } from "../../lock/session/session-options.js";
import { acquireChannel, electionChannel } from "../../base/telemetry/channels.js";
import { atCaller, inOwnContext, withCallersStack } from "../../base/util/own-context.js";
import { settleWithin } from "../../base/util/settle.js";
import {
  CANDIDATE_OPTIONS,
  type CandidateOptions,
  checkCandidateOptions,
  type CheckedCandidate,
  type ElectionCandidate,
  READ_TIMEOUT_MS,
  readQueue,
} from "./candidates.js";
import { type Leader, leaderOf, leaderRange, Observation } from "./leader.js";
import {
  type Candidate,
  type Leadership,
  LeadershipHandle,
  publishElection,
  publishTerm,
} from "./leadership.js";
import { preferred } from "./transfer.js";

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
   * and with what that one said of itself. Without other candidates, the call costs a transaction, a watch of its own key and a read.
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
   * Returns the current leader; undefined if there is none, or if the first entry is that of a lock. The call is one read, which is
   * linearizable and needs no session. `timeoutMs` defaults to 5000.
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
    const policy = { what, giveUpMs: timeoutMs, limitIsGiven: given !== undefined, signal: closed };
    const reading = client.range(leaderRange(path), policy);
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
   * the latest state. The last 1000 unread items are kept, with values of 16 MiB at most. Leave the loop to stop. A loop costs a
   * read and a watch, and then a read every 40 s.
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
    let handingOver: Promise<void>;
    try {
      // Without a limit of its own, the campaign waits for etcd as long as the session lives.
      const limits = { signal: wait.signal, timeoutMs: left() ?? entry.lease.ttlMs };
      const queue = await readQueue(services, path, { what, policy, wait: limits });
      const { eligible } = candidate;
      const best = preferred({ name, path, key, revision }, queue, { eligible, tried });
      if (!best) return false;
      tried.add(best.leaseId);
      // If the key, or the session, was lost meanwhile, to join again is what follows, too.
      handingOver = inOwnContext(() => leadership.yieldTo(best, queue)).catch(() => undefined);
    } catch (error) {
      // As if it were lost a moment later: the leadership tells.
      if (leadership.signal.aborted) return false;
      void leadership.resign();
      throw withCallersStack(error);
    }
    // It goes on when the caller waits no longer.
    await atCaller(this.#within({ wait, left }, handingOver, "hand over to a higher priority in"));
    return true;
  }

  async #begin(
    entry: JoinedEntry,
    leadership: LeadershipHandle,
    { target, wait, left }: Campaign,
  ): Promise<LeadershipHandle> {
    const { value } = target;
    try {
      // An adopted entry still has the value of its last candidate.
      if (entry.value !== value)
        await this.#within({ wait, left }, leadership.proclaim(value), "proclaim a value as leader of");
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

  #within(
    { wait: { signal, timeoutMs = 0 }, left }: Pick<Campaign, "wait" | "left">,
    call: Promise<void>,
    does: string,
  ): Promise<void> {
    const { services } = this.#source;
    const leftMs = left();
    const what = `${does} "${this.name}" within ${timeoutMs} ms`;
    const onTimeout = (): Error =>
      new EtcdUnavailableError(what, services.client.hosts.whyUnanswered(leftMs));
    return settleWithin(call, { signal, timeoutMs: leftMs }, services, { onTimeout });
  }
}

const alreadyCandidate = (name: string): string =>
  `This candidate of the election "${name}" waits or leads already; ` +
  `use proclaim to publish another value, or another Election for another candidate`;
