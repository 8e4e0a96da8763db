import { lead as leadElection, type Leadership, LockExpiringError, LockLostError } from "../../index.js";
import { systemClock } from "../../util/clock.js";
import { command } from "../command.js";
import { EXIT } from "../io.js";
import { type CommandTask, runCommand } from "./run-command.js";
import { CommandSignals, ENV_FLAG, PACE_FLAGS, paceOf, Reporter, withoutPassword } from "./settings.js";

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
    "Exit codes: the command's own; 128 plus the number of the signal that ended it; 126 not executable; 127 no such command.",
  ],
  flags: {
    value: { value: "TEXT", text: "what others read about this candidate; default HOST:PID" },
    ...PACE_FLAGS,
    ...ENV_FLAG,
  },
  async run(call) {
    const pace = paceOf(call.flags);
    const signals = new CommandSignals(call.signal, call.endingSignals);
    const { io, command: words, flags } = call;
    const common = { cluster: call.connect(), pace, reporter: new Reporter(io, call.json), signals };
    const task = {
      ...common,
      words,
      env: flags["keep-env"] ? io.env : withoutPassword(io.env),
      maxHoldMs: undefined,
    };
    try {
      return await leadUntilEnd(task, call.positionals[0] ?? "", flags.value);
    } finally {
      signals.stop();
    }
  },
});

const [FIRST_GAP_MS, MAX_GAP_MS] = [1000, 60_000];

/** Which failed campaigns get a line: the first one, and the next ones after 1 s, 2 s, 4 s and so on, up to a minute. */
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

/** Resolves when the command has ended by itself, or the program was asked to stop. */
async function leadUntilEnd(task: CommandTask, name: string, value: string | undefined): Promise<number> {
  const { cluster, pace, reporter, signals } = task;
  const stop = new AbortController();
  let code: number | undefined;
  const retries = new RetryLines();
  const term = async (leadership: Leadership): Promise<void> => {
    retries.reset();
    const settled = await runCommand(task, leadership).catch(lostBefore);
    if (settled === undefined || settled.ending !== undefined) return;
    code = settled.exitCode;
    stop.abort();
  };
  const signal = AbortSignal.any([stop.signal, signals.signal]);
  await leadElection(cluster, name, term, {
    ...{ signal, value, ttlSeconds: pace.ttlSeconds },
    onRetry: ({ code: cause, message }, delayMs) => {
      const event = { event: "retrying", name, message, delayMs: Math.round(delayMs) } as const;
      if (retries.isDue(cause, systemClock.monotonic()))
        reporter.line(`${message}; next attempt in ${Math.round(delayMs / 1000)} s`, event);
      else reporter.event(event);
    },
  });
  return code ?? signals.exitCode ?? EXIT.ok;
}

/** Ignores that a leadership was lost, or in doubt, before its command could be started: the next term starts it. */
function lostBefore(error: unknown): undefined {
  if (error instanceof LockLostError || error instanceof LockExpiringError) return;
  throw error;
}
