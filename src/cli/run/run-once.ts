import { once, type Lock, type OnceOptions, type OnceResult } from "../../index.js";
import { EXIT, usageError } from "../command-line/exit.js";
import type { OnceJson } from "../command-line/json-types.js";
import { whileTelling, type Wanted } from "./acquire.js";
import { runCommand, type CommandTask, type Settled } from "./run-command.js";
import { codeOf } from "./supervisor.js";

interface SlotFlags {
  readonly once?: string | undefined;
  readonly rerun?: string | undefined;
  readonly try?: true | undefined;
  readonly shared?: true | undefined;
  readonly permits?: string | undefined;
}

/** The slot of `--once`. */
export interface Slot {
  readonly slot: number;
  readonly rerun: OnceOptions["rerun"];
}

/** Undefined without `--once`. @throws {CliError} */
export function slotOf(flags: SlotFlags): Slot | undefined {
  if (flags.once === undefined) {
    if (flags.rerun !== undefined) throw usageError("--rerun needs --once", "run");
    return undefined;
  }
  for (const other of ["shared", "permits", "try"] as const)
    if (flags[other] !== undefined) throw usageError(`--once and --${other} exclude each other`, "run");
  const { rerun = "never" } = flags;
  if (rerun !== "never" && rerun !== "if-lost")
    throw usageError(`--rerun must be never or if-lost, got ${JSON.stringify(rerun)}`);
  return { slot: numberOf(flags.once), rerun: rerun === "never" ? rerun : "if lost" };
}

function numberOf(text: string): number {
  const slot = /^\d{1,16}$/.test(text) ? Number(text) : NaN;
  if (Number.isSafeInteger(slot)) return slot;
  throw usageError(
    `--once must be a whole number from 0 to ${Number.MAX_SAFE_INTEGER}, got ${JSON.stringify(text)}`,
  );
}

/** Runs the command, unless its slot has been claimed. Resolves with the exit code. */
export async function runOnce(task: CommandTask, wanted: Wanted & Slot): Promise<number> {
  const { cluster, teller, signals } = task;
  const { name, slot, rerun, waitMs } = wanted;
  const work = new CommandWork(task);
  const options = { signal: signals.signal, timeoutMs: waitMs, rejoin: true, rerun };
  const call = (started: () => Promise<void>): Promise<OnceResult<void>> =>
    once(cluster, name, slot, (lock) => work.run(lock, started), options);
  try {
    const result = await whileTelling(cluster, name, { teller, call });
    if (!result.ran) return notRun(task, wanted, result);
  } catch (error) {
    if (work.settled?.ending === undefined) throw error;
  }
  return work.settled ? codeOf(work.settled) : EXIT.internal;
}

class CommandWork {
  settled: Settled | undefined;

  constructor(private readonly task: CommandTask) {}

  /** A command that was not started, or was ended, has not run: the release of the lock makes its slot count as lost. */
  async run(lock: Lock, started: () => Promise<void>): Promise<void> {
    try {
      await started();
      this.settled = await runCommand({ ...this.task, keepsHold: true }, lock);
    } finally {
      if (this.settled?.ending !== undefined || !this.settled) lock.release().catch(() => undefined);
    }
  }
}

const TEXTS = {
  done: "was run before",
  running: "is running",
  lost: "was begun, and its run was lost",
  expired: "is older than those whose runs are known",
  held: "is skipped, because another holder has the lock",
} as const;

function notRun(
  { teller }: CommandTask,
  { name, slot }: Wanted & Slot,
  { why, run }: Extract<OnceResult<void>, { readonly ran: false }>,
): number {
  const by = run?.owner === undefined ? "" : `, by ${run.owner}`;
  const message = `slot ${slot} of ${name} ${TEXTS[why]}${by}: the command is not run`;
  const event: OnceJson = {
    ...{ event: "once", name, slot, why },
    ...(run?.owner !== undefined && { owner: run.owner }),
    ...(run?.since !== undefined && { since: run.since.toISOString() }),
    ...(run && { failed: run.failed }),
    message,
  };
  teller.line(message, event);
  return why === "lost" ? EXIT.lost : EXIT.ok;
}
