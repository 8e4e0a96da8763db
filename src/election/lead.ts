import type { Cluster } from "../session/cluster.js";
import { connectionOf } from "../session/connection.js";
import { Election } from "./election.js";
import {
  EtcdRefusedError,
  EtcdUnavailableError,
  LockLostError,
  SessionClosedError,
  SessionLostError,
  type LeaseholdError,
} from "../errors.js";
import { sameLeader, type Leader } from "./leader.js";
import type { Leadership } from "./leadership.js";
import { checkFunction, checkName, checkSession, checkSignal, checkValue } from "../options/check.js";
import { Pauses, retry, type RetryPolicy } from "./retry.js";
import { leaseOf, Session, type SessionOptions } from "../session/session.js";
import { pause } from "../async/clock.js";

export interface LeadOptions extends SessionOptions {
  /** What others see of this candidate in `leader()` and `observe()`, at most 65536 bytes. @default `owner` */
  readonly value?: string | undefined;
  /**
   * The stop signal. Campaigning ends at once. Work that runs is not interrupted: it leads until it ends by itself, so let
   * it listen to the same signal; then it is resigned.
   */
  readonly signal?: AbortSignal | undefined;
  /** Hears of every leader, as `observe()` tells them; undefined = nobody. What it throws is an `uncaughtException`. */
  readonly onLeader?: ((leader: Leader | undefined) => void) | undefined;
  /**
   * Called when campaigning, or observing for `onLeader`, failed and is repeated after `delayMs` milliseconds. What it
   * throws is an `uncaughtException`.
   */
  readonly onRetry?: ((error: LeaseholdError, delayMs: number) => void) | undefined;
}

/** After a term as long as this, the pauses between terms start with the first one again. */
const LONG_TERM_MS = 30_000;
/** Why etcd may reject a request now and accept it later, without any change to this program. */
const PASSING: ReadonlySet<string> = new Set(["quota", "tls", "member"]);

/** What is checked, and known by its default where it was not given. */
interface Candidacy {
  readonly cluster: Cluster;
  readonly name: string;
  readonly work: (leadership: Leadership) => unknown;
  readonly session: SessionOptions;
  readonly value: string | undefined;
}

/**
 * Runs `work` whenever this process leads the election, in a session of its own, until `signal` aborts. Goes on through
 * outages of etcd and lost sessions: they cost the term, and after that it campaigns again. On a loss
 * `leadership.signal` aborts, and `work` is awaited before the next campaign. When `work` resolves it resigns and
 * campaigns again after a pause (1 s, doubling to 30 s). Resolves when it was stopped and has resigned: a stop is no
 * error, nor is an AbortError, or the signal's own reason, thrown by `work` then.
 *
 * A campaign that fails because etcd does not answer, because the session is lost, or because of an EtcdRefusedError
 * whose `why` is "quota", "tls" or "member", is repeated after a pause (1 s, doubling to 30 s while failures come
 * quickly): see `onRetry`. So is observing for `onLeader`, whatever the refusal: leading goes on.
 *
 * Rejects with what `work` throws while it leads, after it has resigned. What `work` throws after the term was lost is
 * ignored, even if etcd knew of the loss before this session did.
 * @throws {EtcdRefusedError} when etcd rejects a campaign for another reason: "permission", "unauthenticated", "other".
 * @throws {SessionClosedError} when the cluster is closed before `signal` aborts.
 * @throws {TypeError | RangeError} on bad arguments.
 */
export async function lead(
  cluster: Cluster,
  name: string,
  work: (leadership: Leadership) => unknown,
  options?: LeadOptions,
): Promise<void> {
  const { clock } = connectionOf(cluster);
  checkName(name);
  checkFunction("work", work);
  const session = checkSession("lead", options, ["value", "signal", "onLeader", "onRetry"]);
  const { value, onLeader, onRetry } = options ?? {};
  if (value !== undefined) checkValue("value", value);
  if (onLeader !== undefined) checkFunction("onLeader", onLeader);
  if (onRetry !== undefined) checkFunction("onRetry", onRetry);
  const stop = checkSignal(options?.signal) ?? new AbortController().signal;
  const over = new AbortController();
  const policy = { clock, onRetry: reporting(onRetry) };
  if (onLeader) void follow(new Election(cluster, name), onLeader, { ...policy, stop: over.signal });
  try {
    await new LeadLoop({ cluster, name, work, session, value }, { ...policy, stop, mayPass }).run();
  } finally {
    over.abort();
  }
}

const mayPass = (error: unknown): boolean =>
  error instanceof SessionLostError ||
  error instanceof EtcdUnavailableError ||
  (error instanceof EtcdRefusedError && PASSING.has(error.why));

/** By itself: what the listener throws is its own affair. */
const reporting =
  (onRetry: LeadOptions["onRetry"]): RetryPolicy["onRetry"] =>
  (error, delayMs) => {
    if (onRetry) queueMicrotask(() => onRetry(error as LeaseholdError, delayMs));
  };

/** Tells a listener of every leader, until `stop` aborts or the cluster is closed. */
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
  // The candidate reports that the cluster is closed.
  await retry(observe, { ...policy, mayPass }).catch(() => undefined);
}

class LeadLoop {
  #session: Session | undefined;
  readonly #pauses = new Pauses(LONG_TERM_MS);

  constructor(
    private readonly candidacy: Candidacy,
    private readonly policy: RetryPolicy,
  ) {}

  async run(): Promise<void> {
    try {
      const policy = { ...this.policy, mayPass: (error: unknown) => this.#mayPass(error) };
      while (!policy.stop.aborted) {
        const leadership = await retry(() => this.#campaign(), policy);
        if (leadership) await this.#term(leadership);
      }
    } finally {
      // Nothing is held any more: there is nothing to wait for.
      await this.#session?.close({ drainMs: 0 });
    }
  }

  /** Another session may be allowed what this one is not. */
  #mayPass(error: unknown): boolean {
    const unfit = this.#session !== undefined && leaseOf(this.#session).unfit;
    return unfit || this.policy.mayPass(error);
  }

  async #campaign(): Promise<Leadership> {
    const { name, value } = this.candidacy;
    const session = await this.#openSession();
    return new Election(session, name).campaign(value ?? session.owner, { signal: this.policy.stop });
  }

  async #openSession(): Promise<Session> {
    const { cluster, session } = this.candidacy;
    const last = this.#session;
    if (last && leaseOf(last).open) return last;
    // One that etcd allows no further campaign on.
    void last?.close({ drainMs: 0 });
    this.#session = await Session.open(cluster, { ...session, signal: this.policy.stop });
    return this.#session;
  }

  async #term(leadership: Leadership): Promise<void> {
    const { clock, stop } = this.policy;
    const begin = clock.monotonic();
    const lost = await this.#work(leadership);
    this.#pauses.lasted(clock.monotonic() - begin);
    // Work that ends soon after it was begun must not be begun again and again: others may do better.
    if (!lost) await pause(clock, this.#pauses.next(), stop);
  }

  /** Whether the loss came before the end of the work. Rejects with what the work threw while it led. */
  async #work(leadership: Leadership): Promise<boolean> {
    let failure: { readonly error: unknown } | undefined;
    try {
      await this.candidacy.work(leadership);
    } catch (error) {
      failure = { error };
    }
    // Reads the clocks: the loss may have come unseen.
    void leadership.held;
    const lost = leadership.signal.reason instanceof LockLostError;
    // The work may have learned of a loss from etcd before the session did: then there is nothing to resign.
    const led = await leadership.resign().then(
      () => true,
      () => false,
    );
    if (failure && led && !this.#isStop(failure.error)) throw failure.error;
    return lost;
  }

  #isStop(error: unknown): boolean {
    const { stop } = this.policy;
    const abort = error instanceof Error && error.name === "AbortError";
    return stop.aborted && (abort || error === stop.reason);
  }
}
