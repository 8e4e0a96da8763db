import {
  lead as leadElection,
  type Leadership,
  type LeadOptions,
  LockExpiringError,
  LockLostError,
} from "../../../index.js";
import { command } from "../command.js";
import { EXIT, usageError } from "../io.js";
import { type CommandTask, runCommand } from "./run-command.js";
import {
  CommandSignals,
  ENV_FLAG,
  PACE_FLAGS,
  paceOf,
  priorityOf,
  sessionOf,
  Reporter,
  Retries,
  signalOf,
  WANTED_FLAG,
  withoutPassword,
} from "./settings.js";

export const lead = command({
  name: "lead",
  args: "NAME -- COMMAND [ARGS]",
  positionals: [1, 1],
  takesCommand: true,
  summary: "run a command while leading an election",
  help: [
    "Campaigns, and runs the command while this process leads. When the leadership is lost, the command is ended before " +
      "another candidate can lead, and this process campaigns again: each term starts the command anew.",
    "When the command ends by itself, or by a signal that was passed on to it, leasehold resigns and exits with its code. It " +
      "does not start the command again.",
    "The command has LEASEHOLD_NAME, LEASEHOLD_KEY, LEASEHOLD_FENCE and LEASEHOLD_LEASE (hexadecimal) in its environment, and no password " +
      "of etcd.",
    "With --on-wanted, the command gets the signal, once in a term, when another candidate waits: it may end, so that this one leads " +
      "next. A candidate that waits already when the term begins counts, too.",
    "With --priority or --labels, a candidate whose turn comes while one of a higher priority waits hands over to that one, and waits " +
      "again. A leader stays until its term ends: end it by SIGTERM, and of those that wait, the one with the highest priority leads. " +
      "leasehold candidates NAME lists them.",
    "Exit codes: the command's own; 128 plus the number of the signal that ended it; 126 not executable; 127 no such command.",
  ],
  flags: {
    value: { value: "TEXT", text: "what others read about this candidate; default HOST:PID" },
    priority: {
      value: "N",
      text: "a whole number, -1000 to 1000: of the candidates that wait, the highest leads next; default 0",
    },
    labels: {
      value: "NAME=VALUE,...",
      text: "what others see of this candidate, and may choose by: a zone or a version, at most 16",
    },
    ...PACE_FLAGS,
    ...WANTED_FLAG,
    ...ENV_FLAG,
  },
  async run(call) {
    const pace = paceOf(call.flags);
    const session = sessionOf(pace, call.flags);
    const onWanted = signalOf("on-wanted", call.flags["on-wanted"]);
    const says = { priority: priorityOf(call.flags.priority), labels: labelsOf(call.flags.labels) };
    const signals = new CommandSignals(call.signal, call.endingSignals);
    const { io, command: words, flags } = call;
    const common = { cluster: call.connect(), pace, reporter: new Reporter(io, call.json), signals };
    const task = {
      ...common,
      words,
      env: flags["keep-env"] ? io.env : withoutPassword(io.env),
      maxHoldMs: undefined,
      onWanted,
    };
    try {
      return await leadUntilEnd(task, call.positionals[0] ?? "", { ...session, ...says, value: flags.value });
    } finally {
      signals.stop();
    }
  },
});

const [MAX_LABELS, MAX_NAME_BYTES, MAX_VALUE_BYTES] = [16, 64, 256];

/** @throws {CliError} if the library would not take them. */
function labelsOf(text: string | undefined): Readonly<Record<string, string>> | undefined {
  if (text === undefined) return undefined;
  const labels = new Map<string, string>();
  for (const part of text.split(",")) {
    const [, name = "", value = ""] = /^([^=]+)=(.*)$/s.exec(part) ?? [];
    if (name === "") throw usageError(`--labels must be NAME=VALUE,..., got ${JSON.stringify(text)}`);
    if (labels.has(name)) throw usageError(`--labels has ${JSON.stringify(name)} twice`);
    if (Buffer.byteLength(name) > MAX_NAME_BYTES || Buffer.byteLength(value) > MAX_VALUE_BYTES)
      throw usageError(
        `--labels may have names of ${MAX_NAME_BYTES} bytes and values of ${MAX_VALUE_BYTES}, got ${JSON.stringify(part)}`,
      );
    labels.set(name, value);
  }
  if (labels.size > MAX_LABELS)
    throw usageError(`--labels must be at most ${MAX_LABELS}, got ${labels.size} of them`);
  return Object.fromEntries(labels);
}

/** Resolves when the command has ended by itself, or the program was asked to stop. */
async function leadUntilEnd(task: CommandTask, name: string, options: LeadOptions): Promise<number> {
  const { cluster, reporter, signals } = task;
  const stop = new AbortController();
  let code: number | undefined;
  const retries = new Retries(reporter, name);
  const term = async (leadership: Leadership): Promise<void> => {
    retries.reset();
    const settled = await runCommand(task, leadership).catch(lostBefore);
    if (settled === undefined || settled.ending !== undefined) return;
    code = settled.exitCode;
    stop.abort();
  };
  const signal = AbortSignal.any([stop.signal, signals.signal]);
  await leadElection(cluster, name, term, {
    ...options,
    signal,
    onRetry: (error, delayMs) => retries.failed(error, delayMs),
  });
  return code ?? signals.exitCode ?? EXIT.ok;
}

/** Ignores that a leadership was lost, or in doubt, before its command could be started: the next term starts it. */
function lostBefore(error: unknown): undefined {
  if (error instanceof LockLostError || error instanceof LockExpiringError) return;
  throw error;
}
