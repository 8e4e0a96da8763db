import { ExponentialBackoff } from "cockatiel/dist/backoff/ExponentialBackoff.js";
import { type GeneratorFn, noJitterGenerator } from "cockatiel/dist/backoff/ExponentialBackoffGenerators.js";
import { EtcdRefusedError, EtcdUnavailableError, type RefusalReason } from "../errors.js";
import { type Clock, pause } from "../base/util/clock.js";
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

/** Pauses double from `firstMs` to `maxMs`. Each is multiplied by a random factor of this range. */
export interface Pauses {
  readonly firstMs: number;
  readonly maxMs: number;
  readonly factors: readonly [least: number, most: number];
}

/**
 * The random half spreads clients that failed together
 * (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/, "equal jitter").
 */
const PAUSES: Pauses = { firstMs: 20, maxMs: 1000, factors: [0.5, 1] };

/** The pauses between the attempts of one call or stream; by default up to 1 s. */
export class Backoff {
  readonly #pauses: ExponentialBackoff<number>;
  #last: ReturnType<ExponentialBackoff<number>["next"]> | undefined;

  constructor(clock: Clock, { firstMs, maxMs, factors: [least, most] }: Pauses = PAUSES) {
    const generator: GeneratorFn<number> = (attempts, options) => {
      const [ms, next] = noJitterGenerator(attempts, options);
      return [ms * least + clock.random() * ms * (most - least), next];
    };
    this.#pauses = new ExponentialBackoff({ generator, initialDelay: firstMs, maxDelay: maxMs });
  }

  /** Milliseconds until the next attempt. */
  nextMs(): number {
    this.#last = this.#last?.next(undefined) ?? this.#pauses.next();
    return this.#last.duration;
  }

  /** An attempt was successful: the next pause is short again. */
  reset(): void {
    this.#last = undefined;
  }
}

/** What decides about further attempts. */
export interface Retries {
  readonly clock: Clock;
  /** Ends the attempts: `retry` rejects with its reason. */
  readonly signal?: AbortSignal | undefined;
  /** Default: pauses of up to 1 s. */
  readonly backoff?: Backoff;
  /** Called after each failure. @throws what the caller gets, if no other attempt may succeed. */
  failed(error: unknown): void;
  /** Called before each pause. @throws what the caller gets, if there is no time for it. */
  pausing?(error: unknown, pauseMs: number): void;
  /** Called after each pause. @throws what the caller gets, if the next attempt is not needed any more. */
  resuming?(): void;
}

/**
 * Calls `attempt` until it is successful, with growing pauses. An attempt that succeeds at once costs one promise more. `attempt` never
 * throws: it rejects.
 */
export function retry<T, R extends Retries>(attempt: (retries: R) => Promise<T>, retries: R): Promise<T> {
  const { signal } = retries;
  if (signal?.aborted) return Promise.reject(signal.reason as Error);
  return attempt(retries).catch((error: unknown) => retryAfter(error, attempt, retries));
}

/** Like `retry()`, when the first attempt has been made, and has failed with `error`. */
export async function retryAfter<T, R extends Retries>(
  error: unknown,
  attempt: (retries: R) => Promise<T>,
  retries: R,
): Promise<T> {
  const { clock, signal } = retries;
  let backoff: Backoff | undefined;
  for (let last = error; ;) {
    retries.failed(last);
    backoff ??= retries.backoff ?? new Backoff(clock);
    const pauseMs = backoff.nextMs();
    retries.pausing?.(last, pauseMs);
    await pause(clock, pauseMs, signal);
    retries.resuming?.();
    signal?.throwIfAborted();
    try {
      return await attempt(retries);
    } catch (failure) {
      last = failure;
    }
  }
}

/** With JWT, every edit of users or roles makes all tokens stale: even fresh tokens may be stale, several times in a row. */
const MAX_STALE = 8;
/**
 * The first calls of a cluster end when all hosts have been unreachable for so long: the hosts are wrong, or etcd is not
 * started. The time covers the restart of an etcd with one member.
 */
const UNREACHABLE_MS = 3000;
/** One address may stand for several members: a rejection by one of them is not a rejection by all. */
const MIN_REFUSALS = 3;

export interface CallPolicy {
  /** What the call is for, as an EtcdUnavailableError names it. */
  readonly what: string;
  /** Time limit of one attempt; never more than `requestTimeoutMs`. */
  readonly attemptMs?: number;
  /** Time limit of all attempts together. Default: until `signal` aborts. */
  readonly giveUpMs?: number;
  /** An attempt is not cut short by `giveUpMs`: what it does has to be known. No other one follows. */
  readonly outlastsLimit?: boolean;
  /** `giveUpMs` is the user's own: the call also continues while no host was ever reached. */
  readonly limitIsGiven?: boolean | undefined;
  /** Cancels the attempt in flight; the call rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Called before each further attempt; if it returns false, the call rejects with EtcdUnavailableError instead. */
  readonly again?: () => boolean;
  /** The verdicts of etcd with which a call that is no transaction rejects. Default: none. */
  readonly answers?: readonly AnswerKind[];
  /** etcd has no lease of the call: ends the session, whose end is the error for the caller. */
  readonly onLeaseGone?: (() => void) | undefined;
  /** An attempt may have been executed, or may yet be: it was sent, and etcd has not said that it was not executed. */
  readonly onUnanswered?: () => void;
  /** Repeats the call after a rejection by etcd, too: what it removes must not stay. */
  readonly untilConfirmed?: boolean;
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

/** The limits of one call, which all of its attempts share, and their failures: it is repeated until an attempt is answered. */
export class Call implements AttemptLimits, Retries {
  repeated = false;
  answered?: (host: string) => void;
  readonly clock: Clock;
  readonly signal: AbortSignal | undefined;
  readonly #start: number;
  /** The last failure of each host. */
  #byHost: Map<string, MemberError> | undefined;
  #count = 0;
  /** Number of tokens rejected in a row. */
  #stale = 0;

  constructor(
    private readonly policy: CallPolicy,
    private readonly context: RetryContext,
  ) {
    this.clock = context.clock;
    this.signal = policy.signal;
    this.#start = this.clock.monotonic();
  }

  timeoutMs(): number {
    const { attemptMs = Infinity, outlastsLimit } = this.policy;
    const leftMs = outlastsLimit ? Infinity : this.#leftMs();
    return Math.max(1, Math.min(attemptMs, this.context.requestTimeoutMs, leftMs));
  }

  wanted(): boolean {
    return this.#leftMs() > 0 && this.policy.again?.() !== false;
  }

  doubted(): void {
    this.repeated = true;
    this.policy.onUnanswered?.();
  }

  failed(error: unknown): void {
    if (inDoubt(error)) this.doubted();
    this.signal?.throwIfAborted();
    try {
      this.#assertMayPass(error);
    } catch (failure) {
      if (!this.policy.untilConfirmed || !(failure instanceof EtcdRefusedError)) throw failure;
      this.#byHost = undefined;
      this.#count = this.#stale = 0;
    }
  }

  #assertMayPass(error: unknown): void {
    const { what } = this.policy;
    if (error instanceof NotSentError) throw this.#unavailable();
    if (error instanceof EtcdRefusedError) throw error.during(what);
    if (error instanceof LeaseNotFoundError) this.#leaseGone();
    if (!mayPass(error)) throw error;
    this.#add(error);
    this.context.hosts.unanswered(error.host, error);
  }

  pausing(_error: unknown, pauseMs: number): void {
    if (this.#hopeless()) throw this.#unreachable();
    if (this.#leftMs() <= pauseMs) throw this.#unavailable();
  }

  /** The caller may have given up during the pause. */
  resuming(): void {
    if (this.policy.again?.() === false) throw this.#unavailable();
  }

  /** The time that is left for all further attempts together. */
  #leftMs(): number {
    const { giveUpMs = Infinity } = this.policy;
    return giveUpMs === Infinity ? Infinity : giveUpMs - (this.clock.monotonic() - this.#start);
  }

  /** A call without a limit continues, as it has to survive an outage of any length; so does one with a limit of the user's. */
  #hopeless(): boolean {
    if (this.policy.limitIsGiven) return false;
    const isOld = this.clock.monotonic() - this.#start >= UNREACHABLE_MS;
    return isOld && this.#leftMs() < Infinity && this.context.hosts.unreachable;
  }

  #unavailable(): EtcdUnavailableError {
    return new EtcdUnavailableError(this.policy.what, this.#byHost ?? new Map<string, Error>());
  }

  #unreachable(): EtcdUnavailableError {
    return new EtcdUnavailableError(
      this.policy.what,
      this.#byHost ?? new Map<string, Error>(),
      `${UNREACHABLE_MS / 1000} s`,
    );
  }

  #leaseGone(): void {
    this.policy.onLeaseGone?.();
    this.policy.signal?.throwIfAborted();
  }

  #add(error: OfAttempt): void {
    const { what } = this.policy;
    this.#byHost = (this.#byHost ?? new Map<string, MemberError>()).set(error.host, error);
    this.#count++;
    this.#stale = error instanceof TokenExpiredError ? this.#stale + 1 : 0;
    if (this.#stale > (this.context.authenticates ? MAX_STALE : 0))
      throw new EtcdRefusedError("unauthenticated", error.host, error.message, { what });
    this.#assertNotAllRefused(this.#byHost);
  }

  /** Another member may accept what one member rejects: the call fails only after every host has rejected it. */
  #assertNotAllRefused(byHost: ReadonlyMap<string, MemberError>): void {
    const { hosts } = this.context;
    if (this.#count < MIN_REFUSALS || hosts.names.some((host) => !byHost.has(host))) return;
    const refusals: Refusal[] = [];
    for (const [host, failure] of byHost) {
      const reason = reasonOf(failure, hosts.reached);
      if (reason === undefined) return;
      refusals.push({ host, reason, details: failure.message });
    }
    throw together(refusals, this.policy.what);
  }
}

type OfAttempt = MemberError & { readonly host: string };

const mayPass = (error: unknown): error is OfAttempt =>
  error instanceof MemberError && error.host !== undefined;

/** Why the member rejects this client; undefined if it does not. */
function reasonOf(failure: MemberError, reached: boolean): RefusalReason | undefined {
  if (failure instanceof MemberRefusedError) return failure.reason;
  const turnedAway = failure instanceof UnansweredError && failure.kind === "turned away";
  return turnedAway && !reached ? "tls" : undefined;
}

interface Refusal {
  readonly host: string;
  readonly reason: RefusalReason;
  readonly details: string;
}

/** One error for the refusals of all hosts. */
function together(refusals: readonly Refusal[], what: string): EtcdRefusedError {
  const [first, ...others] = refusals as readonly [Refusal, ...Refusal[]];
  if (others.length === 0) return new EtcdRefusedError(first.reason, first.host, first.details, { what });
  const reason = others.every((other) => other.reason === first.reason) ? first.reason : "member";
  const hosts = refusals.map(({ host }) => host).join(", ");
  const details = refusals.map((refusal) => `${refusal.host}: ${refusal.details}`).join("; ");
  return new EtcdRefusedError(reason, hosts, details, { what });
}
