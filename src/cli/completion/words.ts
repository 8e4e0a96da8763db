import { COMMON_FLAGS } from "../command-line/arguments.js";
import type { AnyCommand, Flags } from "../command-line/command.js";

/** A flag, as a shell completes it. */
export interface WordFlag {
  readonly name: string;
  readonly short: string | undefined;
  readonly text: string;
  /** What follows it: nothing, a file, one of some words, or a text that cannot be completed. */
  readonly value: "none" | "file" | "text" | readonly string[];
}

/** A command, as a shell completes it. */
export interface WordCommand {
  readonly name: string;
  readonly summary: string;
  readonly flags: readonly WordFlag[];
  /** What its first word may be; empty if that cannot be known without a connection. */
  readonly words: readonly string[];
  /** Whether a command to run follows `--`. */
  readonly takesCommand: boolean;
}

/** From the definitions that the program itself parses, so that both always agree. */
export const wordsOf = (commands: readonly AnyCommand[]): WordCommand[] =>
  commands.map(({ name, summary, args, flags, takesCommand = false }) => ({
    ...{ name, summary, takesCommand },
    words: choicesIn(args),
    flags: flagsOf({ ...flags, ...COMMON_FLAGS }),
  }));

const flagsOf = (flags: Flags): WordFlag[] =>
  Object.entries(flags).map(([name, { short, text, value }]) => ({
    name,
    short,
    text,
    value: kindOf(value),
  }));

function kindOf(placeholder: string | undefined): WordFlag["value"] {
  if (placeholder === undefined) return "none";
  if (placeholder === "FILE") return "file";
  const choices = choicesIn(placeholder);
  return choices.length > 0 ? choices : "text";
}

/** `bash|zsh|fish` is a choice of words; a placeholder has capitals. */
const choicesIn = (text: string): string[] => (/^[a-z-]+(\|[a-z-]+)+$/.test(text) ? text.split("|") : []);

/** What else may follow the name of the program. */
export const FIRST_FLAGS = ["--help", "--version"];
