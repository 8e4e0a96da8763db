import { acquireChannel, electionChannel } from "../diagnostics/channels.js";
import { acquire, holdOf, watched, type JoinTarget } from "../hold/acquire.js";
import { traceAcquire } from "../hold/trace-acquire.js";
import { DeadlockError, EtcdUnavailableError } from "../errors.js";
import { publishElection, publishTerm, type Candidate } from "./events.js";
import { candidates, leaderOf, type Leader } from "./leader.js";
import { LeadershipHandle, type Leadership } from "./leadership.js";
import { Observation } from "./observation.js";
import {
  checkName,
  checkOptions,
  checkSignal,
  checkValue,
  checkWait,
  type CheckedWait,
} from "../options/check.js";
import { checkLock, type CheckedLock } from "../options/lock.js";
import { checkQueueWait, type CheckedQueueWait } from "../options/queue-wait.js";
import type { LockOptions, QueueWaitOptions, WaitOptions } from "../session/session-options.js";
import { leaseSourceOf, type LeaseSource, type SessionSource } from "../session/session-source.js";
import { atCaller, withCallersStack } from "../async/callers-stack.js";
import { settleWithin } from "../async/settle-within.js";
import { timeBudget } from "../hold/with-lease.js";

/** A campaign, with the value that it puts. */
interface CampaignTarget extends JoinTarget {
  readonly value: string;
}

/** Default `timeoutMs` of `leader()`. */
const READ_TIMEOUT_MS = 5000;

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
   * Waits for its turn, then leads until it resigns or the session ends. `value`, at most 65536 bytes, is what others read
   * about this candidate. With an adopted session, it takes over that session's queue entry with the same key and fence.
   * On abort: rejects at once with the signal's own reason; the queue entry is removed in the background.
   * @throws {DeadlockError} if this object is already waiting or leading; to publish another value, call `proclaim`.
   * @throws {LockTimeoutError} after `timeoutMs`.
   * @throws {SessionLostError | SessionClosedError} if the session ends while waiting without `rejoin`.
   * @throws {KindMismatchError} if it would wait for an entry of a lock or of a nested name: see docs/kinds.md.
   * @throws {EtcdUnavailableError} if no session could be opened, or etcd had fallen silent when `timeoutMs` passed.
   * @throws {EtcdRefusedError} if etcd rejects the request.
   * @throws {TypeError | RangeError} on bad arguments.
   */
  async campaign(value: string, options?: QueueWaitOptions): Promise<Leadership> {
    checkValue("value", value);
    const wait = checkQueueWait(options, { where: "campaign", source: this.#source });
    const target = {
      source: this.#source,
      kind: "leadership",
      name: this.name,
      options: this.#options,
      value,
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
   * The current leader; undefined if there is none, or if the first entry is one of a lock. A linearizable read that needs no session. `timeoutMs` defaults to
   * 5000. On abort: rejects at once with the signal's own reason.
   * @throws {EtcdUnavailableError} if etcd does not answer in time.
   * @throws {EtcdRefusedError} if etcd rejects the request.
   * @throws {SessionClosedError} if the cluster is closed.
   * @throws {TypeError | RangeError} on bad options.
   */
  async leader(options?: WaitOptions): Promise<Leader | undefined> {
    const { signal, timeoutMs: given } = checkWait("leader", options);
    const timeoutMs = given ?? READ_TIMEOUT_MS;
    const { services } = this.#source;
    const { client, closed, options: cluster } = services;
    closed.throwIfAborted();
    const what = `ask for the leader of "${this.name}"`;
    const range = { ...candidates(this.name), limit: 1 };
    const policy = { what, giveUpMs: timeoutMs, limitIsGiven: given !== undefined, signal: closed };
    const reading = client.range(range, policy);
    const settled = settleWithin(reading, { signal, timeoutMs }, services, {
      onTimeout: () => new EtcdUnavailableError(what, client.lastFailures),
    });
    const { kvs } = await atCaller(settled);
    return leaderOf(this.name, kvs[0], cluster.prefix);
  }

  /**
   * Yields the current leader, then every change of leader or value, in order; undefined means that there is no leader.
   * It starts with the first `next()`, needs no session, and continues through outages of etcd: changes during an outage
   * follow after it, one by one. Changes that etcd has compacted, or lost in a restore from a backup, are collapsed into
   * the latest state. Of unread items, the last 1000 are kept. Leave the loop to stop.
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
    const { value } = target;
    const left = timeBudget(this.#source.services.clock, wait.timeoutMs);
    const { acquired, leadership } = await acquire(target, wait, (granted) => ({
      acquired: granted,
      leadership: holdOf(watched(granted), LeadershipHandle),
    }));
    try {
      // An adopted entry still has the value of its last candidate.
      if (acquired.grant.entry.value !== value) await this.#within(wait, left(), leadership.proclaim(value));
      leadership.started(target);
      if (electionChannel.hasSubscribers) publishTerm(this.#event(acquired.queue.lease.owner), leadership);
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
    const onTimeout = (): Error => new EtcdUnavailableError(what, services.client.lastFailures);
    return settleWithin(call, { signal, timeoutMs: leftMs }, services, { onTimeout });
  }
}

const alreadyCandidate = (name: string): string =>
  `This candidate of the election "${name}" waits or leads already; ` +
  `use proclaim to publish another value, or another Election for another candidate`;
