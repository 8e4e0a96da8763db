import { createInterface } from "node:readline";
import type { Io } from "../command-line/io.js";

/**
 * Asks on standard error, so that standard output has the result only, and reads one line. Anything but y or yes is a no, as
 * is the end of the input. @throws the signal's reason on abort.
 */
export async function confirm(
  { stdin, stderr }: Io,
  question: string,
  signal: AbortSignal,
): Promise<boolean> {
  // Not as a terminal: readline would take Ctrl-C, which is to end the program as everywhere else.
  const lines = createInterface({ input: stdin, terminal: false });
  try {
    stderr.write(`${question} [y/N] `);
    const answer = await new Promise<string>((resolve, reject) => {
      lines.once("line", resolve);
      lines.once("close", () => resolve(""));
      stdin.once("error", () => resolve(""));
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      if (signal.aborted) reject(signal.reason);
    });
    return /^y(es)?$/i.test(answer.trim());
  } finally {
    lines.close();
    stdin.pause();
  }
}
