// The built program `leasehold`, as users start it.
import { spawn, type ChildProcess } from "node:child_process";
import { fileURLToPath } from "node:url";
import { owned } from "./owned.js";
import { Said } from "./said.js";

export const CLI = fileURLToPath(new URL("../../../dist/leasehold-cli.js", import.meta.url));

export interface CliSettings {
  /** `host:port`, for ETCDCTL_ENDPOINTS. */
  readonly endpoints?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** On a pseudo-terminal, by util-linux' `script`: standard output and standard error are one, with \r\n. */
  readonly terminal?: boolean;
  /** Runs in the terminal's shell before the program: `stty rows 24 cols 80`. */
  readonly before?: string;
  readonly input?: string;
}

export interface CliResult {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A running program. */
export interface RunningCli {
  readonly child: ChildProcess;
  /** Resolves when standard output, or standard error, has the text; rejects if the program ends before. */
  readonly says: (text: string | RegExp) => Promise<void>;
  readonly stdout: () => string;
  readonly stderr: () => string;
  readonly ended: Promise<CliResult>;
}

/** The program is a child of `script`, whose death it may take for a SIGHUP that it outlives. */
const WITH_TERMINAL = ["setpriv", "--pdeathsig", "KILL"];

const quote = (word: string): string => `'${word.replaceAll("'", `'\\''`)}'`;

export function startCli(words: readonly string[], settings: CliSettings = {}): RunningCli {
  const { endpoints, env = {}, terminal = false, before, input } = settings;
  const command = [process.execPath, CLI, ...words];
  const line = `${before === undefined ? "" : `${before}; `}exec ${[...WITH_TERMINAL, ...command].map(quote).join(" ")}`;
  const [file = "", ...args] = terminal ? ["script", "-qefc", line, "/dev/null"] : command;
  const child = owned(
    spawn(file, args, {
      env: { ...process.env, ...(endpoints !== undefined && { ETCDCTL_ENDPOINTS: endpoints }), ...env },
      stdio: "pipe",
    }),
  );
  const said = new Said(child);
  child.stdin.on("error", () => {});
  if (input !== undefined) child.stdin.end(input);
  return {
    child,
    says: (text) => said.says(text),
    stdout: () => said.stdout,
    stderr: () => said.stderr,
    ended: said.ended,
  };
}

export const runCli = (words: readonly string[], settings?: CliSettings): Promise<CliResult> =>
  startCli(words, settings).ended;
