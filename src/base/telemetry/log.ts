import type { Contender } from "../../contender.js";
import {
  isLogFunction,
  type LogFunction,
  type Logger,
  type LogLevel,
  type LogRecord,
} from "../options/connect.js";
import type { Clock } from "../util/clock.js";
import { printable } from "../util/printable.js";
import {
  acquireChannel,
  callChannel,
  credentialsChannel,
  electionChannel,
  guardianChannel,
  holdEndChannel,
  holdLongChannel,
  memberChannel,
  rejoinChannel,
  renewedChannel,
  sessionChannel,
  shardChannel,
} from "./channels.js";
import {
  credentialsLine,
  ElectionLines,
  guardianLine,
  IdleLine,
  LockLines,
  MemberLines,
  RejoinLines,
  SessionLines,
  shardLine,
} from "./log-lines.js";
import type {
  AcquireMessage,
  CallMessage,
  ClusterMessage,
  CredentialsMessage,
  ElectionMessage,
  GuardianMessage,
  HoldEndMessage,
  HoldLongMessage,
  MemberMessage,
  RejoinMessage,
  RenewedMessage,
  SessionMessage,
  ShardMessage,
} from "./messages.js";
import { WaitLines } from "./wait-lines.js";
import { isPromise } from "../util/realm.js";

/** The entry before a call that waits. */
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
  write(level: LogLevel, text: string, about: LogFields): void;
}

/** A record, but for its level and text. */
export type LogFields = Omit<LogRecord, "level" | "message">;

/** A line names several hosts with the reason of each, but no logger gets more than this of one event. */
const MAX_LINE = 2000;

/**
 * Loggers have a level; a console, which alone has tables, prints whatever it gets. So it gets no lines for debugging, two for each lock,
 * unless its methods are given as an object: `{ warn: console.warn, error: console.error, debug: console.debug }`.
 */
const isConsole = (logger: Logger): boolean => "table" in logger && "groupEnd" in logger;

const takes = (logger: Logger, level: LogLevel): boolean =>
  logger[level] !== undefined && !(level === "debug" && isConsole(logger));

/** Writes lines to loggers. What a logger throws, or rejects with, is dropped: a log must not break what it describes. */
class LogWriter {
  constructor(private readonly loggers: readonly (Logger | LogFunction)[]) {}

  /** Some logger takes lines of the level `debug`. */
  get debugs(): boolean {
    return this.loggers.some((logger) => isLogFunction(logger) || takes(logger, "debug"));
  }

  write(level: LogLevel, text: string, about: LogFields): void {
    const message = printable(text, MAX_LINE);
    const line = `leasehold: ${message}`;
    for (const logger of this.loggers) {
      try {
        const written = isLogFunction(logger)
          ? logger({ level, message, ...about })
          : takes(logger, level) && logger[level]?.(line);
        if (isPromise(written)) written.catch(() => undefined);
      } catch {
        // See above.
      }
    }
  }
}

/** Writes all levels to stderr. Unlike a stream, `console` ignores a stderr that is closed. */
export function stderrLogger(): Logger {
  // eslint-disable-next-line no-console -- the user has asked for it
  const write = (level: string) => (line: string) => console.error(`${level} ${line}`);
  return { debug: write("debug"), info: write("info"), warn: write("warn"), error: write("error") };
}

/** The events of one cluster, and where their lines go. */
interface LogTarget {
  /** The array in the messages of the cluster. */
  readonly hosts: readonly string[];
  readonly loggers: readonly (Logger | LogFunction)[];
  readonly clock: Clock;
  readonly readWait: LineContext["readWait"];
  /** Whether a session is open, and nothing is held or waited for. */
  readonly isIdle: () => boolean;
}

/** As far as this file uses a channel: the types of Node.js know no types of messages. */
interface Subscribable {
  subscribe(listener: (message: never) => void): void;
  unsubscribe(listener: (message: never) => void): void;
}

/** Writes the lines of one cluster until the returned function is called. */
export function writeLog(target: LogTarget): () => void {
  const log = new Subscriptions(target.hosts);
  const writer = new LogWriter(target.loggers);
  const { clock, readWait } = target;
  const context: LineContext = { clock, readWait, write: writer.write.bind(writer) };
  const waits = new WaitLines(context);
  const members = new MemberLines(context);
  const elections = new ElectionLines(context);
  const rejoins = new RejoinLines(context);
  log.to(memberChannel, (message: MemberMessage) => members.member(message));
  log.to(credentialsChannel, (message: CredentialsMessage) => credentialsLine(context, message));
  log.to(guardianChannel, (message: GuardianMessage) => guardianLine(context, message));
  log.to(electionChannel, (message: ElectionMessage) => elections.election(message));
  log.to(shardChannel, (message: ShardMessage) => shardLine(context, message));
  log.to(rejoinChannel, (message: RejoinMessage) => rejoins.rejoin(message));
  const sessions = new SessionLines(context);
  const locks = new LockLines(context);
  log.to(sessionChannel, (message: SessionMessage) => sessions.session(message));
  log.to(renewedChannel, (message: RenewedMessage) => sessions.renewed(message));
  log.to(holdLongChannel, (message: HoldLongMessage) => locks.heldLong(message));
  log.to(holdEndChannel, (message: HoldEndMessage) => {
    const { reason } = message;
    const withSession = reason === "expired" || reason === "revoked" || reason === "closed";
    if (withSession) sessions.holdLost(message);
    else locks.holdEnded(message);
  });
  const { debugs } = writer;
  // Candidates of an election stand by for days.
  const waitsForTurn = ({ tries, kind }: AcquireMessage): boolean =>
    !tries && (debugs || kind !== "leadership");
  log.to(acquireChannel.start, (call: AcquireMessage) => waitsForTurn(call) && waits.began(call));
  log.to(acquireChannel.asyncEnd, (call: AcquireMessage) => waits.ended(call));
  const idle = new IdleLine(context, target.isIdle);
  if (debugs) {
    log.to(acquireChannel.asyncEnd, (message: AcquireMessage) => locks.acquired(message));
    log.to(callChannel.asyncEnd, (message: CallMessage) => locks.called(message));
    log.to(sessionChannel, ({ to }: SessionMessage) => to === "live" && idle.used());
    log.to(acquireChannel.asyncEnd, () => idle.used());
    log.to(holdEndChannel, () => idle.used());
  }
  return () => {
    log.end();
    idle.close();
    members.close();
    rejoins.close();
    waits.close();
  };
}

/** Subscriptions to the messages of one cluster. */
class Subscriptions {
  readonly #ends: (() => void)[] = [];

  constructor(private readonly hosts: readonly string[]) {}

  to<M extends ClusterMessage>(channel: unknown, run: (message: M) => unknown): void {
    const listener = (message: M): void => {
      if (message.hosts !== this.hosts) return;
      try {
        run(message);
      } catch {
        // An error of a subscriber would be an uncaughtException: a log must not end the program.
      }
    };
    const subscribable = channel as Subscribable;
    subscribable.subscribe(listener);
    this.#ends.push(() => subscribable.unsubscribe(listener));
  }

  end(): void {
    for (const end of this.#ends.splice(0)) end();
  }
}
