import type { Cluster, ConnectOptions } from "../../index.js";
import { type Io, usageError } from "./io.js";

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
/** The longest timer of Node.js. */
const MAX_MS = 2_147_483_647;

/** `30s`, `500ms`, `1.5m`, `2h`, `7d`, or `0`, in milliseconds. A number without a unit is an error, because it is ambiguous. */
export function parseDuration(flag: string, text: string, longestMs = MAX_MS): number {
  const [, digits, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text === "0" ? "0s" : text) ?? [];
  const ms = Math.round(Number(digits) * (UNITS[unit ?? ""] ?? NaN));
  if (!(ms <= longestMs))
    throw usageError(`--${flag} must be a duration such as 30s, 500ms or 2m, got ${JSON.stringify(text)}`);
  return ms;
}

/** A whole number of decimal digits, with a minus sign only if `min` is below 0. `max`: Infinity for none. */
export function parseInteger(
  flag: string,
  text: string,
  { min, max }: { readonly min: number; readonly max: number },
): number {
  const number = (min < 0 ? /^-?\d{1,16}$/ : /^\d{1,16}$/).test(text) ? Number(text) : NaN;
  if (number >= min && number <= max) return number;
  const rule = `a whole number from ${min}${max === Infinity ? "" : ` to ${max}`}`;
  throw usageError(`--${flag} must be ${rule}, got ${JSON.stringify(text)}`);
}

const [MIN_TTL_SECONDS, MAX_TTL_SECONDS] = [2, 86_400];

/** The value of `--ttl`, in seconds. */
export function parseTtl(text: string): number {
  const seconds = parseDuration("ttl", text) / 1000;
  if (Number.isInteger(seconds) && seconds >= MIN_TTL_SECONDS && seconds <= MAX_TTL_SECONDS) return seconds;
  const rule = `whole seconds from ${MIN_TTL_SECONDS}s to ${MAX_TTL_SECONDS}s`;
  throw usageError(`--ttl must be ${rule}, got ${JSON.stringify(text)}`);
}

/** `41 s`, `3 min`, `2.5 h`: two digits at most say enough. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

/** A flag of a command. */
interface Flag {
  /** The placeholder of its value in the help, such as "DURATION"; a flag without one is a switch. */
  readonly value?: string;
  readonly short?: string;
  /** One line for the help, with the default. */
  readonly text: string;
}

export type Flags = Readonly<Record<string, Flag>>;

/** What the user gave for each flag: a string, or true for a switch. */
export type Given<F extends Flags> = {
  readonly [K in keyof F]: (F[K] extends { readonly value: string } ? string : true) | undefined;
};

/** A command of any flags, as the table of commands has it. */
export type AnyCommand = Omit<Command, "run"> & { run(call: AnyCall): Promise<number> };

/** A call whose flags are those that its command has defined. */
export type AnyCall = Omit<Call, "flags"> & {
  readonly flags: Readonly<Record<string, string | true | undefined>>;
};

/** A subcommand of `leasehold`. */
interface Command<F extends Flags = Flags> {
  readonly name: string;
  /** As the usage line shows them: `NAME -- COMMAND [ARGS]`. */
  readonly args: string;
  /** How many there may be before `--`. */
  readonly positionals: readonly [min: number, max: number];
  /** Whether a command to run follows `--`. */
  readonly takesCommand?: boolean;
  /** Whether it connects to no etcd that the user has: its help has no flags for that. */
  readonly needsNoEtcd?: boolean;
  /** Whether it ends, as programs do by SIGPIPE, when the reader of its output has gone. */
  readonly endsWithOutput?: boolean;
  /** One line, for the list of commands. */
  readonly summary: string;
  /** The paragraphs of its help, after the usage line. */
  readonly help: readonly string[];
  readonly flags: F;
  /** Resolves with the exit code. What it rejects with is reported on one line: see `cliErrorOf`. */
  run(call: Call<F>): Promise<number>;
}

/** One call of a command. */
export interface Call<F extends Flags = Flags> {
  readonly io: Io;
  readonly positionals: readonly string[];
  readonly flags: Given<F>;
  /** The words after `--`. */
  readonly command: readonly string[];
  /** Whether all output is JSON, one object on a line. */
  readonly json: boolean;
  /**
   * Aborts with the signal's name as reason when the program is asked to stop: SIGINT, SIGTERM or SIGHUP; with "SIGPIPE" if it
   * `endsWithOutput`.
   */
  readonly signal: AbortSignal;
  /** The signals that abort `signal` now. `run` and `lead` leave SIGHUP to their command, which most often reloads. */
  readonly endingSignals: Set<NodeJS.Signals>;
  /** Milliseconds since 1970, by the clock of this machine. */
  readonly now: () => number;
  /** The cluster of the flags and the environment. It is closed after the call. */
  readonly connect: (options?: Pick<ConnectOptions, "session" | "log" | "requestTimeoutMs">) => Cluster;
  /** What `connect` connects with. */
  readonly connection: ConnectOptions;
}

/** Checks the types of a command's own flags. */
export const command = <const F extends Flags>(definition: Command<F>): AnyCommand => ({
  ...definition,
  // `parse` accepts only the flags of the definition, each with or without a value as it says.
  run: (call) => definition.run(call as Call<F>),
});
