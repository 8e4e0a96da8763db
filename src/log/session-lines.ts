import type { HoldEndMessage, RenewedMessage, SessionMessage } from "../diagnostics/messages.js";
import type { LineContext } from "./context.js";
import { duration, failures, listed, session } from "./text.js";

/** A renewal that takes longer than this part of the TTL is slow: the session changes members soon after. */
const SLOW_PART = 1 / 6;
/** An episode of slow renewals ends with one that takes half of that. */
const FAST_PART = 1 / 12;
const MAX_NAMES = 5;

interface Lost {
  readonly names: string[];
  count: number;
}

/** Jeopardy, loss and slow renewals of sessions: a line when one begins, and one when it ends. */
export class SessionLines {
  /** When the jeopardy of a session began. */
  readonly #jeopardy = new Map<bigint, number>();
  readonly #slow = new Set<bigint>();
  /** Holds that ended with their session, until the line about the session is written. */
  readonly #lost = new Map<bigint, Lost>();

  constructor(private readonly context: LineContext) {}

  session(message: SessionMessage): void {
    const { leaseId, to } = message;
    const since = this.#jeopardy.get(leaseId);
    if (to === "jeopardy") return this.#inJeopardy(message);
    this.#jeopardy.delete(leaseId);
    // Its holds end in the same turn of the event loop, and are listed in the line.
    if (to !== "live") return queueMicrotask(() => this.#ended(message));
    const { clock } = this.context;
    if (since === undefined) return this.context.write("debug", `${session(leaseId)} opened`);
    const passed = duration(clock.monotonic() - since);
    this.context.write("info", `${session(leaseId)} is renewed again, after ${passed} in jeopardy`);
  }

  renewed({ leaseId, durationMs, ttlSeconds }: RenewedMessage): void {
    const ttlMs = ttlSeconds * 1000;
    const isSlow = this.#slow.has(leaseId);
    const took = `${session(leaseId)} was renewed in ${duration(durationMs)}`;
    if (!isSlow && durationMs > ttlMs * SLOW_PART) {
      this.#slow.add(leaseId);
      this.context.write("warn", `${took}, which is slow for a TTL of ${ttlSeconds} s`);
    } else if (isSlow && durationMs < ttlMs * FAST_PART) {
      this.#slow.delete(leaseId);
      this.context.write("info", `${took}: no longer slow`);
    }
  }

  /** A hold ended with its session. */
  holdLost({ leaseId, names }: HoldEndMessage): void {
    const lost = this.#lost.get(leaseId) ?? { names: [], count: 0 };
    this.#lost.set(leaseId, lost);
    lost.count += names.length;
    lost.names.push(...names.slice(0, MAX_NAMES - lost.names.length));
  }

  #inJeopardy(message: SessionMessage): void {
    const { leaseId, ttlSeconds, sinceLastRenewalMs, remainingMs } = message;
    this.#jeopardy.set(leaseId, this.context.clock.monotonic());
    const passed = `last renewed ${duration(sinceLastRenewalMs)} ago (TTL ${ttlSeconds} s)`;
    const left = `${duration(remainingMs)} left`;
    this.context.write("warn", `${session(leaseId)} in jeopardy: ${passed}, ${left}${causeOf(message)}`);
  }

  #ended(message: SessionMessage): void {
    const { leaseId, to, error } = message;
    const lost = this.#lost.get(leaseId);
    this.#lost.delete(leaseId);
    this.#slow.delete(leaseId);
    const what =
      to === "lost" ? (error?.message ?? `${session(leaseId)} lost`) : `${session(leaseId)} closed`;
    const locks = lost ? `; locks that ended with it: ${listed(lost.names, lost.count)}` : "";
    const level = to === "lost" ? "error" : lost ? "warn" : "debug";
    this.context.write(level, `${what}${locks}`);
  }
}

/** Why renewals are missing. A process that stood still for most of the time could not have received an answer. */
function causeOf({ stalledMs, sinceLastRenewalMs, members }: SessionMessage): string {
  if (stalledMs * 2 > sinceLastRenewalMs) return `; this process stood still for ${duration(stalledMs)}`;
  if (members.size > 0) return `; etcd did not answer (${failures(members)})`;
  return "; etcd did not answer";
}
