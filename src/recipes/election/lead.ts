import {
  EtcdRefusedError,
  EtcdUnavailableError,
  KindMismatchError,
  type LeaseholdError,
  LockLostError,
  type Loss,
  SessionClosedError,
  SessionLostError,
} from "../../errors.js";
import { Backoff, type Pauses, retry } from "../../etcd/retry.js";
import { checkFunction, checkName, checkSession, checkSignal, checkValue } from "../../base/options/check.js";
import { checkLock } from "../../base/options/lock.js";
import { type Cluster, leaseOf, Session, servicesOf } from "../../lock/session/cluster.js";
import { type EtcdServices } from "../../lock/session/connection.js";
import type { Dependent } from "../../lock/session/lease.js";
import type { LockOptions, SessionOptions } from "../../lock/session/session-options.js";
import { electionChannel } from "../../base/telemetry/channels.js";
import { type Clock, pause } from "../../base/util/clock.js";
import { queueMicrotask } from "../../base/util/own-context.js";
import { Election } from "./election.js";
import { type Leader, sameLeader } from "./leader.js";
import { type Candidate, type Leadership, type LeadershipHandle, publishElection } from "./leadership.js";
import { CANDIDATE_OPTIONS, type CandidateOptions, checkCandidateOptions } from "./candidates.js";
import {
  type CheckedHealth,
  checkHealth,
  HEALTH_OPTIONS,
  type HealthOptions,
  untilHealthy,
} from "./health.js";
import { isError } from "../../base/util/realm.js";

/** Candidates that were rejected at the same moment do not all retry at the same moment. */
const PAUSES: Pauses = { firstMs: 1000, maxMs: 30_000, factors: [0.75, 1.25] };
/** An attempt that takes longer has failed for lack of an answer, so it has already waited. */
const LONG_ATTEMPT_MS = 2500;

interface RetryPolicy {
  readonly clock: Clock;
  /** Ends the pauses; later failures are not reported. */
  readonly stop: AbortSignal;
  /** Whether another attempt may succeed. */
  mayPass(error: unknown): boolean;
  /** Called before each pause. */
  onRetry(error: unknown, delayMs: number): void;
}

/** Repeats `attempt` until it succeeds, with pauses that grow while it fails quickly. `undefined`: it was stopped. */
async function untilStopped<T>(attempt: () => Promise<T>, policy: RetryPolicy): Promise<T | undefined> {
  const { clock, stop } = policy;
  const backoff = new Backoff(clock, PAUSES);
  let began = 0;
  const begin = (): Promise<T> => {
    began = clock.monotonic();
    return attempt();
  };
  const failed = (error: unknown): void => {
    if (stop.aborted || !policy.mayPass(error)) throw error;
    if (clock.monotonic() - began > LONG_ATTEMPT_MS) backoff.reset();
  };
  const pausing = (error: unknown, pauseMs: number): void => policy.onRetry(error, pauseMs);
  try {
    return await retry(begin, { clock, signal: stop, backoff, failed, pausing });
  } catch (error) {
    if (stop.aborted) return undefined;
    throw error;
  }
}

export interface LeadOptions
  extends SessionOptions, Pick<LockOptions, "label">, HealthOptions, CandidateOptions {
  /** What other clients read about this candidate in `leader()` and `observe()`, at most 65536 bytes. @default `owner` */
  readonly value?: string | undefined;
  /**
   * The stop signal. Campaigning ends at once. Running `work` is not interrupted: it leads until it returns, so have it
   * listen to the same signal. After that the leadership is resigned.
   */
  readonly signal?: AbortSignal | undefined;
  /** Called with every leader, as in `observe()`; undefined means no leader. What it throws is an `uncaughtException`. */
  readonly onLeader?: ((leader: Leader | undefined) => void) | undefined;
  /**
   * Called when campaigning, or observing for `onLeader`, has failed and will be retried after `delayMs` milliseconds.
   * What it throws is an `uncaughtException`.
   */
  readonly onRetry?: ((error: LeaseholdError, delayMs: number) => void) | undefined;
}

/** After a leadership term longer than this, the pauses between terms restart at the shortest one. */
const LONG_TERM_MS = 30_000;
/** Names come and go: no more of them are remembered, or warned of. */
const MAX_WARNED = 100;
/** Reasons for which etcd may reject a request now and accept it later, without any change to this program. */
const PASSING: ReadonlySet<string> = new Set(["quota", "tls", "member"]);

/** The checked arguments of `lead`. */
interface Candidacy {
  readonly cluster: Cluster;
  readonly name: string;
  readonly work: (leadership: Leadership) => unknown;
  readonly session: SessionOptions;
  readonly label: string | undefined;
  readonly value: string | undefined;
  readonly says: CandidateOptions;
  readonly health: CheckedHealth | undefined;
  /** Called when a check before a campaign has not passed, with the pause until the next one. */
  readonly unwell: (reason: Error, delayMs: number) => void;
}

/** Between two terms, a candidate waits for nothing in etcd, but its session is in use. */
const STANDS_BY: Dependent = { sessionEnded: () => {} };

/**
 * Runs `work` whenever this process leads the election, in a session of its own, until `signal` aborts or the cluster is
 * closed. The session has the options of `connect({ session })` where the own ones are not set. It continues through outages of etcd and lost sessions: they end the leadership term, and `lead` campaigns again. On
 * a loss `leadership.signal` aborts, and `work` is awaited before the next campaign. When `work` resolves, `lead` resigns and
 * campaigns again after a pause (1 s, doubling to 30 s until a term lasts longer than 30 s).
 *
 * A campaign that fails because etcd does not answer, because the session is lost, with a KindMismatchError, or with an EtcdRefusedError
 * whose `reason` is "quota", "tls" or "member", is retried after a pause (1 s, doubling to 30 s while it fails quickly): see `onRetry`.
 * Observing for `onLeader` is retried after any rejection, and leading continues meanwhile.
 *
 * On abort: resolves after `work` has ended and the leadership is resigned. Stopping is not an error; an AbortError, or the
 * signal's own reason, thrown by `work` then is ignored. `cluster.close()` stops it in the same way, but ends the leadership,
 * and with it `leadership.signal`, after its `drainMs`.
 *
 * A lease tells that this process runs, not that its work goes on: with `healthy`, or with `withinMs` and `leadership.heartbeat()`, a
 * term whose work stands still ends with the loss "unhealthy". `signal` aborts, and after `graceMs` the next candidate leads, although
 * `work` has not returned. This process campaigns again only after it has.
 *
 * Rejects with what `work` throws while it leads, after resigning. What `work` throws after the leadership was lost is
 * ignored, even if etcd recorded the loss before this session noticed it.
 * @throws {EtcdRefusedError} if etcd rejects a campaign for another reason: "permission", "unauthenticated", "other".
 * @throws {SessionClosedError} if the cluster was closed before the call.
 * @throws {TypeError | RangeError} on bad arguments.
 */
// eslint-disable-next-line max-params -- public: the options come last, as everywhere
export async function lead(
  cluster: Cluster,
  name: string,
  work: (leadership: Leadership) => unknown,
  options?: LeadOptions,
): Promise<void> {
  const services = servicesOf(cluster);
  checkName(name);
  checkFunction("work", work);
  const session = checkSession("lead", options, {
    also: ["value", "signal", "onLeader", "onRetry", "label", ...HEALTH_OPTIONS, ...CANDIDATE_OPTIONS],
    defaults: services.options.session,
  });
  const health = checkHealth({ ...options });
  const { value, label, onLeader, onRetry } = checkCandidate(options);
  checkCandidateOptions(options);
  const says = Object.fromEntries(CANDIDATE_OPTIONS.map((option) => [option, options?.[option]]));
  const { stop, release } = stopOf(services, checkSignal(options?.signal));
  const over = new AbortController();
  const candidate = { hosts: cluster.hosts, name, label, owner: session.owner };
  const policy = { clock: services.clock, onRetry: reporting(candidate, onRetry) };
  if (onLeader) void follow(new Election(cluster, name), onLeader, { ...policy, stop: over.signal });
  try {
    const unwell = reporting(candidate, undefined);
    await new LeadLoop(
      { cluster, name, work, session, label, value, says, health, unwell },
      { ...policy, stop, mayPass },
    ).run();
  } finally {
    over.abort();
    release();
    if (electionChannel.hasSubscribers) publishElection(candidate, { state: "stopped" });
  }
}

/** Aborts when the caller's signal does, or when the cluster is closed: that is a stop, too. @throws if it is closed already. */
function stopOf({ aborts, closed }: EtcdServices, signal: AbortSignal | undefined) {
  if (!signal?.aborted) closed.throwIfAborted();
  const controller = new AbortController();
  if (signal?.aborted) controller.abort(signal.reason);
  const follow = (each: AbortSignal | undefined) => aborts.add(each, () => controller.abort(each?.reason));
  const stops = [follow(signal), follow(closed)];
  return { stop: controller.signal, release: () => stops.forEach((end) => end()) };
}

function checkCandidate({ value, label, onLeader, onRetry }: LeadOptions = {}): LeadOptions {
  if (value !== undefined) checkValue("value", value);
  if (onLeader !== undefined) checkFunction("onLeader", onLeader);
  if (onRetry !== undefined) checkFunction("onRetry", onRetry);
  return { value, label: checkLock("lead", { label }).label, onLeader, onRetry };
}

const mayPass = (error: unknown): boolean =>
  error instanceof SessionLostError ||
  error instanceof EtcdUnavailableError ||
  error instanceof KindMismatchError ||
  (error instanceof EtcdRefusedError && PASSING.has(error.reason));

/** Calls the listener in a microtask, so that what it throws does not end the retries. */
const reporting =
  (candidate: Candidate, onRetry: LeadOptions["onRetry"]): RetryPolicy["onRetry"] =>
  (error, delayMs) => {
    if (electionChannel.hasSubscribers)
      publishElection(candidate, { state: "retrying", error: error as Error, delayMs });
    else if (!onRetry && error instanceof KindMismatchError) warnOfMismatch(error);
    if (onRetry) queueMicrotask(() => onRetry(error as LeaseholdError, delayMs));
  };

/** Nothing else shows that a name is in the way, which most often a person has to change. Once for each name in the way. */
const warned = new Set<string>();
function warnOfMismatch({ message, lockName, foundName }: KindMismatchError): void {
  const names = JSON.stringify([lockName, foundName]);
  if (warned.has(names) || warned.size === MAX_WARNED) return;
  warned.add(names);
  process.emitWarning(`${message}. lead() tries again.`, { type: "LeaseholdWarning", code: "KIND_MISMATCH" });
}

/** Calls `onLeader` with every leader, until `stop` aborts or the cluster is closed. */
async function follow(
  election: Election,
  onLeader: NonNullable<LeadOptions["onLeader"]>,
  policy: Omit<RetryPolicy, "mayPass">,
): Promise<void> {
  let last: { readonly leader: Leader | undefined } | undefined;
  const observe = async (): Promise<void> => {
    for await (const leader of election.observe({ signal: policy.stop })) {
      if (last && sameLeader(last.leader, leader)) continue;
      last = { leader };
      queueMicrotask(() => onLeader(leader));
    }
  };
  const mayPass = (error: unknown): boolean => !(error instanceof SessionClosedError);
  // The campaign reports that the cluster is closed.
  await untilStopped(observe, { ...policy, mayPass }).catch(() => undefined);
}

class LeadLoop {
  #session: Session | undefined;
  /** Between terms. */
  readonly #backoff: Backoff;

  constructor(
    private readonly candidacy: Candidacy,
    private readonly policy: RetryPolicy,
  ) {
    this.#backoff = new Backoff(policy.clock, { ...PAUSES, factors: [1, 1] });
  }

  async run(): Promise<void> {
    try {
      const policy = { ...this.policy, mayPass: (error: unknown) => this.#mayPass(error) };
      while (!policy.stop.aborted) {
        const leadership = await untilStopped(() => this.#campaign(), policy);
        if (leadership) await this.#term(leadership);
      }
    } finally {
      // No hold is left to wait for.
      await this.#session?.close({ drainMs: 0 });
    }
  }

  /** etcd may accept from another session what it rejects from an unfit one. One that is over is not the reason if none can be opened. */
  #mayPass(error: unknown): boolean {
    const lease = this.#session && leaseOf(this.#session);
    const unfit = lease?.unfit === true && !lease.over;
    return unfit || this.policy.mayPass(error);
  }

  async #campaign(): Promise<Leadership> {
    const { name, label, value, says } = this.candidacy;
    const session = await this.#openSession();
    return new Election(session, name, { label }).campaign(value ?? session.owner, {
      ...says,
      signal: this.policy.stop,
    });
  }

  async #openSession(): Promise<Session> {
    const { cluster, session } = this.candidacy;
    const last = this.#session;
    if (last && leaseOf(last).open) return last;
    // The session is over, or etcd rejects every campaign with it.
    void last?.close({ drainMs: 0 });
    this.#session = await Session.open(cluster, { ...session, signal: this.policy.stop });
    return this.#session;
  }

  async #term(leadership: Leadership): Promise<void> {
    const { clock } = this.policy;
    const { health } = this.candidacy;
    const begin = clock.monotonic();
    if (health) (leadership as LeadershipHandle).watchHealth(health);
    const lost = await this.#work(leadership);
    if (clock.monotonic() - begin > LONG_TERM_MS) this.#backoff.reset();
    if (lost !== undefined && lost !== "unhealthy") return;
    const { waits } = leaseOf(this.#session as Session);
    waits.add(STANDS_BY);
    await this.#standBy(lost && health);
    waits.delete(STANDS_BY);
  }

  /** Work that ends soon after its start must not restart in a tight loop: another candidate may do better. Never rejects. */
  async #standBy(health: CheckedHealth | undefined): Promise<void> {
    const { clock, stop } = this.policy;
    const nextMs = (): number => this.#backoff.nextMs();
    await pause(clock, nextMs(), stop);
    if (health) await untilHealthy(health, { clock, stop, nextMs, failed: this.candidacy.unwell });
  }

  /** Resolves to how the leadership was lost before `work` ended, if it was. Rejects with what `work` threw while it led. */
  async #work(leadership: Leadership): Promise<Loss | undefined> {
    const handle = leadership as LeadershipHandle;
    let failure: { readonly error: unknown } | undefined;
    handle.workBegins();
    try {
      await this.candidacy.work(leadership);
    } catch (error) {
      failure = { error };
    }
    handle.workEnded();
    const reason: unknown = leadership.held ? undefined : leadership.signal.reason;
    const lost = reason instanceof LockLostError ? reason.loss : undefined;
    // `work` may have learned of a loss from etcd before the session did: then there is nothing to resign.
    const led = await leadership.resign().then(
      () => true,
      () => false,
    );
    if (failure && led && !this.#isStop(failure.error, handle)) throw failure.error;
    return lost;
  }

  /** Work that was stopped may throw the reason: that of `signal`, or of a leadership that was handed over. */
  #isStop(error: unknown, { transferred, signal }: LeadershipHandle): boolean {
    const { stop } = this.policy;
    const abort = isError(error) && error.name === "AbortError";
    if (transferred && (abort || error === signal.reason)) return true;
    return stop.aborted && (abort || error === stop.reason);
  }
}
