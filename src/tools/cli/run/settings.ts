import os from "node:os";
import type { LeaseholdError, SessionOptions } from "../../../index.js";
import { systemClock } from "../../../base/util/clock.js";
import { printable } from "../../../base/util/printable.js";
import { formatDuration, parseDuration, parseInteger, parseTtl } from "../command.js";
import { columnsOf, EXIT, type Io, json, messageOf, usageError, width, wrap } from "../io.js";
import type { RunJson } from "../json-types.js";

/** How a command under a lease is ended in time. All of it follows from the TTL. */
export interface Pace {
  readonly ttlSeconds: number;
  /** From SIGTERM to SIGKILL. */
  readonly graceMs: number;
  /** From SIGKILL to the deadline of the session, which is at 0.9 of the TTL. */
  readonly marginMs: number;
  /** The longest time between two checks of the lease. */
  readonly checkMs: number;
}

export const PACE_FLAGS = {
  ttl: { value: "DURATION", text: "TTL of the lease, in whole seconds, 2s to 86400s; default 15s" },
  grace: {
    value: "DURATION",
    text: "time from SIGTERM to SIGKILL, at most 0.35 of the TTL; default 0.2 of the TTL",
  },
  "release-delay": {
    value: "DURATION",
    text: "after a crash or a lost lease, the next holder waits for this time after the lease has ended, at most 1h; default 0s",
  },
  owner: {
    value: "TEXT",
    text: "the name that others see for this holder or waiter, at most 256 bytes; default HOST:PID",
  },
} as const;

export const ENV_FLAG = {
  "keep-env": { text: "leave the password of etcd in the command's environment" },
} as const;

/** The environment for a command: it has no use for the password of etcd, and may print or pass on what it has. */
export function withoutPassword(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const user = env["ETCDCTL_USER"]?.replace(/:.*/s, "");
  return { ...env, ETCDCTL_PASSWORD: undefined, ETCDCTL_USER: user };
}

const DEFAULT_TTL_SECONDS = 15;
const MARGIN_PART = 0.05;
const GRACE_PART = 0.2;
/**
 * The deadline is at 0.9 of the TTL, and the second attempt to renew begins at 0.5: a healthy command must not get SIGTERM
 * before that attempt.
 */
const MAX_GRACE_PART = 0.9 - MARGIN_PART - 0.5;
const CHECK_PART = 0.05;
const MAX_CHECK_MS = 500;

/** @throws {CliError} if the grace does not fit into the TTL. */
export function paceOf(flags: {
  readonly ttl?: string | undefined;
  readonly grace?: string | undefined;
}): Pace {
  const ttlSeconds = flags.ttl === undefined ? DEFAULT_TTL_SECONDS : parseTtl(flags.ttl);
  const ttlMs = ttlSeconds * 1000;
  const longest = Math.floor(ttlMs * MAX_GRACE_PART + 1e-6);
  const graceMs = flags.grace === undefined ? ttlMs * GRACE_PART : parseDuration("grace", flags.grace);
  if (graceMs > longest)
    throw usageError(
      `--grace must be at most ${longest}ms with a TTL of ${ttlSeconds}s, got ${JSON.stringify(flags.grace)}; ` +
        `a longer one needs a longer --ttl`,
    );
  const checkMs = Math.min(MAX_CHECK_MS, ttlMs * CHECK_PART);
  return { ttlSeconds, graceMs, marginMs: ttlMs * MARGIN_PART, checkMs };
}

export const priorityOf = (text: string | undefined): number | undefined =>
  text === undefined ? undefined : parseInteger("priority", text, { min: -1000, max: 1000 });

export const WANTED_FLAG = {
  "on-wanted": {
    value: "SIGNAL",
    text: "send the command this signal, once, when another client waits for what it holds",
  },
} as const;

/** @throws {CliError} if the system has no signal of this name. */
export function signalOf(flag: string, text: string | undefined): NodeJS.Signals | undefined {
  if (text === undefined || Object.hasOwn(os.constants.signals, text)) return text as NodeJS.Signals;
  throw usageError(`--${flag} must be the name of a signal such as SIGTERM, got ${JSON.stringify(text)}`);
}

const MAX_RELEASE_DELAY_MS = 3_600_000;
const MAX_SHOWN_BYTES = 256;

/** A text that others see. @throws {CliError} if it is empty or too long. */
export function shownText(flag: string, text: string | undefined): string | undefined {
  if (text === undefined || (text !== "" && Buffer.byteLength(text) <= MAX_SHOWN_BYTES)) return text;
  throw usageError(`--${flag} must be 1 to ${MAX_SHOWN_BYTES} bytes, got ${JSON.stringify(text)}`);
}

/** The options of the session. @throws {CliError} if the delay or the owner is too long. */
export function sessionOf(
  { ttlSeconds }: Pace,
  {
    "release-delay": text = "0s",
    owner: given,
  }: { readonly "release-delay"?: string | undefined; readonly owner?: string | undefined },
): SessionOptions {
  const owner = shownText("owner", given);
  const releaseDelayMs = parseDuration("release-delay", text);
  if (releaseDelayMs <= MAX_RELEASE_DELAY_MS) return { ttlSeconds, releaseDelayMs, owner };
  throw usageError(`--release-delay must be at most 1h, got ${JSON.stringify(text)}`);
}

/** A duration that must not be 0. */
export function positiveDuration(flag: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const ms = parseDuration(flag, text);
  if (ms === 0) throw usageError(`--${flag} must be more than 0, got ${JSON.stringify(text)}`);
  return ms;
}

/** Lines of `run` and `lead` on standard error: standard output belongs to the command. */
export class Reporter {
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
    if (this.wantsJson) return void this.io.stderr.write(json(event));
    const line = `leasehold: ${printable(text, Infinity)}`;
    // A log has one line for each; a person reads words that are not cut in two.
    const lines = this.#terminal ? wrap(line, columnsOf(this.io.stderr), "  ") : [line];
    this.io.stderr.write(`${lines.join("\n")}\n`);
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

const [FIRST_GAP_MS, MAX_GAP_MS] = [1000, 60_000];

/** Which failed attempts get a line: the first one, and the next ones after 1 s, 2 s, 4 s and so on, up to a minute. */
export class RetryLines {
  #cause: string | undefined;
  #gapMs = FIRST_GAP_MS;
  #dueAt = -Infinity;
  #last = -Infinity;

  /** `cause`: the code of the error; another one gets a line at once. `now`: monotonic milliseconds. */
  isDue(cause: string, now: number): boolean {
    // Failures of one outage are closer together: attempts pause for half a minute at most.
    if (cause !== this.#cause || now - this.#last > 2 * MAX_GAP_MS) this.reset();
    this.#cause = cause;
    this.#last = now;
    if (now < this.#dueAt) return false;
    this.#dueAt = now + this.#gapMs;
    this.#gapMs = Math.min(2 * this.#gapMs, MAX_GAP_MS);
    return true;
  }

  /** The next failure is the first one again. */
  reset(): void {
    this.#gapMs = FIRST_GAP_MS;
    this.#dueAt = -Infinity;
  }
}

/** Reports attempts that failed because etcd does not answer, or the session is lost, and that are made again. */
export class Retries {
  readonly #lines = new RetryLines();

  constructor(
    private readonly reporter: Reporter,
    private readonly name: string,
  ) {}

  failed(error: LeaseholdError, delayMs: number): void {
    const { code } = error;
    const message = messageOf(error);
    const event = { event: "retrying", name: this.name, message, delayMs: Math.round(delayMs) } as const;
    if (!this.#lines.isDue(code, systemClock.monotonic())) return this.reporter.event(event);
    const text =
      code === "SESSION_LOST"
        ? `lost the place in the queue (${message}); joining again`
        : `${message}; next attempt in ${formatDuration(delayMs)}`;
    this.reporter.line(text, event);
  }

  reset(): void {
    this.#lines.reset();
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

const FORWARDED = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"] as const;

/** The signals that this process gets for its command. */
export class CommandSignals {
  /** Aborts when a signal is to end this program before there is a command. */
  readonly signal: AbortSignal;
  #receiver: ((name: NodeJS.Signals) => void) | undefined;
  readonly #quit = new AbortController();
  readonly #stops: (() => void)[] = [];

  /**
   * @param ended SIGINT, SIGTERM or SIGHUP has arrived
   * @param ending the signals that abort `ended`
   */
  constructor(
    ended: AbortSignal,
    private readonly ending: Set<NodeJS.Signals>,
  ) {
    this.signal = AbortSignal.any([ended, this.#quit.signal]);
    for (const name of FORWARDED) {
      const received = (): void => {
        this.#receiver?.(name);
        if (name === "SIGQUIT") this.#quit.abort(name);
      };
      process.on(name, received);
      this.#stops.push(() => process.off(name, received));
    }
  }

  /** Takes the signals while there is a command. SIGHUP is for the command alone then; the others end this program, too. */
  set receiver(receiver: ((name: NodeJS.Signals) => void) | undefined) {
    this.#receiver = receiver;
    if (receiver) this.ending.delete("SIGHUP");
    else this.ending.add("SIGHUP");
  }

  /** 128 plus the number of the signal that ended the program before there was a command. */
  get exitCode(): number | undefined {
    const name = this.signal.reason as NodeJS.Signals;
    return this.signal.aborted ? EXIT.signal + os.constants.signals[name] : undefined;
  }

  stop(): void {
    for (const stop of this.#stops) stop();
  }
}
