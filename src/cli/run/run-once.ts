import os from "node:os";
import { once, type Lock, type OnceOptions, type OnceResult } from "../../index.js";
import { EXIT, usageError } from "../command-line/exit.js";
import type { OnceJson, SlotJson } from "../command-line/json-types.js";
import { whileTelling, type Wanted } from "./acquire.js";
import { runCommand, type CommandTask, type Settled } from "./run-command.js";
import { codeOf } from "./supervisor.js";

interface SlotFlags {
  readonly once?: string | undefined;
  readonly rerun?: string | undefined;
  readonly "if-held"?: string | undefined;
  readonly wait?: string | undefined;
  readonly try?: true | undefined;
  readonly shared?: true | undefined;
  readonly permits?: string | undefined;
}

/** The slot of `--once`. */
export interface Slot {
  readonly slot: number;
  readonly rerun: OnceOptions["rerun"];
  readonly ifHeld: OnceOptions["ifHeld"];
}

const RERUN = { never: "never", "if-lost": "if lost", "if-failed": "if failed" } as const;
const IF_HELD = { wait: "wait", skip: "skip" } as const;

/** Undefined without `--once`. @throws {CliError} */
export function slotOf(flags: SlotFlags): Slot | undefined {
  if (flags.once === undefined) {
    for (const flag of ["rerun", "if-held"] as const)
      if (flags[flag] !== undefined) throw usageError(`--${flag} needs --once`, "run");
    return undefined;
  }
  for (const other of ["shared", "permits", "try"] as const)
    if (flags[other] !== undefined) throw usageError(`--once and --${other} exclude each other`, "run");
  const rerun = chosen("rerun", flags.rerun ?? "never", RERUN);
  const ifHeld = chosen("if-held", flags["if-held"] ?? "wait", IF_HELD);
  if (ifHeld === "skip" && flags.wait !== undefined)
    throw usageError("--if-held skip and --wait exclude each other", "run");
  return { slot: numberOf(flags.once), rerun, ifHeld };
}

function chosen<T>(flag: string, text: string, choices: Readonly<Record<string, T>>): T {
  const choice = Object.hasOwn(choices, text) ? choices[text] : undefined;
  if (choice !== undefined) return choice;
  const words = Object.keys(choices);
  const either = `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
  throw usageError(`--${flag} must be ${either}, got ${JSON.stringify(text)}`);
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
  const { name, slot, rerun, ifHeld, waitMs } = wanted;
  const work = new CommandWork(task);
  const options = { signal: signals.signal, timeoutMs: waitMs, rejoin: true, rerun, ifHeld };
  const call = (started: () => Promise<void>): Promise<OnceResult<void>> =>
    once(cluster, name, slot, (lock) => work.run(lock, started), options);
  try {
    const result = await (ifHeld === "skip" ? call(nothing) : whileTelling(cluster, name, { teller, call }));
    if (!result.ran) return notRun(task, wanted, result);
  } catch (error) {
    if (work.state === "done") throw error;
  }
  return work.settled ? ended(task, wanted, work.settled) : EXIT.internal;
}

const nothing = (): Promise<void> => Promise.resolve();

class CommandWork {
  settled: Settled | undefined;

  constructor(private readonly task: CommandTask) {}

  /** Of the slot. "done", too, if the command was not started: the reason for that is what the user has to know. */
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
function stateOf({ ending, toldToEnd, exitCode }: Settled): "done" | SlotJson["state"] {
  if (ending !== undefined || toldToEnd || SIGNALS.has(exitCode - EXIT.signal)) return "lost";
  return exitCode === 0 ? "done" : "failed";
}

/** Says what has become of the slot. */
function ended({ teller }: CommandTask, { name, slot }: Wanted & Slot, settled: Settled): number {
  const state = stateOf(settled);
  const code = codeOf(settled);
  if (state === "done") return code;
  const commandCode = settled.exitCode;
  const why = state === "lost" ? "was ended early" : "has failed";
  const message = `slot ${slot} of ${name} counts as ${state}: the command ${why}, with the code ${commandCode}`;
  teller.line(message, { event: "slot", name, slot, state, commandCode, message });
  return state === "lost" && code === 0 ? EXIT.lost : code;
}

const TEXTS = {
  done: "was run before",
  failed: "was run before, and has failed",
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
  const hasFailed = run?.failed === true;
  const message = `slot ${slot} of ${name} ${TEXTS[hasFailed ? "failed" : why]}${by}: the command is not run`;
  const event: OnceJson = {
    ...{ event: "once", name, slot, why },
    ...(run?.owner !== undefined && { owner: run.owner }),
    ...(run?.since !== undefined && { since: run.since.toISOString() }),
    ...(run && { failed: run.failed }),
    message,
  };
  teller.line(message, event);
  if (hasFailed) return EXIT.failedBefore;
  return why === "lost" ? EXIT.lost : EXIT.ok;
}
