import os from "node:os";
import {
  type Cluster,
  type Hold,
  inspect,
  isLeaseholdError,
  type Lock,
  type LockWaitOptions,
  Mutex,
  once,
  type OnceOptions,
  type OnceResult,
  type QueueState,
  RwLock,
  Semaphore,
  type WaitOptions,
  watchQueue,
} from "../../../index.js";
import { heldText } from "../../../contender.js";
import type { RejoinMessage } from "../../../base/telemetry/index.js";
import { pause, systemClock } from "../../../base/util/clock.js";
import { type Call, command, type Given, parseInteger } from "../command.js";
import { CliError, EXIT, usageError, contenderJson, whoText } from "../io.js";
import type { OnceJson, SlotJson, WaitingJson } from "../json-types.js";
import { type CommandTask, runCommand, type Settled } from "./run-command.js";
import {
  CommandSignals,
  ENV_FLAG,
  PACE_FLAGS,
  paceOf,
  positiveDuration,
  Reporter,
  Retries,
  sessionOf,
  shownText,
  signalOf,
  WANTED_FLAG,
  withoutPassword,
} from "./settings.js";
import { codeOf } from "./supervisor.js";

/** A person reads a status that changes in place; a log is not to be filled. */
const [UPDATE_PAUSE_MS, LINE_PAUSE_MS] = [100, 2000];

/** A free lock is granted before this, so its queue is not watched. */
const FIRST_PAUSE_MS = 300;

/** Reports the holder and how many are ahead, whenever that changes, until `signal` aborts. */
async function reportWaiting(
  cluster: Cluster,
  name: string,
  { reporter, signal }: { readonly reporter: Reporter; readonly signal: AbortSignal },
): Promise<void> {
  let last = "";
  try {
    await pause(systemClock, FIRST_PAUSE_MS, signal);
    for await (const state of watchQueue(cluster, name, { limit: 1000, signal })) {
      // The session is open before the entry is in the queue; the answer to the join may come after the state that shows it.
      const own = cluster.snapshot().sessions.map(({ leaseId }) => leaseId);
      const status = described(name, state, own);
      if (status && status.text !== last) reporter.status(status.text, status.json);
      last = status?.text ?? last;
      // The loop gets only the latest of the states in the meantime.
      if (status) await pause(systemClock, reporter.updates ? UPDATE_PAUSE_MS : LINE_PAUSE_MS, signal);
    }
  } catch {
    // The acquisition reports what is wrong with etcd, and the abort ends this loop.
    return;
  }
}

function described(
  name: string,
  { holders, waiters, total }: QueueState,
  own: readonly bigint[],
): { readonly text: string; readonly json: WaitingJson } | undefined {
  const rank = waiters.findIndex(({ leaseId }) => own.includes(leaseId));
  const [holder] = holders;
  // Before the first state that has our own entry, and after the grant, there is nothing to say.
  if (!holder || rank === -1) return undefined;
  const others = total.holders > 1 ? ` and ${total.holders - 1} more` : "";
  // As LockTimeoutError and the log count: every entry before this one, the holders included.
  const ahead = total.holders + rank;
  return {
    text: `waiting for ${name}: ${heldText(holder, whoText(holder))}${others}, ${ahead} ahead in the queue`,
    json: { event: "waiting", name, holder: contenderJson(holder), total, ahead },
  };
}

/** What is to be taken, and how long to wait for it. */
interface Wanted {
  readonly name: string;
  readonly shared: boolean;
  readonly permits: number | undefined;
  /** 0: do not wait. undefined: no limit. */
  readonly waitMs: number | undefined;
  readonly reason: string | undefined;
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
  const limits = { signal, timeoutMs: wanted.waitMs, rejoin: true, reason: wanted.reason };
  return whileReporting(cluster, wanted.name, { reporter, call: () => wait(limits) });
}

/** Reports the holder until `call` settles, or calls `over`. */
async function whileReporting<T>(
  cluster: Cluster,
  name: string,
  {
    reporter,
    call,
  }: { readonly reporter: Reporter; readonly call: (over: () => Promise<void>) => Promise<T> },
): Promise<T> {
  const over = new AbortController();
  const retries = new Retries(reporter, name);
  // The program makes one call only, so each message is about that one.
  const rejoins = (message: unknown): void => {
    const { error, delayMs } = message as RejoinMessage;
    if (isLeaseholdError(error)) retries.failed(error, delayMs);
  };
  const { subscribe, unsubscribe } = process.getBuiltinModule("node:diagnostics_channel");
  subscribe("leasehold.rejoin", rejoins);
  const reported = reportWaiting(cluster, name, { reporter, signal: over.signal });
  const end = async (): Promise<void> => {
    unsubscribe("leasehold.rejoin", rejoins);
    over.abort();
    await reported;
    reporter.clear();
  };
  try {
    return await call(end);
  } finally {
    await end();
  }
}

function modesOf(cluster: Cluster, { name, shared, permits }: Wanted): Modes {
  if (permits !== undefined) {
    const semaphore = new Semaphore(cluster, name, permits);
    return { wait: (o) => semaphore.acquire(o), attempt: (o) => semaphore.tryAcquire(o) };
  }
  if (shared) {
    const readers = new RwLock(cluster, name);
    return { wait: (o) => readers.readLock(o), attempt: (o) => readers.tryReadLock(o) };
  }
  const mutex = new Mutex(cluster, name);
  return { wait: (o) => mutex.lock(o), attempt: (o) => mutex.tryLock(o) };
}

/** The slot of `--once`. */
interface Slot {
  readonly slot: number;
  readonly rerun: OnceOptions["rerun"];
  readonly ifHeld: OnceOptions["ifHeld"];
}

const RERUN = { never: "never", "if-lost": "if_lost", "if-failed": "if_failed" } as const;
const IF_HELD = { wait: "wait", skip: "skip" } as const;

/** Undefined without `--once`. @throws {CliError} */
function slotOf(flags: Given<typeof FLAGS>): Slot | undefined {
  if (flags.once === undefined) {
    for (const flag of ["rerun", "if-held"] as const)
      if (flags[flag] !== undefined) throw usageError(`--${flag} needs --once`);
    return undefined;
  }
  for (const other of ["shared", "permits", "try", "reason"] as const)
    if (flags[other] !== undefined) throw usageError(`--once and --${other} exclude each other`);
  const rerun = chosen("rerun", flags.rerun ?? "never", RERUN);
  const ifHeld = chosen("if-held", flags["if-held"] ?? "wait", IF_HELD);
  if (ifHeld === "skip" && flags.wait !== undefined)
    throw usageError("--if-held skip and --wait exclude each other");
  return { slot: parseInteger("once", flags.once, { min: 0, max: Number.MAX_SAFE_INTEGER }), rerun, ifHeld };
}

function chosen<T>(flag: string, text: string, choices: Readonly<Record<string, T>>): T {
  const choice = Object.hasOwn(choices, text) ? choices[text] : undefined;
  if (choice !== undefined) return choice;
  const words = Object.keys(choices);
  const either = `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
  throw usageError(`--${flag} must be ${either}, got ${JSON.stringify(text)}`);
}

/** Runs the command, unless its slot has been claimed. Resolves with the exit code. */
async function runOnce(task: CommandTask, wanted: Wanted & Slot): Promise<number> {
  const { cluster, reporter, signals } = task;
  const { name, slot, rerun, ifHeld, waitMs } = wanted;
  const work = new CommandWork(task);
  const options = { signal: signals.signal, timeoutMs: waitMs, rejoin: true, rerun, ifHeld };
  const call = (started: () => Promise<void>): Promise<OnceResult<void>> =>
    once(cluster, name, slot, (lock) => work.run(lock, started), options);
  try {
    const result = await (ifHeld === "skip"
      ? call(() => Promise.resolve())
      : whileReporting(cluster, name, { reporter, call }));
    if (!result.ran) return notRun(task, wanted, result);
  } catch (error) {
    if (work.state === "done") throw error;
  }
  return work.settled ? ended(task, wanted, work.settled) : EXIT.internal;
}

class CommandWork {
  settled: Settled | undefined;

  constructor(private readonly task: CommandTask) {}

  /** The state of the slot: "done", too, if the command was not started: the reason for that is what the user has to know. */
  get state(): "done" | SlotJson["state"] {
    return this.settled ? stateOf(this.settled) : "done";
  }

  /**
   * A command that was not started, or was ended early, has not run: the release of the lock makes its slot count as lost. An error
   * makes it count as failed.
   */
  async run(lock: Lock, started: () => Promise<void>): Promise<void> {
    try {
      await started();
      this.settled = await runCommand({ ...this.task, keepsHold: true }, lock);
      if (this.state === "failed") throw new CommandFailed();
    } finally {
      if (this.state === "lost" || !this.settled) lock.release().catch(() => undefined);
    }
  }
}

/** What `once` rejects with when it has marked the slot as failed. */
class CommandFailed extends Error {}

const SIGNALS: ReadonlySet<number> = new Set(Object.values(os.constants.signals));

/**
 * A shell exits with 128 plus the number of the signal that ended its command. A command that was asked to stop may have
 * ended in order, in the middle of its work, whatever its exit code is.
 */
function stateOf({ ending, askedToStop, exitCode }: Settled): "done" | SlotJson["state"] {
  if (ending !== undefined || askedToStop || SIGNALS.has(exitCode - EXIT.signal)) return "lost";
  return exitCode === 0 ? "done" : "failed";
}

/** Says what has become of the slot. */
function ended({ reporter }: CommandTask, { name, slot }: Wanted & Slot, settled: Settled): number {
  const state = stateOf(settled);
  const code = codeOf(settled);
  if (state === "done") return code;
  const commandCode = settled.exitCode;
  const how = state === "lost" ? "was ended early" : "failed";
  const message = `slot ${slot} of ${name} counts as ${state}: the command ${how} (exit code ${commandCode})`;
  reporter.line(message, { event: "slot", name, slot, state, commandCode, message });
  return state === "lost" && code === 0 ? EXIT.lost : code;
}

const TEXTS = {
  done: "was run before",
  failed: "was run before and failed",
  running: "is running",
  lost: "was begun, but its run was lost",
  expired: "is older than the slots whose records are kept",
  held: "is skipped, because another client holds the lock",
  missed: "was missed",
} as const;

function notRun(
  { reporter }: CommandTask,
  { name, slot }: Wanted & Slot,
  { reason, run }: Extract<OnceResult<void>, { readonly ran: false }>,
): number {
  const by = run?.owner === undefined ? "" : `, by ${run.owner}`;
  const hasFailed = run?.failed === true;
  const message = `slot ${slot} of ${name} ${TEXTS[hasFailed ? "failed" : reason]}${by}: not running the command`;
  const event: OnceJson = {
    event: "once",
    name,
    slot,
    reason,
    ...(run?.owner !== undefined && { owner: run.owner }),
    ...(run?.since !== undefined && { since: run.since.toISOString() }),
    ...(run && { failed: run.failed }),
    message,
  };
  reporter.line(message, event);
  if (hasFailed) return EXIT.failedBefore;
  return reason === "lost" ? EXIT.lost : EXIT.ok;
}

const FLAGS = {
  wait: { value: "DURATION", text: "the longest time to wait for the lock; after it, exit code 75" },
  try: { text: "do not wait: exit code 75 if the lock is taken" },
  shared: { text: "hold the lock as a reader, beside other readers" },
  permits: { value: "N", text: "hold one of N permits, 1 to 1000" },
  ...PACE_FLAGS,
  reason: { value: "TEXT", text: "why, as the holder and others see it, at most 256 bytes" },
  ...WANTED_FLAG,
  once: { value: "SLOT", text: "run at most once for this slot, a whole number, whichever client runs it" },
  rerun: {
    value: "WHEN",
    text: "with --once, when to run a slot again: never, if-lost (its run was lost or ended early) or if-failed (also if it failed); default never",
  },
  "if-held": {
    value: "WHEN",
    text: "with --once, if another client holds the lock: wait (and run late) or skip; default wait",
  },
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
    "Takes the lock, runs the command in a process group of its own, releases the lock, and exits with the command's code.",
    "The command has LEASEHOLD_NAME, LEASEHOLD_KEY, LEASEHOLD_LEASE and, if the lock is exclusive, LEASEHOLD_FENCE in its " +
      "environment, and no password of etcd. Signals are passed on to it.",
    "If etcd stops renewing the lease, the command gets SIGTERM, and its group SIGKILL after the grace, before another client " +
      "can get the lock. If the lock is lost at once (key deleted, lease revoked), the group gets SIGKILL at once.",
    "With --once, the command does not run if any client has run the slot, is running it, or has skipped it. The exit code is then 76 if " +
      "that run was lost (a command that was ended early counts as lost), 79 if it failed, and otherwise 0.",
    "With --on-wanted, the command gets the signal, once, when another client waits: it may end, so that the lock is free. A client " +
      "that waits already at the start counts, too. A command that goes on keeps the lock.",
    "Exit codes: the command's own; 128 plus the number of the signal that ended it; 75 lock not acquired in time; 76 the lock was " +
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
      if (slot) return await runOnce(task, { ...wanted, ...slot });
      const hold = await acquire(cluster, wanted, { reporter, signal: signals.signal });
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
  if (flags.try && flags.wait !== undefined) throw usageError("--try and --wait exclude each other");
  if (flags.try && flags.reason !== undefined) throw usageError("--reason and --try exclude each other");
  if (flags.shared && flags.permits !== undefined)
    throw usageError("--shared and --permits exclude each other");
  if (flags["release-delay"] !== undefined && flags.permits !== undefined)
    throw usageError("--release-delay and --permits exclude each other");
  const waitMs = flags.try ? 0 : positiveDuration("wait", flags.wait);
  const permits =
    flags.permits === undefined ? undefined : parseInteger("permits", flags.permits, { min: 1, max: 1000 });
  const reason = shownText("reason", flags.reason);
  return { name, shared: flags.shared === true, permits, waitMs, reason };
}

/** Names the holder if etcd tells it: the lock may have been released since. */
async function taken({ signal }: Pick<Call, "signal">, cluster: Cluster, name: string): Promise<CliError> {
  const state = await inspect(cluster, name, { limit: 1, signal }).catch(() => undefined);
  const holder = state?.holders[0];
  const by = holder ? `: ${heldText(holder, whoText(holder))}` : "";
  return new CliError(EXIT.timedOut, `lock "${name}" is taken${by}`);
}
