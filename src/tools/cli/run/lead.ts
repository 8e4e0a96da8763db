import {
  lead as leadElection,
  type Leadership,
  type LeadOptions,
  LockExpiringError,
  LockLostError,
} from "../../../index.js";
import { command } from "../command.js";
import { EXIT } from "../io.js";
import { type CommandTask, runCommand } from "./run-command.js";
import {
  CommandSignals,
  ENV_FLAG,
  PACE_FLAGS,
  paceOf,
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
    "The command has LEASEHOLD_NAME, LEASEHOLD_KEY, LEASEHOLD_FENCE and LEASEHOLD_LEASE in its environment, and no password " +
      "of etcd.",
    "With --on-wanted, the command gets the signal, once in a term, when another candidate waits: it may end, so that this one leads " +
      "next. A candidate that waits already when the term begins counts, too.",
    "Exit codes: the command's own; 128 plus the number of the signal that ended it; 126 not executable; 127 no such command.",
  ],
  flags: {
    value: { value: "TEXT", text: "what others read about this candidate; default HOST:PID" },
    ...PACE_FLAGS,
    ...WANTED_FLAG,
    ...ENV_FLAG,
  },
  async run(call) {
    const pace = paceOf(call.flags);
    const session = sessionOf(pace, call.flags);
    const onWanted = signalOf("on-wanted", call.flags["on-wanted"]);
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
      return await leadUntilEnd(task, call.positionals[0] ?? "", { ...session, value: flags.value });
    } finally {
      signals.stop();
    }
  },
});

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
