import { pause, systemClock, type Timer } from "../../async/clock.js";
import type { Hold } from "../../index.js";
import { EXIT } from "../command-line/exit.js";
import type { ControlJson, LostJson } from "../command-line/json-types.js";
import type { Guardian } from "./guardian.js";
import type { HoldWatch } from "./hold-watch.js";
import type { ProcessGroup } from "./process-group.js";
import type { Pace } from "./settings.js";
import type { Teller } from "./teller.js";
import { ENDING_TEXTS, type EndingReason } from "./texts.js";

/** The end of a command. */
export interface Outcome {
  /** The exit code of the command, as shells have it. */
  readonly exitCode: number;
  /** Why the command was ended; undefined if it ended by itself, or by a signal that this process passed on. */
  readonly ending: LostJson["reason"] | undefined;
  /** The group may have run for so long after the lease had run out, because this process did not run. */
  readonly ranOnMs: number;
  /** When the lease runs out, or ran out, without another renewal: on the clock that counts suspend. */
  readonly leaseOverAt: number;
}

/** What a supervisor keeps in view. */
export interface Supervised {
  readonly hold: Hold;
  readonly watch: HoldWatch;
  readonly group: ProcessGroup;
  readonly guardian: Guardian;
  readonly pace: Pace;
  readonly maxHoldMs: number | undefined;
  readonly teller: Teller;
}

/** Long enough for a pipeline to end after its first process, too short to hold up the next holder. */
const REST_MS = 100;
/** A process that was killed and is still there waits in the kernel, or is a zombie that its parent does not reap. */
const KILLED_MS = 1000;
const POLL_MS = 10;
/** The session's deadline is at 0.9 of the TTL. */
const DEADLINE_PART = 0.9;
/** Two readings of the remaining time differ by less than this if no renewal came between them. */
const READING_MS = 10;

/** Ends a process group before the lease that it runs under can be another client's. */
export class Supervisor {
  #ending: { readonly reason: EndingReason; readonly at: number } | undefined;
  #killedAt: number | undefined;
  #lost = false;
  #ranOnMs = 0;
  #over = false;
  #denied = false;
  /** On the monotonic clock, as of the last look. */
  #deadline = -Infinity;
  #leaseOverAt = Infinity;
  readonly #begun = systemClock.monotonic();
  #timer: Timer | undefined;

  constructor(private readonly it: Supervised) {}

  async run(): Promise<Outcome> {
    const { hold, watch, group, guardian } = this.it;
    const look = (): void => this.#look();
    hold.signal.addEventListener("abort", look);
    watch.onGone = () => this.#lose();
    try {
      look();
      if (watch.gone) this.#lose();
      const exitCode = await group.ended;
      await this.#endRest();
      if (this.#denied && this.#lost) this.#ranOnMs = this.#sinceLeaseOver();
      return { exitCode, ending: this.#reason, ranOnMs: this.#ranOnMs, leaseOverAt: this.#leaseOverAt };
    } finally {
      this.#over = true;
      this.#timer?.cancel();
      hold.signal.removeEventListener("abort", look);
      guardian.dismiss();
    }
  }

  /** From the deadline to the end of the lease. */
  get #unusedMs(): number {
    return this.it.pace.ttlSeconds * 1000 * (1 - DEADLINE_PART);
  }

  get #reason(): Outcome["ending"] {
    if (this.#lost) return "lost";
    const reason = this.#ending?.reason;
    return reason === "left behind" ? undefined : reason;
  }

  #look(): void {
    if (this.#over) return;
    const now = systemClock.monotonic();
    const left = this.it.hold.remainingMs();
    if (left === 0) return this.#lose();
    this.#renewed(now + left, left);
    const due = this.#due(now, left);
    if (due !== undefined) this.#end(due, now);
    const { graceMs, marginMs } = this.it.pace;
    if (this.#ending && (left <= marginMs || now >= this.#ending.at + graceMs)) this.#kill();
    this.#lookAgain(now, left);
  }

  #renewed(deadline: number, left: number): void {
    if (deadline <= this.#deadline + READING_MS) return;
    this.#deadline = deadline;
    this.#leaseOverAt = systemClock.now().suspend + left + this.#unusedMs;
    if (this.it.group.pid !== undefined) this.it.guardian.watch(this.it.group.pid, left);
    if (this.#ending?.reason === "unanswered")
      this.#tell("renewed", "etcd has renewed the lease; the command is ended nevertheless");
  }

  #due(now: number, left: number): EndingReason | undefined {
    const { pace, maxHoldMs = Infinity } = this.it;
    if (this.#ending) return undefined;
    if (left <= pace.graceMs + pace.marginMs) return "unanswered";
    return now - this.#begun >= maxHoldMs ? "max hold" : undefined;
  }

  #lookAgain(now: number, left: number): void {
    const { pace, maxHoldMs = Infinity } = this.it;
    const boundaries = this.#ending
      ? [left - pace.marginMs, this.#ending.at + pace.graceMs - now]
      : [left - pace.graceMs - pace.marginMs, this.#begun + maxHoldMs - now];
    const next = Math.min(pace.lookMs, ...(this.#killedAt === undefined ? boundaries : []));
    this.#timer?.cancel();
    this.#timer = systemClock.after(Math.max(1, next), () => this.#look());
  }

  #end(reason: EndingReason, now: number): void {
    this.#ending = { reason, at: now };
    this.signal("SIGTERM");
    const message = ENDING_TEXTS[reason](this.it);
    this.it.teller.line(message, { event: "ending", name: this.it.hold.name, reason, message });
  }

  #kill(): void {
    if (this.#killedAt !== undefined) return;
    this.#killedAt = systemClock.monotonic();
    if (!this.signal("SIGKILL") || this.#lost) return;
    this.#tell("killed", "the command did not end in the grace: sent SIGKILL to its process group");
  }

  #tell(event: ControlJson["event"], message: string): void {
    this.it.teller.line(message, { event, name: this.it.hold.name, message });
  }

  /** Another client may hold already. */
  #lose(): void {
    if (this.#lost || this.#over) return;
    this.#lost = true;
    this.#kill();
    this.#ranOnMs = this.#sinceLeaseOver();
  }

  #sinceLeaseOver(): number {
    return Math.max(0, systemClock.monotonic() - this.#deadline - this.#unusedMs);
  }

  /** Returns false, and reports it once, if this process may not send signals to the group. */
  signal(name: NodeJS.Signals): boolean {
    const sent = this.it.group.signal(name);
    if (!sent && !this.#denied) {
      this.#denied = true;
      const message =
        "the command belongs to another user, so leasehold cannot end it: run leasehold as that user";
      this.it.teller.line(message, { event: "denied", name: this.it.hold.name, message });
    }
    return sent;
  }

  /** The lock covers the whole group: what the command has left behind in it ends before the release. */
  async #endRest(): Promise<void> {
    const begin = systemClock.monotonic();
    while (this.it.group.alive) {
      const now = systemClock.monotonic();
      if (this.#killedAt !== undefined && now > this.#killedAt + KILLED_MS) return;
      if (!this.#ending && !this.#lost && now > begin + REST_MS) {
        this.#end("left behind", now);
        this.#look();
      }
      await pause(systemClock, POLL_MS);
    }
  }
}

export const isLost = ({ ending }: Outcome): boolean => ending !== undefined;
export const codeOf = (outcome: Outcome): number => (isLost(outcome) ? EXIT.lost : outcome.exitCode);
