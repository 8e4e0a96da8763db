import type { Timer } from "../async/clock.js";
import type { MemberMessage } from "../diagnostics/messages.js";
import { printable } from "../printable.js";
import { duration, failures, reason } from "./text.js";
import type { LineContext } from "./context.js";

/** All members may have failed for a moment while calls move to a member that failed earlier. */
const OUTAGE_MS = 5000;
const UNKNOWN = new Error("no reason was given");

/** One line when another member is in use after a failure, one when none answers, and one for each refused host. */
export class MemberLines {
  /** The last failure of each member that was not in use since. */
  readonly #failures = new Map<string, Error>();
  /** Members that failed since one was last in use. */
  readonly #news = new Map<string, Error>();
  #allFailedAt = 0;
  #outage: Timer | undefined;
  #outageWritten = false;

  constructor(private readonly context: LineContext) {}

  member({ host, hosts, state, error = UNKNOWN }: MemberMessage): void {
    if (state === "up") return this.#up(host);
    const before = this.#failures.get(host)?.message;
    this.#failures.set(host, error);
    this.#news.set(host, error);
    if (state === "refused" && error.message !== before)
      this.context.write("warn", `${printable(host)} refused: ${reason(error)}`);
    const allFailed = hosts.every((each) => this.#failures.has(each));
    if (!allFailed || this.#outage !== undefined) return;
    this.#allFailedAt = this.context.clock.monotonic();
    this.#outage = this.context.clock.after(OUTAGE_MS, () => this.#noneAnswers());
    this.#outage.unref?.();
  }

  close(): void {
    this.#outage?.cancel();
  }

  #noneAnswers(): void {
    this.#outageWritten = true;
    const passed = duration(this.context.clock.monotonic() - this.#allFailedAt);
    this.context.write("warn", `no member of etcd has answered for ${passed}: ${failures(this.#failures)}`);
  }

  #up(host: string): void {
    const using = `using ${printable(host)}`;
    if (this.#outageWritten) {
      const passed = duration(this.context.clock.monotonic() - this.#allFailedAt);
      this.context.write("info", `${using}: etcd answers again after ${passed}`);
    } else if (this.#news.size > 0) {
      this.context.write("warn", `${this.#failed()}; ${using}`);
    } else {
      this.context.write("debug", using);
    }
    this.#outage?.cancel();
    this.#outage = undefined;
    this.#outageWritten = false;
    this.#news.clear();
    this.#failures.delete(host);
  }

  #failed(): string {
    const each = [...this.#news].map(([host, error]) => `${printable(host)} failed (${reason(error)})`);
    return each.join(", ");
  }
}
