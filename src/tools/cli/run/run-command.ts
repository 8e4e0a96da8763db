// Runs a program under a hold. A `HoldWatch` watches the hold before the command starts in a `ProcessGroup` of its own.
// `Supervisor` ends that group in time; a `Guardian`, a shell that outlives this process, ends it when this process cannot.
// - A command starts only when the loss of its lock would be noticed at once, and runs only while the lease has time left.
// - The lock is released only when the group is gone.
// - At the end of this process, however it ends, the guardian kills the group. It is dismissed when the group is gone.
// - Standard output belongs to the command, also where it passes through this program to be kept. This program writes to standard error
//   only.
import { hexLease, leaseJson } from "../io.js";
import { type ChildProcess, spawn } from "node:child_process";
import type { Socket } from "node:net";
import {
  type Cluster,
  type Hold,
  type HoldSnapshot,
  LockLostError,
  type QueueState,
  watchQueue,
} from "../../../index.js";
import { pause, systemClock } from "../../../base/util/clock.js";
import type { StartedJson } from "../json-types.js";
import type { OutputTail } from "./kept-output.js";
import type { CommandSignals, Pace, Reporter } from "./settings.js";
import { endingText, type Outcome, ProcessGroup, Supervisor } from "./supervisor.js";

/** The largest number of contenders that a state reports. */
const MAX_LIMIT = 1000;

/**
 * Watches the queue from the grant on. The library watches the key of a hold only after a second, which pays for short
 * holds; a command must not start before its loss would be noticed.
 */
export class HoldWatch {
  readonly #gone = new AbortController();
  readonly #stop = new AbortController();
  readonly #exclusive: boolean;

  /** Resolves when the watch is there. Rejects when the hold ends before, with its reason, or that of `signal`. */
  static async begin(cluster: Cluster, hold: Hold, signal: AbortSignal): Promise<HoldWatch> {
    const watch = new HoldWatch(hold);
    const early = (): void => watch.#stop.abort(signal.aborted ? signal.reason : hold.signal.reason);
    for (const each of [signal, hold.signal]) {
      if (each.aborted) early();
      each.addEventListener("abort", early);
    }
    try {
      await watch.#begin(cluster);
      return watch;
    } finally {
      for (const each of [signal, hold.signal]) each.removeEventListener("abort", early);
    }
  }

  private constructor(private readonly hold: Hold) {
    this.#exclusive = "fence" in hold;
  }

  /** Aborts when the key is gone. */
  get gone(): AbortSignal {
    return this.#gone.signal;
  }

  stop(): void {
    this.#stop.abort();
  }

  async #begin(cluster: Cluster): Promise<void> {
    const limit = this.#exclusive ? 1 : MAX_LIMIT;
    const states = watchQueue(cluster, this.hold.name, { limit, signal: this.#stop.signal });
    const first = await states.next();
    if (!first.done) this.#judge(first.value);
    void this.#follow(states);
  }

  /** If the watch fails later, the library's own remains. */
  async #follow(states: AsyncIterable<QueueState>): Promise<void> {
    try {
      for await (const state of states) this.#judge(state);
    } catch {
      return;
    }
  }

  #judge({ holders, waiters, total }: QueueState): void {
    const { key, revision } = this.hold;
    const found = [...holders, ...waiters].some((each) => each.key === key && each.revision === revision);
    // A holder of an exclusive lock is the oldest. Others may not be among those that are reported.
    const complete = this.#exclusive || total.holders + total.waiters === holders.length + waiters.length;
    if (!found && complete) this.#gone.abort();
  }
}

/**
 * Reads orders from a pipe whose other end only this process has. `start` precedes the start of the command, with the lease
 * that its environment names. Each further order is a process group and the seconds until it must be gone, and `done` ends
 * the guardian. At the end of the input, and when the seconds have passed without another order, it kills the group. If
 * the input ends right after `start`, the command may be running, or about to: it is found by its environment, as far as
 * the system has /proc. `wait` after `kill` leaves no zombie for each renewal. A guardian that has ended takes no orders, so what counts the
 * seconds kills nothing then.
 */
const SCRIPT = `
group= lease= alarm= found=
while read -r word left; do
  if [ -n "$alarm" ]; then kill "$alarm"; wait "$alarm"; fi
  [ "$word" != done ] || exit 0
  if [ "$word" = start ]; then lease=$left; continue; fi
  group=$word
  (
    nap=
    trap '[ -z "$nap" ] || kill "$nap"; exit 0' TERM
    sleep "$left" &
    nap=$!
    wait "$nap" && kill -s 0 $$ && kill -s KILL -- "-$group" || exit 0
    read -r now idle </proc/uptime || now=$(date +%s)
    echo "$now"
  ) </dev/null &
  alarm=$!
done
[ -z "$alarm" ] || kill "$alarm"
[ -z "$group" ] || kill -s KILL -- "-$group"
[ -z "$group" ] && [ -n "$lease" ] || exit 0
for round in 1 2 3 4 5 6 7 8 9 10; do
  for folder in /proc/[0-9]*; do
    grep -qsz "^LEASEHOLD_LEASE=$lease\$" "$folder/environ" || continue
    kill -s KILL -- "-\${folder#/proc/}" && found=1
  done
  [ -z "$found" ] || exit 0
  sleep 0.1
done
`;

/** A process that kills the process group of a command if this one ends, or does not run past the deadline of the lease. */
export class Guardian {
  /**
   * When the guardian has killed the group, because this process did not run when it had to: milliseconds of the clock
   * that counts suspend.
   */
  firedAt: number | undefined;
  readonly #shell: ChildProcess;
  #dismissed = false;

  /**
   * In a session of its own: what ends this process or its group does not end the guardian.
   * @param path where it finds `sleep`, before the usual folders
   * @param onEnd called once, with the cause, if it cannot be started, or ends before it is dismissed
   */
  constructor(path: string | undefined, onEnd: (why: string) => void) {
    this.#shell = spawn("/bin/sh", ["-c", SCRIPT], {
      detached: true,
      cwd: "/",
      stdio: ["pipe", "pipe", "ignore"],
      env: { PATH: `${path ?? ""}:/usr/bin:/bin` },
    });
    const ended = (why: string): void => {
      if (!this.#dismissed) onEnd(why);
      this.#dismissed = true;
    };
    this.#shell.on("error", ({ message }) => ended(message));
    this.#shell.on("exit", (code, signal) => ended(signal ?? `exit code ${code}`));
    this.#shell.stdin?.on("error", () => {});
    this.#shell.stdout?.on("error", () => {}).on("data", (text) => (this.firedAt = Number(text) * 1000));
  }

  /** A command whose environment has this LEASEHOLD_LEASE is about to be started: it ends with this process, too. */
  expect(lease: string): void {
    this.#order(`start ${lease}`);
  }

  /** The group ends with this process, and in `leftMs`, unless another order follows. */
  watch(group: number, leftMs: number): void {
    this.#order(`${group} ${(leftMs / 1000).toFixed(3)}`);
  }

  /** The group is gone: its number may soon be that of another one. */
  dismiss(): void {
    this.#dismissed = true;
    this.#order("done");
    this.#shell.stdin?.end();
    this.#shell.unref();
    // The guardian's answer may still come, and is not waited for here.
    (this.#shell.stdout as Socket | null)?.unref();
  }

  #order(line: string): void {
    this.#shell.stdin?.write(`${line}\n`);
  }
}

/** A command to run under a hold. */
export interface CommandTask {
  readonly cluster: Cluster;
  readonly words: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly pace: Pace;
  readonly maxHoldMs: number | undefined;
  /** What the command gets when another client waits for what it holds. */
  readonly onWanted?: NodeJS.Signals | undefined;
  readonly reporter: Reporter;
  readonly signals: CommandSignals;
  /** The caller releases the hold of a command that has ended by itself. */
  readonly keepsHold?: boolean;
  /** What is kept of its standard output. */
  readonly output?: OutputTail | undefined;
}

/** For the guardian's answer to arrive after this process was stopped. */
const ANSWER_MS = 50;

/**
 * Runs the command, and resolves when its process group is gone and the hold released. Rejects if the hold or the program
 * ends before the command could be started.
 */
export async function runCommand(task: CommandTask, hold: Hold): Promise<Settled> {
  const { cluster, signals, reporter } = task;
  const watch = await HoldWatch.begin(cluster, hold, signals.signal);
  try {
    signals.signal.throwIfAborted();
    hold.assertHeld();
    // The library watches the key only after a second.
    if (watch.gone.aborted) throw new LockLostError(hold.name, hold.key, "deleted");
    const supervised = { ...task, hold, watch, ...start(task, hold) };
    const supervisor = new Supervisor(supervised);
    signals.receiver = (name) => void supervisor.signal(name);
    const outcome = await supervisor.run();
    const askedToStop = signals.signal.aborted || supervisor.askedToStop;
    // The number of the group may soon be that of another one.
    const gaveUp = new AbortController();
    signals.receiver = () => gaveUp.abort();
    await task.output?.end();
    const ended = { ...supervised, askedToStop, release: () => released(hold, gaveUp.signal) };
    const checked = await settle(outcome, ended);
    const { ending } = checked;
    if (ending !== undefined)
      reporter.line(...endingText(hold.name, { ...checked, ending }, await reasonOf(ended, checked)));
    return checked;
  } finally {
    signals.receiver = undefined;
    watch.stop();
  }
}

function reportUnguarded({ reporter }: CommandTask, name: string, why: string): void {
  const risk = "if leasehold is killed or stopped now, nothing ends the command with the lock";
  const message = `the guardian has ended (${why}): ${risk}`;
  reporter.line(message, { event: "unguarded", name, message });
}

function start(task: CommandTask, hold: Hold): { guardian: Guardian; group: ProcessGroup } {
  const { words, reporter } = task;
  // Undefined if the hold was lost just now.
  const own = task.cluster
    .snapshot()
    .holds.find(({ key, revision }) => key === hold.key && revision === hold.revision);
  const guardian = new Guardian(task.env["PATH"], (why) => reportUnguarded(task, hold.name, why));
  const leftMs = hold.remainingMs();
  if (own) guardian.expect(hexLease(own.leaseId));
  const env = { ...task.env, ...factsOf(hold, own) };
  const started = (pid: number): void => guardian.watch(pid, leftMs);
  const group = new ProcessGroup(words, env, { started, output: task.output });
  if (group.pid !== undefined && own) reporter.event(startedJson(own, group.pid));
  return { guardian, group };
}

const startedJson = ({ name, key, fence, leaseId }: HoldSnapshot, pid: number): StartedJson => ({
  event: "started",
  name,
  key,
  pid,
  ...(fence !== undefined && { fence: fence.toString() }),
  ...leaseJson(leaseId),
});

/** `undefined` removes what an outer `leasehold run` has set. */
const factsOf = (hold: Hold, own: HoldSnapshot | undefined): Record<string, string | undefined> => ({
  LEASEHOLD_NAME: hold.name,
  LEASEHOLD_KEY: hold.key,
  LEASEHOLD_FENCE: own?.fence?.toString(),
  // As etcdctl prints and reads it.
  LEASEHOLD_LEASE: own && hexLease(own.leaseId),
});

/** A command that was ended, and by whom. */
export interface Settled extends Outcome {
  /** The guardian has killed the group. */
  readonly byGuardian: boolean;
  /** While it ran, it got a signal that ends this process, too, or such a one because another client waits. */
  readonly askedToStop: boolean;
}

/** A hold whose command has ended. */
interface Ended {
  readonly hold: Hold;
  readonly askedToStop: boolean;
  /** Resolves with the loss, if it was lost before. Repeated calls have the same result. */
  readonly release: () => Promise<LockLostError | undefined>;
  readonly keepsHold?: boolean;
}

/** If the guardian has ended it, that is when it ended; a hold that was lost before its release counts as lost. */
async function settle(
  outcome: Outcome,
  { guardian, hold, release, keepsHold, askedToStop }: Ended & { readonly guardian: Guardian },
): Promise<Settled> {
  if (outcome.ranOnMs > 0 && guardian.firedAt === undefined) await pause(systemClock, ANSWER_MS);
  if (guardian.firedAt !== undefined) {
    const ranOnMs = Math.max(0, guardian.firedAt - outcome.leaseOverAt);
    return { ...outcome, ending: "lost", ranOnMs, byGuardian: true, askedToStop };
  }
  const settled = { ...outcome, byGuardian: false, askedToStop };
  if (outcome.ending !== undefined) return settled;
  const lost = keepsHold ? hold.signal.aborted : await release();
  return lost ? { ...settled, ending: "lost" } : settled;
}

/** Why the hold has ended; undefined if it was not lost. */
async function reasonOf({ hold, release }: Ended, { ending }: Outcome): Promise<unknown> {
  // With an etcd that does not answer, a release would only wait.
  if (ending !== "unanswered") return release();
  return hold.signal.aborted ? hold.signal.reason : undefined;
}

/** The close of the cluster revokes the lease, so a release that etcd does not answer need not be waited for. */
const RELEASE_MS = 10_000;

async function released(hold: Hold, gaveUp: AbortSignal): Promise<LockLostError | undefined> {
  const limit = new AbortController();
  const timer = systemClock.after(RELEASE_MS, () => limit.abort());
  try {
    await Promise.race([hold.release(), abortOf(AbortSignal.any([gaveUp, limit.signal]))]);
    return undefined;
  } catch (error) {
    if (error instanceof LockLostError) return error;
    throw error;
  } finally {
    timer.cancel();
  }
}

const abortOf = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
