import { parseArgs, type ParseArgsConfig } from "node:util";
import type { AnyCommand, Flags } from "./command.js";
import { CONNECTION_FLAGS } from "./connection.js";
import { usageError } from "./exit.js";

/** The flags that every command has. */
export const COMMON_FLAGS = {
  ...CONNECTION_FLAGS,
  json: { text: "JSON on standard output, one object on a line" },
  help: { short: "h", text: "show this help" },
} as const satisfies Flags;

type Options = NonNullable<ParseArgsConfig["options"]>;

/** The words of one command line, after the name of the command. */
export interface Parsed {
  readonly flags: Readonly<Record<string, string | true | undefined>>;
  readonly positionals: readonly string[];
  readonly command: readonly string[];
}

/** @throws {CliError} on an unknown flag, a flag without its value, and too few or too many words. */
export function parse(command: AnyCommand, words: readonly string[]): Parsed {
  const dashes = words.indexOf("--");
  const own = dashes === -1 ? words : words.slice(0, dashes);
  const rest = dashes === -1 ? [] : words.slice(dashes + 1);
  const { values, positionals } = parsed(command, own);
  const flags = values as Parsed["flags"];
  if (flags["help"] === undefined) checkWords(command, positionals, rest);
  return { flags, positionals, command: rest };
}

function parsed(command: AnyCommand, words: readonly string[]): ReturnType<typeof parseArgs> {
  const options = Object.entries({ ...COMMON_FLAGS, ...command.flags } as Flags).map(
    ([name, { value, short }]) => [
      name,
      { type: value === undefined ? "boolean" : "string", ...(short !== undefined && { short }) } as const,
    ],
  );
  try {
    return parseArgs({
      args: [...words],
      options: Object.fromEntries(options) as Options,
      allowPositionals: true,
    });
  } catch (error) {
    // Its first sentence says which flag is wrong; the others explain "--" to users of other programs.
    const [what = ""] = (error as Error).message.split(/\. |\n/);
    throw usageError(what.replace(/\.$/, ""), command.name);
  }
}

function checkWords(
  { name, args, positionals: [min, max], takesCommand }: AnyCommand,
  words: readonly string[],
  rest: readonly string[],
): void {
  const usage = `usage: leasehold ${name} ${args}`;
  if (words.length < min || words.length > max) throw usageError(usage, name);
  if (takesCommand ? rest.length === 0 : rest.length > 0) throw usageError(usage, name);
}
