import type { BatchObservableResult } from "@opentelemetry/api";
import type { ClusterMessage, RenewedMessage, SessionMessage } from "../diagnostics/messages.js";
import { BoundedMap } from "./bounded-map.js";
import type { Telemetry } from "./telemetry.js";

const MAX_SESSIONS = 10_000;
/** The part of a TTL after which a session is lost: that of `session/deadline.ts`. */
export const USED_PART = 0.9;

interface Session {
  readonly ttlMs: number;
  /** On the clock of the telemetry. */
  readonly deadline: number;
}

/** How long the sessions of this process last if nothing else is renewed. */
export class Sessions {
  readonly #open = new BoundedMap<string, Session>(MAX_SESSIONS);

  constructor(private readonly telemetry: Telemetry) {}

  changed(message: SessionMessage): void {
    const { to, ttlSeconds, remainingMs } = message;
    const id = this.#idOf(message);
    if (to === "lost" || to === "closed") return void this.#open.take(id);
    this.#open.set(id, { ttlMs: ttlSeconds * 1000, deadline: this.telemetry.now() + remainingMs });
  }

  renewed(message: RenewedMessage): void {
    const ttlMs = message.ttlSeconds * 1000;
    const sent = this.telemetry.now() - message.durationMs;
    this.#open.set(this.#idOf(message), { ttlMs, deadline: sent + ttlMs * USED_PART });
    this.telemetry.instruments.renewalDuration.record(message.durationMs / 1000);
  }

  /** One session stands for all: their number has no limit, and the shortest of them shows the trouble. */
  observe(result: BatchObservableResult): void {
    this.#dropDead();
    const { now, instruments } = this.telemetry;
    const left = ({ deadline, ttlMs }: Session) => Math.max(0, deadline - now()) / ttlMs;
    const sessions = [...this.#open.entries()].map(([, session]) => session);
    const [worst] = sessions.sort((a, b) => left(a) - left(b));
    // An SDK repeats the last value of a gauge that is not observed: without a session, both are 0.
    const remainingMs = worst ? Math.max(0, worst.deadline - now()) : 0;
    result.observe(instruments.sessionRemaining, remainingMs / 1000);
    result.observe(instruments.sessionTtl, (worst?.ttlMs ?? 0) / 1000);
  }

  /** A session ends soon after its deadline. One that is still here then has ended unseen. */
  #dropDead(): void {
    for (const [id, { deadline, ttlMs }] of this.#open.entries())
      if (this.telemetry.now() > deadline + ttlMs) this.#open.take(id);
  }

  forget(): void {
    this.#open.takeAll();
  }

  #idOf(message: ClusterMessage & { readonly leaseId: bigint }): string {
    return `${this.telemetry.clusters.numberOf(message)} ${message.leaseId}`;
  }
}
