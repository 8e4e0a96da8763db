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
    const supervised = { ...task, hold, watch, ...start(task, hold) };
    const outcome = await new Supervisor(supervised).run();
    const checked = await settle(outcome, supervised);
    const { ending } = checked;
    if (ending !== undefined)
      teller.line(...endingText(hold.name, { ...checked, ending }, await reasonOf(hold, checked)));
    return checked;
  } finally {
    signals.receiver = undefined;
    watch.stop();
  }
}

function start(task: CommandTask, hold: Hold): { guardian: Guardian; group: ProcessGroup } {
  const { words, teller, signals } = task;
  const own = ownOf(task, hold);
  const guardian = new Guardian(task.env["PATH"]);
  const leftMs = hold.remainingMs();
  const group = new ProcessGroup(words, { ...task.env, ...factsOf(hold, own) }, (pid) =>
    guardian.watch(pid, leftMs),
  );
  signals.receiver = (name) => group.signal(name);
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
}

/** If the guardian has ended it, that is when it ended; a hold that was lost before its release counts as lost. */
async function settle(
  outcome: Outcome,
  { guardian, hold }: { readonly guardian: Guardian; readonly hold: Hold },
): Promise<Settled> {
  if (outcome.ranOnMs > 0 && guardian.firedAt === undefined) await pause(systemClock, ANSWER_MS);
  if (guardian.firedAt !== undefined) {
    const ranOnMs = Math.max(0, guardian.firedAt - outcome.leaseOverAt);
    return { ...outcome, ending: "lost", ranOnMs, byGuardian: true };
  }
  const settled = { ...outcome, byGuardian: false };
  if (outcome.ending !== undefined) return settled;
  return (await released(hold)) ? { ...settled, ending: "lost" } : settled;
}

/** Why the hold has ended; undefined if it was not lost. */
async function reasonOf(hold: Hold, { ending }: Outcome): Promise<unknown> {
  // With an etcd that does not answer, a release would only wait.
  if (ending !== "unanswered") return released(hold);
  return hold.signal.aborted ? hold.signal.reason : undefined;
}

async function released(hold: Hold): Promise<LockLostError | undefined> {
  try {
    await hold.release();
    return undefined;
  } catch (error) {
    if (error instanceof LockLostError) return error;
    throw error;
  }
}
