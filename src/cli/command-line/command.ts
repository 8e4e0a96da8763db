import type { Cluster, ConnectOptions } from "../../index.js";
import type { Io } from "./io.js";

/** A flag of a command. */
export interface Flag {
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
export interface Command<F extends Flags = Flags> {
  readonly name: string;
  /** As the usage line shows them: `NAME -- COMMAND [ARGS]`. */
  readonly args: string;
  /** How many there may be before `--`. */
  readonly positionals: readonly [min: number, max: number];
  /** Whether a command to run follows `--`. */
  readonly takesCommand?: boolean;
  /** Whether it ends, as programs do by SIGPIPE, when the reader of its output has gone. */
  readonly endsWithOutput?: boolean;
  /** One line, for the list of commands. */
  readonly summary: string;
  /** The paragraphs of its help, after the usage line. */
  readonly help: readonly string[];
  readonly flags: F;
  /** Resolves with the exit code. What it rejects with is told in one line: see `cliErrorOf`. */
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
   * Aborts with the signal's name as reason when the program is told to end: SIGINT, SIGTERM or SIGHUP; with "SIGPIPE" if it
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
