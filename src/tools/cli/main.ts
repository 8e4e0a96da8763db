import { type Cluster, connect } from "../../index.js";
import { printable } from "../../base/util/printable.js";
import { connectionOf, helpOf, leadingFlags, overview, parse } from "./arguments.js";
import type { AnyCall, AnyCommand } from "./command.js";
import { allCommands, commandOf, isCommandName } from "./commands.js";
import {
  CliError,
  cliErrorOf,
  columnsOf,
  endSignal,
  type EndSignal,
  EXIT,
  type Io,
  json,
  type Output,
  outputEnd,
  type OutputEnd,
  wrap,
  write,
} from "./io.js";
import type { ErrorJson } from "./json-types.js";

/** From the package that this file is in. */
function version(): string {
  const { readFileSync } = process.getBuiltinModule("node:fs");
  const text = readFileSync(new URL("../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { readonly version: string }).version;
}

/** An unfinished close would keep the process alive. */
let exitsAtOnce = false;

/** Runs one command line and resolves with the exit code of the program. */
async function main(words: readonly string[], io: Io): Promise<number> {
  const wantsJson = words.slice(0, words.includes("--") ? words.indexOf("--") : undefined).includes("--json");
  const output = outputEnd(io);
  // Flags of every command may stand before its name.
  const flags = leadingFlags(words);
  const [name, ...others] = words.slice(flags);
  try {
    if (name === undefined || name === "--help" || name === "-h" || name === "help") {
      const exitCode = await help(name, others[0], io);
      return output.exitCode ?? exitCode;
    }
    if (name === "--version" || name === "version") {
      await write(io, `leasehold ${version()}\n`);
      return output.exitCode ?? EXIT.ok;
    }
    return await dispatch(await commandOf(name), [...words.slice(0, flags), ...others], { io, output });
  } catch (error) {
    const { message, exitCode, hint } = cliErrorOf(error);
    const command = name !== undefined && isCommandName(name) ? ` ${name}` : "";
    const help = exitCode === EXIT.usage ? `see leasehold${command} --help` : undefined;
    report(io, new CliError(exitCode, message, hint ?? help), wantsJson);
    return exitCode;
  }
}

async function help(name: string | undefined, of: string | undefined, io: Io): Promise<number> {
  const stream = name === undefined ? io.stderr : io.stdout;
  const room = stream.isTTY ? columnsOf(stream) : undefined;
  const text =
    name === "help" && of !== undefined
      ? helpOf(await commandOf(of), room)
      : overview(await allCommands(), room);
  await write({ stdout: stream }, text);
  return name === undefined ? EXIT.usage : EXIT.ok;
}

interface Streams {
  readonly io: Io;
  readonly output: OutputEnd;
}

async function dispatch(
  command: AnyCommand,
  words: readonly string[],
  { io, output }: Streams,
): Promise<number> {
  const parsed = parse(command, words);
  if (parsed.flags["help"] !== undefined) {
    await write(io, helpOf(command, io.stdout.isTTY ? columnsOf(io.stdout) : undefined));
    return output.exitCode ?? EXIT.ok;
  }
  const connection = connectionOf(parsed.flags, io.env);
  const clusters: Cluster[] = [];
  const end = endSignal();
  const open: AnyCall["connect"] = (options) => {
    clusters.push(connect({ ...connection, ...options }));
    return clusters.at(-1) as Cluster;
  };
  const outputs = command.endsWithOutput ? [output] : [];
  const signal = AbortSignal.any([end, ...outputs].map((ending) => ending.signal));
  const wants = {
    json: parsed.flags["json"] === true,
    signal,
    endingSignals: end.ends,
    now: () => Date.now(),
  };
  const running = command.run({ io, ...parsed, ...wants, connect: open, connection });
  const exitCode = await settled(running, [end, ...outputs]).finally(() => close(clusters, end));
  // The error of a last write comes late.
  return exitCode === EXIT.ok ? (outputs[0]?.exitCode ?? exitCode) : exitCode;
}

/**
 * Without etcd, a close lasts up to a TTL: another signal cuts it short, and the leases expire by themselves. A signal after the close
 * ends a program that is still running, with its own exit code: without a listener, that would be the signal's.
 */
async function close(clusters: readonly Cluster[], end: EndSignal): Promise<void> {
  const closed = Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 })));
  const isCut = await Promise.race([closed.then(() => false), end.again()]);
  exitsAtOnce ||= isCut;
  void end.again().then(() => process.exit());
}

/** What a command rejects with after it was asked to stop is no error. */
async function settled(
  running: Promise<number>,
  endings: readonly { readonly exitCode: number | undefined }[],
): Promise<number> {
  try {
    return await running;
  } catch (error) {
    const exitCode = endings.find((ending) => ending.exitCode !== undefined)?.exitCode;
    if (exitCode === undefined) throw error;
    return exitCode;
  }
}

/** Words are broken for a person who reads them, not for a program. */
const roomOf = (stream: Output): number => (stream.isTTY ? columnsOf(stream) : Infinity);

/** One line on standard error, broken on a terminal: what failed, and what to do. */
function report({ stderr }: Io, { message, hint, exitCode }: CliError, wantsJson: boolean): void {
  const error = { message, ...(hint !== undefined && { hint }), exitCode };
  if (wantsJson) return void stderr.write(json({ error } satisfies ErrorJson));
  const text = exitCode === EXIT.internal ? message : printable(message, Infinity);
  const line = `leasehold: ${text}${hint === undefined ? "" : `; ${hint}`}`;
  // A defect has a stack of many lines.
  const lines = exitCode === EXIT.internal ? [line] : wrap(line, roomOf(stderr), "  ");
  stderr.write(`${lines.join("\n")}\n`);
}

/** Runs the command line of this process. */
export async function start(): Promise<void> {
  process.exitCode = await main(process.argv.slice(2), process);
  if (exitsAtOnce) process.exit();
}
