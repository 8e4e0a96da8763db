// The slot of `run --once`: a whole number, or any other text, whose lock is `NAME/KEY`. What its command's end makes of it, and
// what a later call says, or replays.
import os from "node:os";
import {
  type Lock,
  once,
  type OnceOptions,
  type OnceReply,
  type OnceResult,
  type OnceRun,
} from "../../../index.js";
import { FailedWithResult } from "../../../recipes/once/run.js";
import { lockOf } from "../../../recipes/once/slots.js";
import { type Given, parseDuration, parseInteger } from "../command.js";
import { EXIT, type Io, usageError, write } from "../io.js";
import type { OnceJson, SlotJson } from "../json-types.js";
import { type KeptOutput, OutputTail, type Replay, replayOf, writeReplay } from "./kept-output.js";
import { type CommandTask, runCommand, type Settled } from "./run-command.js";
import { codeOf } from "./supervisor.js";
import { whileReporting } from "./waiting.js";

export const SLOT_FLAGS = {
  once: {
    value: "KEY",
    text: "run at most once for this slot, whichever client runs it: a whole number, or any text",
  },
  rerun: {
    value: "WHEN",
    text: "with --once, when to run a slot again: never, if-lost (its run was lost or ended early) or if-failed (also if it failed); default never",
  },
  "if-held": {
    value: "WHEN",
    text: "with --once, if another client holds the lock: wait (and run late) or skip; default wait",
  },
  "if-running": {
    value: "WHEN",
    text: "with --once, if another client runs this slot: wait (for its end), skip or fail (exit code 75); default skip, or to take over with --rerun",
  },
  "keep-output": {
    text: "with --once, keep the exit code and the end of the standard output, which later calls replay: 64 KiB of JSON, or 48 KiB of bytes that are no UTF-8",
  },
  keep: {
    value: "DURATION",
    text: "with a --once that is no whole number, how long the slot is kept after its last change, 1s to 366d; default 24h (numbers: the highest 1000 are kept)",
  },
} as const;

type SlotFlags = Given<typeof SLOT_FLAGS>;

/** What `--once` and its flags ask for. */
export interface Slot extends Pick<OnceOptions, "rerun" | "ifHeld" | "ifRunning" | "keep"> {
  readonly slot: number | string;
  readonly keepsOutput: boolean;
}

const RERUN = { never: "never", "if-lost": "if_lost", "if-failed": "if_failed" } as const;
const IF_HELD = { wait: "wait", skip: "skip" } as const;
const IF_RUNNING = { wait: "wait", skip: "skip", fail: "fail" } as const;

/** For how long a slot that is a text may be kept. */
const [MIN_KEEP_MS, MAX_KEEP_MS] = [1000, 366 * 86_400_000];
/** The longest timer of Node.js. */
const MAX_WAIT_MS = 2_147_483_647;

/** Other ways to take the lock, and what a call of `once` has not. */
type OtherFlags = {
  readonly [K in "shared" | "permits" | "try" | "reason" | "wait" | "max-waiting" | "supersede"]:
    string | true | undefined;
};

/** Undefined without `--once`. @throws {CliError} */
export function slotOf(flags: SlotFlags & OtherFlags): Slot | undefined {
  if (flags.once === undefined) {
    for (const flag of ["rerun", "if-held", "if-running", "keep-output", "keep"] as const)
      if (flags[flag] !== undefined) throw usageError(`--${flag} needs --once`);
    return undefined;
  }
  for (const other of ["shared", "permits", "try", "reason", "max-waiting", "supersede"] as const)
    if (flags[other] !== undefined) throw usageError(`--once and --${other} exclude each other`);
  const rerun = chosen("rerun", flags.rerun ?? "never", RERUN);
  const ifHeld = chosen("if-held", flags["if-held"] ?? "wait", IF_HELD);
  const running = flags["if-running"];
  const ifRunning = running === undefined ? undefined : chosen("if-running", running, IF_RUNNING);
  if (ifHeld === "skip" && ifRunning !== "wait" && flags.wait !== undefined)
    throw usageError("--if-held skip and --wait exclude each other");
  const slot = parseSlot(flags.once);
  const keep = keepOf(slot, flags.keep);
  return { slot, rerun, ifHeld, ifRunning, keep, keepsOutput: flags["keep-output"] === true };
}

/**
 * Digits are a number, even too many of them: a text of digits would be another slot than the number. With zeros before it, it may be
 * meant as a text, and be another one than without them.
 */
function parseSlot(text: string): number | string {
  if (text === "") throw usageError("--once must not be empty");
  if (!/^\d+$/.test(text)) return text;
  if (/^0\d/.test(text))
    throw usageError(
      `--once must be a number without leading zeros, or a text that is not digits alone, got ${JSON.stringify(text)}`,
    );
  return parseInteger("once", text, { min: 0, max: Number.MAX_SAFE_INTEGER });
}

function keepOf(slot: number | string, text: string | undefined): Slot["keep"] {
  if (text === undefined) return undefined;
  if (typeof slot === "number") throw usageError("--keep needs a --once that is no whole number");
  const ms = parseDuration("keep", text, MAX_KEEP_MS);
  if (ms < MIN_KEEP_MS) throw usageError(`--keep must be at least 1s, got ${JSON.stringify(text)}`);
  return { ms };
}

function chosen<T>(flag: string, text: string, choices: Readonly<Record<string, T>>): T {
  const choice = Object.hasOwn(choices, text) ? choices[text] : undefined;
  if (choice !== undefined) return choice;
  const words = Object.keys(choices);
  const either = `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
  throw usageError(`--${flag} must be ${either}, got ${JSON.stringify(text)}`);
}

/** What one call of `run --once` is about. */
export interface SlotCall extends Slot {
  readonly name: string;
  readonly waitMs: number | undefined;
  readonly io: Io;
}

const textOf = ({ slot, name }: Pick<SlotCall, "slot" | "name">): string =>
  `slot ${typeof slot === "string" ? JSON.stringify(slot) : slot} of ${name}`;

/** Runs the command, unless its slot has been claimed. Resolves with the exit code. */
export async function runOnce(task: CommandTask, call: SlotCall): Promise<number> {
  const { cluster, reporter, signals } = task;
  const { name, slot, rerun, ifHeld, ifRunning, keep, io } = call;
  const output = call.keepsOutput ? new OutputTail(io.stdout) : undefined;
  const work = new CommandWork({ ...task, output });
  // A call that skips a held lock limits all of its waits to seconds by default, also that for the end of a run.
  const waitsForRun = ifHeld === "skip" && ifRunning === "wait";
  const options = {
    ...{ signal: signals.signal, rejoin: true },
    timeoutMs: call.waitMs ?? (waitsForRun ? MAX_WAIT_MS : undefined),
    ...{ rerun, ifHeld, ifRunning, keep },
  };
  const claim = (started: () => Promise<void>): Promise<OnceResult<unknown> | OnceReply<unknown>> => {
    const run = (lock: Lock): Promise<unknown> => work.run(lock, started);
    return output
      ? once(cluster, name, slot, run, { ...options, result: "keep" })
      : once(cluster, name, slot, run, options);
  };
  const awaited = {
    name: typeof slot === "string" ? lockOf(name, slot) : name,
    run: ifRunning === "wait" ? textOf(call) : undefined,
  };
  try {
    const found = notRunIn(
      await (ifHeld === "skip" && !waitsForRun
        ? claim(() => Promise.resolve())
        : whileReporting(cluster, awaited, { reporter, call: claim })),
    );
    if (found) return await notRun(task, call, found);
  } catch (error) {
    if (work.state === "done") throw error;
  }
  // The reader of the output may be slow. The lock has been released.
  if (output) await write(io, "");
  return work.settled ? ended(task, call, work.settled) : EXIT.internal;
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
  async run(lock: Lock, started: () => Promise<void>): Promise<KeptOutput | undefined> {
    try {
      await started();
      const { exitCode } = (this.settled = await runCommand({ ...this.task, keepsHold: true }, lock));
      const kept = this.task.output?.kept(exitCode);
      if (this.state === "failed") throw new CommandFailed(`exit code ${exitCode}`, kept);
      return kept;
    } finally {
      if (this.state === "lost" || !this.settled) lock.release().catch(() => undefined);
    }
  }
}

/** What `once` rejects with when it has marked the slot as failed. */
class CommandFailed extends FailedWithResult {
  override get name() {
    return "CommandFailed" as const;
  }
}

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
function ended({ reporter }: CommandTask, call: SlotCall, settled: Settled): number {
  const { name, slot } = call;
  const state = stateOf(settled);
  const code = codeOf(settled);
  if (state === "done") return code;
  const commandCode = settled.exitCode;
  const how = state === "lost" ? "was ended early" : "failed";
  const message = `${textOf(call)} counts as ${state}: the command ${how} (exit code ${commandCode})`;
  reporter.line(message, { event: "slot", name, slot, state, commandCode, message });
  return state === "lost" && code === 0 ? EXIT.lost : code;
}

/** Why the command does not run. */
interface NotRun {
  readonly reason: OnceJson["reason"];
  readonly run: OnceRun | undefined;
  /** What was kept of the other run. */
  readonly result: unknown;
}

function notRunIn(found: OnceResult<unknown> | OnceReply<unknown>): NotRun | undefined {
  if ("ran" in found) return found.ran ? undefined : { ...found, result: undefined };
  if (found.status === "done" && !found.replayed) return undefined;
  const result = "result" in found ? found.result : undefined;
  return { reason: found.status === "failed" ? "done" : found.status, run: found.run, result };
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

async function notRun({ reporter }: CommandTask, call: SlotCall, found: NotRun): Promise<number> {
  const { name, slot } = call;
  const { reason, run } = found;
  const hasFailed = run?.failed === true;
  const replay = call.keepsOutput && reason === "done" ? replayOf(found.result, hasFailed) : undefined;
  const by = run?.owner === undefined ? "" : `, by ${run.owner}`;
  const message = `${textOf(call)} ${TEXTS[hasFailed ? "failed" : reason]}${by}: ${whatFollows(call, found, replay)}`;
  const event: OnceJson = {
    event: "once",
    name,
    slot,
    reason,
    ...(run?.owner !== undefined && { owner: run.owner }),
    ...(run?.since !== undefined && { since: run.since.toISOString() }),
    ...(run && { failed: run.failed }),
    ...(replay && { commandCode: replay.exitCode, cut: replay.isCut }),
    message,
  };
  reporter.line(message, event);
  if (replay) return writeReplay(call.io, replay);
  if (hasFailed) return EXIT.failedBefore;
  return reason === "lost" ? EXIT.lost : EXIT.ok;
}

function whatFollows({ keepsOutput }: SlotCall, { reason }: NotRun, replay: Replay | undefined): string {
  if (!replay)
    return `not running the command${keepsOutput && reason === "done" ? ", whose output was not kept" : ""}`;
  const code = replay.exitCode === 0 ? "" : ` (exit code ${replay.exitCode})`;
  return `replaying ${replay.isCut ? "the end of its output" : "its output"}${code}`;
}
