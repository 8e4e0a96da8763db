import { inspect, type Cluster } from "../../index.js";
import { command, type Call, type Given } from "../command-line/command.js";
import { CliError, EXIT, usageError } from "../command-line/exit.js";
import { acquire, type Wanted } from "./acquire.js";
import { runCommand } from "./run-command.js";
import { runOnce, slotOf } from "./run-once.js";
import { CommandSignals } from "./signals.js";
import { ENV_FLAG, PACE_FLAGS, paceOf, positiveDuration, withoutPassword } from "./settings.js";
import { codeOf } from "./supervisor.js";
import { Teller } from "./teller.js";

const FLAGS = {
  wait: { value: "DURATION", text: "wait no longer than this; exit code 75" },
  try: { text: "do not wait at all; exit code 75" },
  shared: { text: "hold the lock as a reader, beside other readers" },
  permits: { value: "N", text: "hold one of N permits, 1 to 1000" },
  ...PACE_FLAGS,
  once: { value: "SLOT", text: "run at most once for this number, of all that run NAME with it" },
  rerun: {
    value: "WHEN",
    text: "with --once: never, if-lost: if a run was ended early or lost, or if-failed: also if it failed; default never",
  },
  "if-held": {
    value: "WHEN",
    text: "with --once, while another holder has the lock: wait, and run late, or skip; default wait",
  },
  ...ENV_FLAG,
  "max-hold": { value: "DURATION", text: "end the command when it has run so long; exit code 76" },
} as const;

export const run = command({
  name: "run",
  args: "NAME -- COMMAND [ARGS]",
  positionals: [1, 1],
  takesCommand: true,
  summary: "run a command while holding a lock",
  help: [
    "Takes the lock, runs the command in a process group of its own, releases the lock, and exits with the command's code.",
    "The command has LEASEHOLD_NAME, LEASEHOLD_KEY, LEASEHOLD_LEASE and, if the lock is exclusive, LEASEHOLD_FENCE in its\n" +
      "environment, and no password of etcd. Signals are passed on to it.",
    "If etcd stops renewing the lease, the command gets SIGTERM, and its group SIGKILL after the grace, before another client\n" +
      "can get the lock. If the lock is lost at once (key deleted, lease revoked), the group gets SIGKILL at once.",
    "With --once, the command does not run if the slot was run before, or is running, by any client, or is skipped: exit code 0.\n" +
      "If its run was lost, which is what counts when the command was ended early: 76. If it has failed: 79.",
    "Exit codes: the command's own; 128 plus the number of the signal that ended it; 75 not granted in time; 76 the lock was\n" +
      "lost or --max-hold has passed; 126 not executable; 127 no such command.",
  ],
  flags: FLAGS,
  async run(call) {
    const [name = ""] = call.positionals;
    const pace = paceOf(call.flags);
    const wanted = wantedOf(name, call.flags);
    const slot = slotOf(call.flags);
    const maxHoldMs = positiveDuration("max-hold", call.flags["max-hold"]);
    const cluster = call.connect({ session: { ttlSeconds: pace.ttlSeconds } });
    const signals = new CommandSignals(call.signal, call.endingSignals);
    const teller = new Teller(call.io, call.json);
    const env = call.flags["keep-env"] ? call.io.env : withoutPassword(call.io.env);
    const task = { cluster, words: call.command, env, pace, maxHoldMs, teller, signals };
    try {
      if (slot) return await runOnce(task, { ...wanted, ...slot });
      const hold = await acquire(cluster, wanted, { teller, signal: signals.signal });
      if (!hold) throw await taken(call, cluster, name);
      return codeOf(await runCommand(task, hold));
    } catch (error) {
      if (signals.exitCode === undefined || error !== signals.signal.reason) throw error;
      return signals.exitCode;
    } finally {
      signals.stop();
    }
  },
});

function wantedOf(name: string, flags: Given<typeof FLAGS>): Wanted {
  if (flags.try && flags.wait !== undefined) throw usageError("--try and --wait exclude each other", "run");
  if (flags.shared && flags.permits !== undefined)
    throw usageError("--shared and --permits exclude each other", "run");
  const waitMs = flags.try ? 0 : positiveDuration("wait", flags.wait);
  return { name, shared: flags.shared === true, permits: permitsOf(flags.permits), waitMs };
}

function permitsOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const permits = /^\d+$/.test(text) ? Number(text) : NaN;
  if (!(permits >= 1 && permits <= 1000))
    throw usageError(`--permits must be a number from 1 to 1000, got ${JSON.stringify(text)}`);
  return permits;
}

/** Names the holder if etcd tells it: the lock may have been released since. */
async function taken({ signal }: Pick<Call, "signal">, cluster: Cluster, name: string): Promise<CliError> {
  const state = await inspect(cluster, name, { limit: 1, signal }).catch(() => undefined);
  const holder = state?.holders[0];
  const by = holder ? `: held by ${holder.owner ?? holder.key}` : "";
  return new CliError(EXIT.timedOut, `lock "${name}" is taken${by}`);
}
