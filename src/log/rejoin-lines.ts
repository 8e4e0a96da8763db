import type { Timer } from "../async/clock.js";
import type { RejoinMessage } from "../diagnostics/messages.js";
import type { LineContext } from "./context.js";
import { listed, reason } from "./text.js";

/** The pauses before calls of one session begin again are up to 1 s. */
const GATHER_MS = 1000;
const MAX_NAMES = 5;

/**
 * One line for all waits that begin anew within a second. Of the failures of a call in a row, the first, second, fourth, eighth and
 * so on count.
 */
export class RejoinLines {
  #waits = 0;
  readonly #names = new Set<string>();
  #first: RejoinMessage | undefined;
  #timer: Timer | undefined;

  constructor(private readonly context: LineContext) {}

  rejoin(message: RejoinMessage): void {
    if (!Number.isInteger(Math.log2(message.failures))) return;
    this.#waits++;
    for (const name of message.names) this.#names.add(name);
    if (this.#first !== undefined) return;
    this.#first = message;
    this.#timer = this.context.clock.after(GATHER_MS, () => this.#write(message));
    this.#timer.unref?.();
  }

  close(): void {
    this.#timer?.cancel();
    if (this.#first) this.#write(this.#first);
  }

  #write({ error }: RejoinMessage): void {
    const waits = this.#waits === 1 ? "1 wait begins" : `${this.#waits} waits begin`;
    const names = listed([...this.#names].slice(0, MAX_NAMES), this.#names.size);
    this.#first = undefined;
    this.#waits = 0;
    this.#names.clear();
    this.context.write("warn", `${waits} anew at the end of the queue, for ${names}: ${reason(error)}`);
  }
}
