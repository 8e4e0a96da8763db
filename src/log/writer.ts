import type { Logger, LogLevel } from "../options/log.js";
import { printable } from "../printable.js";

/** A line names several hosts with the reason of each, but no logger gets more than this of one event. */
const MAX_LINE = 2000;

/** Writes lines to loggers. What a logger throws, or rejects with, is dropped: a log must not break what it describes. */
export class LogWriter {
  constructor(private readonly loggers: readonly Logger[]) {}

  /** Some logger takes lines of the level `debug`. */
  get debugs(): boolean {
    return this.loggers.some((logger) => logger.debug !== undefined);
  }

  write(level: LogLevel, text: string): void {
    const line = `leasehold: ${printable(text, MAX_LINE)}`;
    for (const logger of this.loggers) {
      try {
        const written = logger[level]?.(line);
        if (written instanceof Promise) written.catch(() => undefined);
      } catch {
        // See above.
      }
    }
  }
}
