import type { ElectionMessage } from "../diagnostics/messages.js";
import type { LineContext } from "./context.js";
import { duration, quoted, reason } from "./text.js";

/** What happens to candidates. Of the failures in a row, the first, second, fourth, eighth and so on have a line. */
export class ElectionLines {
  /** Failures in a row, by election. */
  readonly #failures = new Map<string, number>();

  constructor(private readonly context: LineContext) {}

  election(message: ElectionMessage): void {
    const { state, name } = message;
    if (state === "retrying") return this.#retrying(message);
    if (state === "elected" || state === "stopped") this.#failures.delete(name);
    const fence = message.fence === undefined ? "" : ` (fence ${message.fence})`;
    const why = message.error ? `: ${reason(message.error)}` : "";
    const level = state === "lost" ? "warn" : state === "elected" || state === "resigned" ? "info" : "debug";
    this.context.write(level, `election ${quoted(name)}: ${state}${fence}${why}`);
  }

  #retrying({ name, error, delayMs = 0 }: ElectionMessage): void {
    const failures = (this.#failures.get(name) ?? 0) + 1;
    this.#failures.set(name, failures);
    if (!Number.isInteger(Math.log2(failures))) return;
    const times = failures === 1 ? "a campaign failed" : `${failures} campaigns in a row failed`;
    const next = `the next one follows in ${duration(delayMs)}`;
    this.context.write("warn", `election ${quoted(name)}: ${times} (${reason(error)}); ${next}`);
  }
}
