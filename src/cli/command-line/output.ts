import os from "node:os";
import { EXIT } from "./exit.js";
import type { Io } from "./io.js";

/** That the reader of standard output has gone, or that it cannot be written. */
export interface OutputEnd {
  /** Aborts then, with "SIGPIPE" as reason. */
  readonly signal: AbortSignal;
  /** That of a program that SIGPIPE has ended, or `EXIT.output`; undefined before it. */
  readonly exitCode: number | undefined;
}

/**
 * Listens for errors of both streams until the process ends: the error of a write comes after the write has returned. Node.js
 * ignores SIGPIPE, so without this, `| head -1` would end the program with the stack trace of an uncaught error.
 */
export function outputEnd({ stdout, stderr }: Io): OutputEnd {
  const controller = new AbortController();
  let exitCode: number | undefined;
  stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (exitCode !== undefined) return;
    const closed = error.code === "EPIPE";
    exitCode = closed ? EXIT.signal + os.constants.signals.SIGPIPE : EXIT.output;
    if (!closed) stderr.write(`leasehold: standard output cannot be written: ${error.message}\n`);
    controller.abort("SIGPIPE");
  });
  // The reader has gone.
  stderr.on("error", () => {});
  return {
    signal: controller.signal,
    get exitCode() {
      return exitCode;
    },
  };
}

/** Resolves when the stream has taken the text, or has failed: `outputEnd` reports that. Awaiting it bounds what is buffered. */
export const write = ({ stdout }: Io, text: string): Promise<void> =>
  new Promise((resolve) => void stdout.write(text, () => resolve()));
