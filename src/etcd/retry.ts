import { EtcdRefusedError, EtcdUnavailableError, type RefusalReason } from "../errors.js";
import { type Clock, pause } from "../util/clock.js";
import type { Hosts } from "./hosts.js";
import {
  type AnswerKind,
  inDoubt,
  LeaseNotFoundError,
  MemberError,
  MemberRefusedError,
  NotSentError,
  TokenExpiredError,
  UnansweredError,
} from "./port.js";

const FIRST_MS = 20;
const MAX_MS = 1000;

/**
 * The pauses between the attempts of one call or stream: each is twice as long as the one before, up to 1 s, and the random
 * half of it spreads clients that failed together
 * (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/, "equal jitter").
 */
export class Backoff {
  #longest = FIRST_MS;

  constructor(private readonly clock: Clock) {}

  /** Milliseconds until the next attempt. */
  nextMs(): number {
    const half = this.#longest / 2;
    this.#longest = Math.min(2 * this.#longest, MAX_MS);
    return half + this.clock.random() * half;
  }

  /** An attempt was successful: the next pause is short again. */
  reset(): void {
    this.#longest = FIRST_MS;
  }
}

/** With JWT, every edit of users or roles makes all tokens stale: even fresh tokens may be stale, several times in a row. */
const MAX_STALE = 8;
/**
 * The first calls of a cluster end when all hosts have been unreachable for so long: the hosts are wrong, or etcd is not
 * started. The time covers the restart of an etcd with one member.
 */
const UNREACHABLE_MS = 3000;
const NEVER_REACHED = `; no host was reached within ${UNREACHABLE_MS / 1000} s: a timeoutMs of your own waits longer`;
/** One address may stand for several members: a rejection by one of them is not a rejection by all. */
const MIN_REFUSALS = 3;

export interface CallPolicy {
  /** What the call is for, as an EtcdUnavailableError names it. */
  readonly what: string;
  /** Time limit of one attempt; never more than `requestTimeoutMs`. */
  readonly attemptMs?: number;
  /** Time limit of all attempts together. Default: until `signal` aborts. */
  readonly giveUpMs?: number;
  /** `giveUpMs` is the user's own: the call also continues while no host was ever reached. */
  readonly limitIsGiven?: boolean | undefined;
  /** Cancels the attempt in flight; the call rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Called before each further attempt; if it returns false, the call rejects with EtcdUnavailableError instead. */
  readonly again?: () => boolean;
  /** Of a call that is no transaction: the verdicts that etcd can give to it, with which it rejects. Default: none. */
  readonly answers?: readonly AnswerKind[];
  /** etcd has no lease of the call: ends the session, whose end is the error for the caller. */
  readonly onLeaseGone?: () => void;
  /** An attempt may have been executed, or may yet be: it was sent, and etcd has not said that it was not executed. */
  readonly onUnanswered?: () => void;
}

/** The limits of one attempt, which may have to wait before it is sent. */
export interface AttemptLimits {
  readonly signal: AbortSignal | undefined;
  /** An earlier attempt of the same call may have been executed. */
  readonly repeated: boolean;
  /** Reports that this attempt may have been executed, or may yet be. */
  doubted(): void;
  /** Called when the attempt is sent: the time that is left for it from that moment on. */
  timeoutMs(): number;
  /** Called just before the attempt is sent: false means that no caller needs it, so it rejects with NotSentError. */
  wanted(): boolean;
  /** Called with the host that has answered. Set only if somebody traces the call. */
  answered?: (host: string) => void;
}

/** What all calls of a cluster share. */
export interface RetryContext {
  readonly clock: Clock;
  readonly requestTimeoutMs: number;
  readonly hosts: Hosts;
  /** Calls carry a token. */
  readonly authenticates: boolean;
}

/** Repeats `attempt`, with growing pauses, until one is answered or the policy ends the call. */
export async function retry<T>(
  attempt: (limits: AttemptLimits) => Promise<T>,
  policy: CallPolicy,
  context: RetryContext,
): Promise<T> {
  const limits = new CallLimits(policy, context);
  let failures: Failures | undefined;
  for (;;) {
    policy.signal?.throwIfAborted();
    try {
      return await attempt(limits);
    } catch (error) {
      if (inDoubt(error)) limits.doubted();
      failures ??= new Failures(policy, context);
      const failure = failures.add(error);
      context.hosts.unanswered(failure.host, failure);
    }
    const pauseMs = failures.nextPauseMs();
    failures.assertTimeLeft(limits, pauseMs);
    await pause(context.clock, pauseMs, policy.signal);
    // Checked after the pause: the caller may have given up meanwhile.
    if (policy.again?.() === false) throw failures.unavailable();
  }
}

/** The limits of one call, which all of its attempts share. */
class CallLimits implements AttemptLimits {
  repeated = false;
  answered?: (host: string) => void;
  readonly #start: number;

  constructor(
    private readonly policy: CallPolicy,
    private readonly context: RetryContext,
  ) {
    this.#start = context.clock.monotonic();
  }

  get signal(): AbortSignal | undefined {
    return this.policy.signal;
  }

  /** The time that is left for all further attempts together. */
  leftMs(): number {
    const { giveUpMs = Infinity } = this.policy;
    return giveUpMs === Infinity ? Infinity : giveUpMs - (this.context.clock.monotonic() - this.#start);
  }

  /** A call without a limit continues, as it has to survive an outage of any length; so does one with a limit of the user's. */
  hopeless(): boolean {
    if (this.policy.limitIsGiven) return false;
    const isOld = this.context.clock.monotonic() - this.#start >= UNREACHABLE_MS;
    return isOld && this.leftMs() < Infinity && this.context.hosts.unreachable;
  }

  timeoutMs(): number {
    const { attemptMs = Infinity } = this.policy;
    return Math.max(1, Math.min(attemptMs, this.context.requestTimeoutMs, this.leftMs()));
  }

  wanted(): boolean {
    return this.leftMs() > 0 && this.policy.again?.() !== false;
  }

  doubted(): void {
    this.repeated = true;
    this.policy.onUnanswered?.();
  }
}

/** The failed attempts of one call, and the growing pauses between them. */
class Failures {
  readonly #byHost = new Map<string, MemberError>();
  readonly #backoff: Backoff;
  #count = 0;
  /** Number of tokens rejected in a row. */
  #stale = 0;

  constructor(
    private readonly policy: CallPolicy,
    private readonly context: RetryContext,
  ) {
    this.#backoff = new Backoff(context.clock);
  }

  nextPauseMs(): number {
    return this.#backoff.nextMs();
  }

  /** @throws EtcdUnavailableError when there is no time for a pause and another attempt. */
  assertTimeLeft(limits: CallLimits, pauseMs: number): void {
    if (limits.hopeless()) throw this.unavailable(NEVER_REACHED);
    if (limits.leftMs() <= pauseMs) throw this.unavailable();
  }

  unavailable(why = ""): EtcdUnavailableError {
    return new EtcdUnavailableError(`${this.policy.what}${why}`, this.#byHost);
  }

  /** Returns a failure that another attempt may fix, and throws any other. */
  add(error: unknown): OfAttempt {
    this.policy.signal?.throwIfAborted();
    if (error instanceof NotSentError) throw this.unavailable();
    if (error instanceof EtcdRefusedError) throw error.during(this.policy.what);
    if (error instanceof LeaseNotFoundError) this.#leaseGone();
    if (!mayPass(error)) throw error;
    this.#byHost.set(error.host, error);
    this.#count++;
    this.#addToken(error);
    this.#assertNotAllRefused();
    return error;
  }

  #leaseGone(): void {
    this.policy.onLeaseGone?.();
    this.policy.signal?.throwIfAborted();
  }

  #addToken(error: OfAttempt): void {
    this.#stale = error instanceof TokenExpiredError ? this.#stale + 1 : 0;
    if (this.#stale <= (this.context.authenticates ? MAX_STALE : 0)) return;
    throw new EtcdRefusedError("unauthenticated", error.host, error.message, { what: this.policy.what });
  }

  /** Another member may accept what one member rejects: the call fails only after every host has rejected it. */
  #assertNotAllRefused(): void {
    const { hosts } = this.context;
    if (this.#count < MIN_REFUSALS || hosts.names.some((host) => !this.#byHost.has(host))) return;
    const refusals: Refusal[] = [];
    for (const [host, failure] of this.#byHost) {
      const why = reasonOf(failure, hosts.reached);
      if (why === undefined) return;
      refusals.push({ host, why, details: failure.message });
    }
    throw together(refusals, this.policy.what);
  }
}

type OfAttempt = MemberError & { readonly host: string };

const mayPass = (error: unknown): error is OfAttempt =>
  error instanceof MemberError && error.host !== undefined;

/** Why the member rejects this client; undefined if it does not. */
function reasonOf(failure: MemberError, reached: boolean): RefusalReason | undefined {
  if (failure instanceof MemberRefusedError) return failure.why;
  const turnedAway = failure instanceof UnansweredError && failure.kind === "turned away";
  return turnedAway && !reached ? "tls" : undefined;
}

interface Refusal {
  readonly host: string;
  readonly why: RefusalReason;
  readonly details: string;
}

/** One error for the refusals of all hosts. */
function together(refusals: readonly Refusal[], what: string): EtcdRefusedError {
  const [first, ...others] = refusals as readonly [Refusal, ...Refusal[]];
  if (others.length === 0) return new EtcdRefusedError(first.why, first.host, first.details, { what });
  const why = others.every((other) => other.why === first.why) ? first.why : "member";
  const hosts = refusals.map(({ host }) => host).join(", ");
  const details = refusals.map((refusal) => `${refusal.host}: ${refusal.details}`).join("; ");
  return new EtcdRefusedError(why, hosts, details, { what });
}
