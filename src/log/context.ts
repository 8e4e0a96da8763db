import type { Clock } from "../async/clock.js";
import type { Contender } from "../contender.js";
import type { AcquireMessage } from "../diagnostics/messages.js";
import type { LogLevel } from "../options/log.js";

/** Who is before a call that waits. */
export interface QueueReport {
  /** The name that it waits for: of `lockAll`, one of several. */
  readonly name: string;
  readonly holder: Contender | undefined;
  readonly ahead: number;
}

/** What the lines of one cluster share. */
export interface LineContext {
  readonly clock: Clock;
  /** Reads the queue once, for a call that waits. Rejects if etcd does not answer; undefined if the call is over. */
  readonly readWait: (call: AcquireMessage) => Promise<QueueReport | undefined>;
  write(level: LogLevel, text: string): void;
}
