import {
  type Cluster,
  type Hold,
  inspect,
  type LockWaitOptions,
  Mutex,
  RwLock,
  Semaphore,
  type WaitOptions,
} from "../../../index.js";
import { type Call, command, type Given, parseInteger } from "../command.js";
import { CliError, EXIT, usageError } from "../io.js";
import { runCommand } from "./run-command.js";
import {
  CommandSignals,
  ENV_FLAG,
  PACE_FLAGS,
  paceOf,
  positiveDuration,
  priorityOf,
  Reporter,
  sessionOf,
  shownText,
  signalOf,
  WANTED_FLAG,
  withoutPassword,
} from "./settings.js";
import { runOnce, SLOT_FLAGS, slotOf } from "./slot.js";
import { codeOf } from "./supervisor.js";
import { holdersText, whileReporting } from "./waiting.js";

/** What is to be taken, and how long to wait for it. */
interface Wanted {
  readonly name: string;
  readonly shared: boolean;
  readonly permits: number | undefined;
  /** So many of the permits of a weighted semaphore. undefined: one of a plain one. */
  readonly weight: number | undefined;
  /** Of a mutex with priorities. undefined: of a plain one. */
  readonly priority: number | undefined;
  /** 0: do not wait. undefined: no limit. */
  readonly waitMs: number | undefined;
  readonly reason: string | undefined;
  readonly maxWaiting: number | undefined;
  /** undefined: it may wait for any lock. */
  readonly supersede: true | undefined;
}

interface Modes {
  readonly wait: (options: LockWaitOptions) => Promise<Hold>;
  readonly attempt: (options: WaitOptions) => Promise<Hold | undefined>;
}

/** Resolves with undefined if the lock is taken and `waitMs` is 0. */
async function acquire(
  cluster: Cluster,
  wanted: Wanted,
  { reporter, signal }: { readonly reporter: Reporter; readonly signal: AbortSignal },
): Promise<Hold | undefined> {
  const { wait, attempt } = modesOf(cluster, wanted);
  if (wanted.waitMs === 0) return attempt({ signal });
  // An outage that costs the waiter its lease costs it its place, not the wait.
  const { waitMs: timeoutMs, reason, maxWaiting, supersede } = wanted;
  const limits = { signal, timeoutMs, rejoin: true, reason, maxWaiting, ...(supersede && { supersede }) };
  return whileReporting(cluster, wanted, { reporter, call: () => wait(limits) });
}

function modesOf(cluster: Cluster, { name, shared, permits, weight, priority }: Wanted): Modes {
  if (permits !== undefined) {
    const semaphore = new Semaphore(cluster, name, permits, { weighted: weight !== undefined });
    return {
      wait: (o) => semaphore.acquire({ ...o, weight }),
      attempt: (o) => semaphore.tryAcquire({ ...o, weight }),
    };
  }
  if (shared) {
    const readers = new RwLock(cluster, name);
    return { wait: (o) => readers.readLock(o), attempt: (o) => readers.tryReadLock(o) };
  }
  const mutex = new Mutex(cluster, name, { priorities: priority !== undefined });
  return { wait: (o) => mutex.lock({ ...o, priority }), attempt: (o) => mutex.tryLock(o) };
}

const FLAGS = {
  wait: { value: "DURATION", text: "the longest time to wait for the lock; after it, exit code 75" },
  try: { text: "do not wait: exit code 75 if the lock is taken" },
  "max-waiting": { value: "N", text: "exit code 75 at once if N wait already, 1 to 1000" },
  supersede: { text: "end those with --supersede that wait already, with exit code 75" },
  shared: { text: "hold the lock as a reader, beside other readers" },
  permits: { value: "N", text: "hold one of N permits, 1 to 1000" },
  weight: {
    value: "W",
    text: "hold W of the N permits at once; all clients of the name must give a weight, or none",
  },
  priority: {
    value: "N",
    text: "a whole number, -1000 to 1000: the highest that waits is next; all clients of the name must give one, or none; without effect with --try",
  },
  ...PACE_FLAGS,
  reason: { value: "TEXT", text: "why, as the holder and others see it, at most 256 bytes" },
  ...WANTED_FLAG,
  ...SLOT_FLAGS,
  ...ENV_FLAG,
  "max-hold": { value: "DURATION", text: "end the command after this time; exit code 76" },
} as const;

export const run = command({
  name: "run",
  args: "NAME -- COMMAND [ARGS]",
  positionals: [1, 1],
  takesCommand: true,
  summary: "run a command while holding a lock",
  help: [
    "Takes the lock, runs the command in a process group of its own, releases the lock, and exits with the command's code. If the session is " +
      "lost during the wait, it joins the queue again, at its end.",
    "The command has LEASEHOLD_NAME, LEASEHOLD_KEY, LEASEHOLD_LEASE (hexadecimal) and, if the lock is exclusive, LEASEHOLD_FENCE in its " +
      "environment, and no password of etcd. Signals are passed on to it.",
    "If etcd stops renewing the lease, the command gets SIGTERM, and its group SIGKILL after the grace, before another client " +
      "can get the lock. If the lock is lost at once (key deleted, lease revoked), the group gets SIGKILL at once.",
    "With --once, the command does not run if any client has run the slot, is running it, or has skipped it. The exit code is then 76 if " +
      "that run was lost (a command that was ended early counts as lost), 79 if it failed, and otherwise 0. The lock of a slot that is no " +
      "whole number is NAME/KEY.",
    "With --keep-output, a call whose command does not run replays the output of the one that did, if it was kept, and exits with its code, also if that is not 0.",
    "With --on-wanted, the command gets the signal, once, when another client waits: it may end, so that the lock is free. A client " +
      "that waits already at the start counts, too. A command that goes on keeps the lock.",
    "Exit codes: the command's own; 128 plus the number of the signal that ended it; 75 lock not acquired in time, the queue is full, or a newer one has come; 76 the lock was " +
      "lost or --max-hold has passed; 126 not executable; 127 no such command.",
  ],
  flags: FLAGS,
  async run(call) {
    const [name = ""] = call.positionals;
    const pace = paceOf(call.flags);
    const wanted = wantedOf(name, call.flags);
    const slot = slotOf(call.flags);
    const maxHoldMs = positiveDuration("max-hold", call.flags["max-hold"]);
    const onWanted = signalOf("on-wanted", call.flags["on-wanted"]);
    const cluster = call.connect({ session: sessionOf(pace, call.flags) });
    const signals = new CommandSignals(call.signal, call.endingSignals);
    const reporter = new Reporter(call.io, call.json);
    const env = call.flags["keep-env"] ? call.io.env : withoutPassword(call.io.env);
    const task = { cluster, words: call.command, env, pace, maxHoldMs, onWanted, reporter, signals };
    try {
      // Without a limit, a wait outlives outages: an etcd that was never there is an error.
      if (wanted.waitMs === undefined) await cluster.session({ signal: signals.signal });
      if (slot) return await runOnce(task, { ...wanted, ...slot, io: call.io });
      const hold = await acquire(cluster, wanted, { reporter, signal: signals.signal });
      if (!hold) throw await taken(call, cluster, wanted);
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
  if (flags.try && flags.wait !== undefined) throw usageError("--try and --wait exclude each other");
  if (flags.try && flags["max-waiting"] !== undefined)
    throw usageError("--try and --max-waiting exclude each other");
  if (flags.try && flags.reason !== undefined) throw usageError("--reason and --try exclude each other");
  for (const other of ["try", "max-waiting", "shared", "permits"] as const)
    if (flags.supersede && flags[other] !== undefined)
      throw usageError(`--supersede and --${other} exclude each other`);
  if (flags.shared && flags.permits !== undefined)
    throw usageError("--shared and --permits exclude each other");
  if (flags["release-delay"] !== undefined && flags.permits !== undefined)
    throw usageError("--release-delay and --permits exclude each other");
  for (const other of ["shared", "once", "supersede"] as const)
    if (flags.weight !== undefined && flags[other] !== undefined)
      throw usageError(`--${other} and --weight exclude each other`);
  for (const other of ["shared", "permits", "once", "supersede", "max-waiting"] as const)
    if (flags.priority !== undefined && flags[other] !== undefined)
      throw usageError(`--${other} and --priority exclude each other`);
  const waitMs = flags.try ? 0 : positiveDuration("wait", flags.wait);
  const permits =
    flags.permits === undefined ? undefined : parseInteger("permits", flags.permits, { min: 1, max: 1000 });
  const weight = weightOf(flags.weight, permits);
  const reason = shownText("reason", flags.reason);
  const bound = flags["max-waiting"];
  const maxWaiting =
    bound === undefined ? undefined : parseInteger("max-waiting", bound, { min: 1, max: 1000 });
  const { supersede } = flags;
  const priority = priorityOf(flags.priority);
  const counts = { permits, weight, priority };
  return { name, shared: flags.shared === true, ...counts, waitMs, reason, maxWaiting, supersede };
}

function weightOf(text: string | undefined, permits: number | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (permits === undefined) throw usageError("--weight needs --permits");
  return parseInteger("weight", text, { min: 1, max: permits });
}

/** Names the holder if etcd tells it: the lock may have been released since. */
async function taken(
  { signal }: Pick<Call, "signal">,
  cluster: Cluster,
  { name, weight }: Wanted,
): Promise<CliError> {
  // Without all holders, their weights say nothing.
  const limit = weight === undefined ? 1 : 1000;
  const state = await inspect(cluster, name, { limit, signal }).catch(() => undefined);
  const held = state && holdersText(state);
  return new CliError(EXIT.timedOut, `lock "${name}" is taken${held === undefined ? "" : `: ${held}`}`);
}
