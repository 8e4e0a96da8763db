// Words and flags of the program. An unknown flag, a missing value and a wrong number of words end it with code 64 before it
// connects. `ETCDCTL_*` variables that users have set for etcdctl work here, with its rules; a flag wins over its variable.
import type { parseArgs, ParseArgsConfig } from "node:util";
import type { ConnectOptions } from "../../index.js";
import { didYouMean, suggestions } from "../../base/options/check.js";
import { discoveryOf, etcdctlConnection, variableOf } from "../../base/options/etcdctl.js";
import type { AnyCommand, Flags, Given } from "./command.js";
import { type Io, usageError, wrap } from "./io.js";

/** The flags that every command has: those of etcdctl, with its names, and --server-name. */
export const CONNECTION_FLAGS = {
  endpoints: {
    value: "HOST:PORT,...",
    text: "members of etcd; ETCDCTL_ENDPOINTS; default 127.0.0.1:2379",
  },
  cacert: {
    value: "FILE",
    text: "certificates of the authorities, PEM; ETCDCTL_CACERT; default those of Node.js",
  },
  cert: { value: "FILE", text: "certificate of this client, PEM; ETCDCTL_CERT" },
  key: { value: "FILE", text: "key of this client, PEM; ETCDCTL_KEY" },
  "server-name": { value: "HOST", text: "name in the members' certificates, if endpoints are addresses" },
  user: { value: "NAME[:PASSWORD]", text: "user of etcd; ETCDCTL_USER" },
  password: { value: "TEXT", text: "its password; better ETCDCTL_PASSWORD, which other users cannot see" },
} as const satisfies Flags;

type ConnectionFlags = Partial<Given<typeof CONNECTION_FLAGS>>;

/** The options of `connect` from the flags, or else from etcdctl's environment. */
export function connectionOf(flags: ConnectionFlags, env: Io["env"]): ConnectOptions {
  const discovery = flags.endpoints === undefined ? discoveryOf(env) : undefined;
  return etcdctlConnection((setting) => {
    const flag = flags[setting];
    return flag === undefined
      ? {
          name: env[variableOf(setting)] ? variableOf(setting) : `--${setting}`,
          text: env[variableOf(setting)],
        }
      : { name: `--${setting}`, text: flag };
  }, discovery);
}

const GENERAL_FLAGS = {
  json: { text: "JSON on standard output, one object on a line" },
  help: { short: "h", text: "show this help" },
} as const satisfies Flags;

/** The flags that every command has. */
export const COMMON_FLAGS = { ...CONNECTION_FLAGS, ...GENERAL_FLAGS } as const satisfies Flags;

type Options = NonNullable<ParseArgsConfig["options"]>;

/** The words of one command line, after the name of the command. */
export interface Parsed {
  readonly flags: Readonly<Record<string, string | true | undefined>>;
  readonly positionals: readonly string[];
  readonly command: readonly string[];
}

/** How many of the words are flags of every command, with their values, before the name of the command. */
export function leadingFlags(words: readonly string[]): number {
  let count = 0;
  for (let word = words[0]; word !== undefined; word = words[count]) {
    const [, name = ""] = /^--([a-z-]+)$/.exec(word) ?? /^--([a-z-]+)=/.exec(word) ?? [];
    const flag = Object.hasOwn(COMMON_FLAGS, name) ? (COMMON_FLAGS as Flags)[name] : undefined;
    if (!flag || name === "help") break;
    count += flag.value === undefined || word.includes("=") ? 1 : 2;
  }
  return Math.min(count, words.length);
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
    return process.getBuiltinModule("node:util").parseArgs({
      args: [...words],
      options: Object.fromEntries(options) as Options,
      allowPositionals: true,
    });
  } catch (error) {
    // The error's first sentence says which flag is wrong; the others explain "--" to users of other programs.
    const [what = ""] = (error as Error).message.split(/\. |\n/);
    const [, unknown] = /^Unknown option '--([^']*)'/.exec(what) ?? [];
    const known = Object.keys({ ...COMMON_FLAGS, ...command.flags });
    const near = unknown === undefined ? [] : suggestions(unknown, known);
    const [, dashed] = /^Option '(--[^' ]+)' argument is ambiguous/.exec(what) ?? [];
    const help =
      dashed === undefined
        ? didYouMean(near.map((name) => `--${name}`))
        : `: write ${dashed}=VALUE for one that begins with a dash`;
    throw usageError(`${what.replace(/\.$/, "")}${help}`);
  }
}

function checkWords(
  { name, args, positionals: [min, max], takesCommand }: AnyCommand,
  words: readonly string[],
  rest: readonly string[],
): void {
  const usage = `usage: leasehold ${name} ${args}`;
  if (words.length < min || words.length > max) throw usageError(usage);
  if (takesCommand ? rest.length === 0 : rest.length > 0) throw usageError(usage);
}

/** Columns of a text that goes to no terminal. */
const WIDTH = 100;

const ERROR_CODES =
  "Errors of every command: 64 wrong arguments, 69 etcd does not answer, 70 a defect, 74 the output cannot be written, 77 etcd refused.";

/** `leasehold --help`. */
export const overview = (commands: readonly AnyCommand[], room = WIDTH): string =>
  [
    ...wrap("leasehold: distributed locks and leader election on etcd, from the command line", room),
    "",
    "usage: leasehold COMMAND [FLAGS] [ARGS]",
    "",
    ...columns(
      commands.map(({ name, args, summary }) => [`  ${name} ${args}`.trimEnd(), summary]),
      room,
    ),
    "",
    ...wrap(
      "leasehold help COMMAND explains one of them, with its flags. --json and the flags for the connection may also stand before its name. leasehold --version prints the version.",
      room,
    ),
    "",
  ].join("\n");

/** `leasehold COMMAND --help`. `room`: the columns of a terminal, whose lines are broken there. */
export const helpOf = ({ name, args, help, flags, needsNoEtcd }: AnyCommand, room = WIDTH): string =>
  [
    ...wrap(`usage: leasehold ${name} [FLAGS] ${args}`.trimEnd(), room, "  "),
    "",
    ...help.flatMap((paragraph) => [...wrap(paragraph, room), ""]),
    ...(Object.keys(flags).length > 0 ? ["flags:", ...flagLines(flags, room), ""] : []),
    "flags of every command:",
    ...flagLines(needsNoEtcd ? GENERAL_FLAGS : COMMON_FLAGS, room),
    "",
    ...wrap(ERROR_CODES, room),
    "",
  ].join("\n");

const flagLines = (flags: Flags, room: number): string[] =>
  columns(
    Object.entries(flags).map(([name, { value, short, text }]) => [
      `  ${short === undefined ? "" : `-${short}, `}--${name}${value === undefined ? "" : ` ${value}`}`,
      text,
    ]),
    room,
  );

const columns = (rows: readonly (readonly [string, string])[], room: number): string[] => {
  const width = Math.max(...rows.map(([left]) => left.length));
  const indent = " ".repeat(Math.min(width + 2, room / 2));
  return rows.flatMap(([left, right]) => wrap(`${left.padEnd(width)}  ${right}`, room, indent));
};
