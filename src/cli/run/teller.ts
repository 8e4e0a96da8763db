import { printable } from "../../printable.js";
import { json, width, type Io } from "../command-line/io.js";
import type { RunJson } from "../command-line/json-types.js";

/** Lines of `run` and `lead` on standard error: standard output belongs to the command. */
export class Teller {
  readonly #terminal: boolean;
  #shown = false;

  constructor(
    private readonly io: Io,
    private readonly wantsJson: boolean,
  ) {
    this.#terminal = !wantsJson && io.stderr.isTTY === true && io.env["TERM"] !== "dumb";
    // A reader that has closed its end of a pipe must not end the program, which guards a command.
    for (const stream of [io.stdout, io.stderr]) stream.on("error", () => {});
  }

  /** Whether `status` changes one line in place. */
  get updates(): boolean {
    return this.#terminal;
  }

  /** A state that the next one replaces. */
  status(text: string, event: RunJson): void {
    if (!this.#terminal) return this.line(text, event);
    this.io.stderr.write(
      `\r${cut(`leasehold: ${printable(text, Infinity)}`, this.io.stderr.columns)}\u001b[K`,
    );
    this.#shown = true;
  }

  line(text: string, event: RunJson): void {
    this.clear();
    this.io.stderr.write(this.wantsJson ? json(event) : `leasehold: ${printable(text, Infinity)}\n`);
  }

  /** An event for programs only. */
  event(event: RunJson): void {
    if (this.wantsJson) this.io.stderr.write(json(event));
  }

  /** Removes the status from the terminal. */
  clear(): void {
    if (this.#shown) this.io.stderr.write("\r\u001b[K");
    this.#shown = false;
  }
}

/** A line that wraps cannot be replaced. A terminal that does not know its size has 0 columns. */
function cut(text: string, columns: number | undefined): string {
  const room = columns || 80;
  let shown = "";
  for (const char of text) {
    if (width(shown + char) >= room) return shown;
    shown += char;
  }
  return shown;
}
