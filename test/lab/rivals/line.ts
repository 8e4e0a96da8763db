// What a run of a rival leaves behind. Unlike in the lab's own history, a token is optional, and the process that
// drives the clients also keeps the shared resource. Times are CLOCK_MONOTONIC nanoseconds, the same for every process.

interface At {
  readonly t: bigint;
  /** Process incarnation: "w2.1" is the second client after its first kill -9. */
  readonly p: string;
}
interface OnAcquire extends At {
  /** Number of the acquire, unique within the run. */
  readonly id: number;
  readonly name: string;
}
export interface Ask extends OnAcquire {
  readonly k: "ask";
  readonly timeoutMs: number;
}
export interface Granted extends OnAcquire {
  readonly k: "granted";
  readonly token?: bigint;
}
export interface Refused extends OnAcquire {
  readonly k: "refused";
  /** True if the time was up; otherwise the acquire ended with an error. */
  readonly timeUp: boolean;
  readonly err: string;
}
/**
 * What the subject's `held()` returned, read right before a side effect; without `held()`, whether no loss was reported
 * so far.
 */
export interface Claim extends OnAcquire {
  readonly k: "claim";
  readonly held: boolean;
}
/** release: it was called; released: it resolved; unreleased: it rejected; lost: the loss was reported. */
export interface Ending extends OnAcquire {
  readonly k: "release" | "released" | "unreleased" | "lost";
  readonly err?: string;
}
/** A holder's use of the shared counter; `t` is the counter's. */
export interface Access extends OnAcquire {
  readonly k: "read" | "write";
  readonly accepted: boolean;
  /** The value of the counter before. */
  readonly before: number;
  /** The value that was written. */
  readonly seq?: number;
}
/**
 * stops: the process was stopped; kills: it was killed; hinders: it could not reach its servers, or they did not serve;
 * takes: the server's state was tampered with; clock: the wall clock moved; none: a fault that the other servers can
 * compensate.
 */
export type Effect = "stops" | "kills" | "hinders" | "takes" | "clock" | "none";
export interface Fault extends At {
  readonly k: "fault";
  readonly fault: string;
  readonly effect: Effect;
  readonly on: boolean;
  readonly hits: readonly string[] | "all";
}
/** Keys that the server still had. idle: no client wants a lock, and all are alive. closed: every client has closed. */
export interface Left extends At {
  readonly k: "left";
  readonly when: "idle" | "closed";
  readonly keys: readonly string[];
}
/** `close` was called: it ends whatever is still pending or held. */
export interface Close extends At {
  readonly k: "close";
}
/** The process ended by itself, or a call that must end did not end. */
export interface Crash extends At {
  readonly k: "crash";
  readonly err: string;
}
/**
 * The event loop of the process did not run for this long, up to `t`, although the process was not stopped on purpose.
 */
export interface Stall extends At {
  readonly k: "stall";
  readonly ms: number;
}
export type Line = Ask | Granted | Refused | Claim | Ending | Access | Fault | Left | Close | Crash | Stall;
