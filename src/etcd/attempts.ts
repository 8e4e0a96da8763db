import { EtcdRefusedError, EtcdUnavailableError } from "../errors.js";
import { pause, type Clock } from "../time.js";
import { backoff } from "./backoff.js";
import { AttemptError, NotSentError, TokenExpiredError, UnansweredError } from "./rpc.js";

/** With JWT every edit of users or roles makes all tokens stale: a fresh one may be so at once, and again. */
const MAX_STALE = 8;

export interface CallPolicy {
  /** What the call is for, as an EtcdUnavailableError says it. */
  readonly what: string;
  /** Limit of one attempt; never more than `requestTimeoutMs`. */
  readonly attemptMs?: number;
  /** Limit of all attempts together. Default: until `signal` aborts. */
  readonly giveUpMs?: number;
  /** Cancels what is in flight; the call rejects with its reason. */
  readonly signal?: AbortSignal | undefined;
  /** Asked before each further attempt; false = no further one: the call rejects with EtcdUnavailableError. */
  readonly again?: () => boolean;
  /** An attempt was sent and not answered: it may be applied, now or later. */
  readonly onUnanswered?: () => void;
}

/** What holds for one attempt. It may have to wait before it is sent. */
export interface AttemptLimits {
  readonly signal: AbortSignal | undefined;
  /** An earlier attempt of the same call stayed unanswered. */
  readonly repeated: boolean;
  /** Asked when it is sent: what is left for it then, from that moment on. */
  timeoutMs(): number;
  /** Asked when it is about to be sent: false = nobody wants it any more, reject with NotSentError. */
  wanted(): boolean;
}

/** What all calls of a cluster have in common. */
export interface AttemptSetting {
  readonly clock: Clock;
  readonly requestTimeoutMs: number;
  /** The last failure of each member, until any member answers. */
  readonly failures: Map<string, Error>;
}

/** Repeats `attempt`, with pauses that grow, until one is answered, or the policy ends it. */
export async function persist<T>(
  attempt: (limits: AttemptLimits) => Promise<T>,
  policy: CallPolicy,
  { clock, requestTimeoutMs, failures: latest }: AttemptSetting,
): Promise<T> {
  const failures = new Map<string, Error>();
  const { giveUpMs = Infinity } = policy;
  const start = clock.monotonic();
  const left = (): number => (giveUpMs === Infinity ? Infinity : giveUpMs - (clock.monotonic() - start));
  const attemptMs = Math.min(policy.attemptMs ?? Infinity, requestTimeoutMs);
  const limits = {
    signal: policy.signal,
    repeated: false,
    timeoutMs: () => Math.max(1, Math.min(attemptMs, left())),
    wanted: () => left() > 0 && policy.again?.() !== false,
  };
  let stale = 0;
  for (let wait = backoff.next(); ; wait = wait.next(undefined)) {
    policy.signal?.throwIfAborted();
    try {
      const answer = await attempt(limits);
      latest.clear();
      return answer;
    } catch (error) {
      const { host, why } = judge(error, failures, policy);
      limits.repeated ||= why instanceof UnansweredError;
      stale = why instanceof TokenExpiredError ? stale + 1 : 0;
      if (stale > MAX_STALE) throw new EtcdRefusedError("unauthenticated", host, why.message, policy.what);
      failures.set(host, why);
      latest.set(host, why);
    }
    if (left() <= wait.duration) throw new EtcdUnavailableError(policy.what, failures);
    await pause(clock, wait.duration, policy.signal);
    // Asked here: the caller may have left during the pause.
    if (policy.again?.() === false) throw new EtcdUnavailableError(policy.what, failures);
  }
}

/** Returns what another attempt may cure, throws everything else. */
function judge(error: unknown, failures: ReadonlyMap<string, Error>, policy: CallPolicy): AttemptError {
  const unanswered = error instanceof AttemptError && error.why instanceof UnansweredError;
  if (unanswered) policy.onUnanswered?.();
  policy.signal?.throwIfAborted();
  if (error instanceof NotSentError) throw new EtcdUnavailableError(policy.what, failures);
  if (!(error instanceof AttemptError)) throw error;
  const { why } = error;
  if (why instanceof EtcdRefusedError) throw why.to(policy.what);
  if (!unanswered && !(why instanceof TokenExpiredError)) throw why;
  return error;
}
