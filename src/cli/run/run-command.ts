import { pause, systemClock } from "../../async/clock.js";
import { LockLostError, type Cluster, type Hold, type HoldSnapshot } from "../../index.js";
import { hexLease, leaseJson } from "../command-line/contender-json.js";
import type { StartedJson } from "../command-line/json-types.js";
import { Guardian } from "./guardian.js";
import { HoldWatch } from "./hold-watch.js";
import { ProcessGroup } from "./process-group.js";
import type { CommandSignals } from "./signals.js";
import type { Pace } from "./settings.js";
import { Supervisor, type Outcome } from "./supervisor.js";
import type { Teller } from "./teller.js";
import { endingText } from "./texts.js";

/** A command to run under a hold. */
export interface CommandTask {
  readonly cluster: Cluster;
  readonly words: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly pace: Pace;
  readonly maxHoldMs: number | undefined;
  readonly teller: Teller;
  readonly signals: CommandSignals;
  /** The caller releases the hold of a command that has ended by itself. */
  readonly keepsHold?: boolean;
}

/** For the guardian's answer to arrive after this process was stopped. */
const ANSWER_MS = 50;

/**
 * Runs the command, and resolves when its process group is gone and the hold released. Rejects if the hold or the program
 * ends before the command could be started.
 */
export async function runCommand(task: CommandTask, hold: Hold): Promise<Settled> {
  const { cluster, signals, teller } = task;
  const watch = await HoldWatch.begin(cluster, hold, signals.signal);
  try {
    signals.signal.throwIfAborted();
    hold.assertHeld();
    // The library watches the key only after a second.
    if (watch.gone) throw new LockLostError(hold.name, hold.key, "deleted");
    const supervised = { ...task, hold, watch, ...start(task, hold) };
    const supervisor = new Supervisor(supervised);
    signals.receiver = (name) => void supervisor.signal(name);
    const outcome = await supervisor.run();
    const toldToEnd = signals.signal.aborted;
    // The number of the group may soon be that of another one.
    const gaveUp = new AbortController();
    signals.receiver = () => gaveUp.abort();
    const ended = { ...supervised, toldToEnd, release: () => released(hold, gaveUp.signal) };
    const checked = await settle(outcome, ended);
    const { ending } = checked;
    if (ending !== undefined)
      teller.line(...endingText(hold.name, { ...checked, ending }, await reasonOf(ended, checked)));
    return checked;
  } finally {
    signals.receiver = undefined;
    watch.stop();
  }
}

const UNGUARDED =
  "the guardian has ended: if leasehold is killed or stopped now, nothing ends the command with the lock";
const unguarded = (name: string) => ({ event: "unguarded", name, message: UNGUARDED }) as const;

function start(task: CommandTask, hold: Hold): { guardian: Guardian; group: ProcessGroup } {
  const { words, teller } = task;
  const own = ownOf(task, hold);
  const guardian = new Guardian(task.env["PATH"], () => teller.line(UNGUARDED, unguarded(hold.name)));
  const leftMs = hold.remainingMs();
  if (own) guardian.expect(hexLease(own.leaseId));
  const group = new ProcessGroup(words, { ...task.env, ...factsOf(hold, own) }, (pid) =>
    guardian.watch(pid, leftMs),
  );
  if (group.pid !== undefined && own) teller.event(startedJson(own, group.pid));
  return { guardian, group };
}

/** Undefined if the hold was lost just now. */
const ownOf = ({ cluster }: CommandTask, hold: Hold): HoldSnapshot | undefined =>
  cluster.snapshot().holds.find(({ key, revision }) => key === hold.key && revision === hold.revision);

const startedJson = ({ name, key, fence, leaseId }: HoldSnapshot, pid: number): StartedJson => ({
  ...{ event: "started", name, key, pid },
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
  /** While it ran, this process got a signal that ends it, and passed it on. */
  readonly toldToEnd: boolean;
}

/** A hold whose command has ended. */
interface Ended {
  readonly hold: Hold;
  readonly toldToEnd: boolean;
  /** Resolves with the loss, if it was lost before. Repeated calls have the same result. */
  readonly release: () => Promise<LockLostError | undefined>;
  readonly keepsHold?: boolean;
}

/** If the guardian has ended it, that is when it ended; a hold that was lost before its release counts as lost. */
async function settle(
  outcome: Outcome,
  { guardian, hold, release, keepsHold, toldToEnd }: Ended & { readonly guardian: Guardian },
): Promise<Settled> {
  if (outcome.ranOnMs > 0 && guardian.firedAt === undefined) await pause(systemClock, ANSWER_MS);
  if (guardian.firedAt !== undefined) {
    const ranOnMs = Math.max(0, guardian.firedAt - outcome.leaseOverAt);
    return { ...outcome, ending: "lost", ranOnMs, byGuardian: true, toldToEnd };
  }
  const settled = { ...outcome, byGuardian: false, toldToEnd };
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
