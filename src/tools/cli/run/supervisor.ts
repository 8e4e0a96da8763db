// Ends the command in time. Without an answer from etcd: SIGTERM, then SIGKILL for the whole group, before the deadline of
// the session. When the key is gone, SIGKILL at once.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import os from "node:os";
import { type Contender, type Hold, LockLostError } from "../../../index.js";
import { pause, systemClock, type Timer } from "../../../base/util/clock.js";
import { CliError, contenderJson, EXIT, whoText } from "../io.js";
import type { ControlJson, EndingJson, LostJson } from "../json-types.js";
import type { OutputTail } from "./kept-output.js";
import type { Guardian, HoldWatch, Settled } from "./run-command.js";
import type { Pace, Reporter } from "./settings.js";

/** Why a command gets SIGTERM from this program. */
type EndingReason = EndingJson["reason"];

/** The session's deadline is at 0.9 of the TTL. */
const DEADLINE_PART = 0.9;

const seconds = (ms: number): string => `${Number((ms / 1000).toFixed(1))} s`;

const ENDING_TEXTS: Readonly<Record<EndingReason, (it: Supervised) => string>> = {
  unanswered: ({ hold, pace: { ttlSeconds } }) => {
    const passed = seconds(ttlSeconds * 1000 * DEADLINE_PART - hold.remainingMs());
    return `etcd has not renewed the lease for ${passed} (TTL ${ttlSeconds} s): sent SIGTERM to the command`;
  },
  max_hold: ({ maxHoldMs = 0 }) =>
    `the command has reached --max-hold (${seconds(maxHoldMs)}): sent SIGTERM to it`,
  left_behind: () => "the command has left processes behind in its process group: sent SIGTERM to them",
};

/** A command that this program has ended. */
type Ended = Settled & { readonly ending: LostJson["reason"] };

/** The last line about a command that this program has ended. */
export function endingText(name: string, outcome: Ended, end: unknown): [string, LostJson] {
  const { ending, ranOnMs, exitCode, byGuardian } = outcome;
  const loss = end instanceof LockLostError && end.loss !== "unhealthy" ? end.loss : undefined;
  const because = end instanceof Error ? end.message : `the hold of ${name} was at risk`;
  const message =
    ending === "max_hold"
      ? `ended the command at --max-hold, and released ${name}`
      : ending === "unanswered" && loss === undefined
        ? `ended the command in time: nobody else could hold ${name} yet`
        : `ended the command: ${because}${runText(outcome)}`;
  return [
    message,
    {
      event: "lost",
      name,
      reason: ending,
      ...(loss !== undefined && { loss }),
      message,
      ranOnMs: Math.round(ranOnMs),
      byGuardian,
      commandCode: exitCode,
    },
  ];
}

function runText({ ranOnMs, byGuardian }: Settled): string {
  if (byGuardian && ranOnMs === 0)
    return "; leasehold was suspended, so its guardian ended the command at the deadline of the lease";
  if (ranOnMs === 0) return "";
  return `; the command may have run for up to ${seconds(ranOnMs)} beside the next holder`;
}

/**
 * Whether all processes of the group have ended, and only their entries are left. The first process of a container often
 * reaps no orphans, so such entries stay, and a signal to the group succeeds for ever. Known on Linux only.
 */
function hasOnlyZombies(group: number): boolean {
  try {
    const { readdirSync } = process.getBuiltinModule("node:fs");
    const states = readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .flatMap((pid) => stateIn(group, pid));
    return states.length > 0 && states.every((state) => state === "Z" || state === "X");
  } catch {
    return false;
  }
}

/** The state of the process if it is in the group. */
function stateIn(group: number, pid: string): string[] {
  try {
    const { readFileSync } = process.getBuiltinModule("node:fs");
    const text = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The name of the program, in parentheses, may contain anything.
    const [state = "", , pgrp] = text.slice(text.lastIndexOf(")") + 2).split(" ");
    return Number(pgrp) === group ? [state] : [];
  } catch {
    // The process has ended since.
    return [];
  }
}

interface GroupListeners {
  /** Called at once, before anything else can happen in this process. */
  readonly started: (pid: number) => void;
  /** Gets the standard output; without it, that of this process does. */
  readonly output?: OutputTail | undefined;
}

/** The command and all that it has started, except what has left its process group. */
export class ProcessGroup {
  /** The exit code as shells have it. Rejects with a CliError if the command could not be started. */
  readonly ended: Promise<number>;
  readonly pid: number | undefined;

  constructor(
    [file = "", ...args]: readonly string[],
    env: NodeJS.ProcessEnv,
    { started, output }: GroupListeners,
  ) {
    try {
      const stdio = ["inherit", output ? "pipe" : "inherit", "inherit"] as const;
      const child = spawn(file, args, { detached: true, stdio: [...stdio], env });
      if (child.stdout) output?.follow(child.stdout);
      this.pid = child.pid;
      if (child.pid !== undefined) started(child.pid);
      this.ended = endOf(child, file);
    } catch (error) {
      this.ended = Promise.reject(startError(file, error as NodeJS.ErrnoException));
    }
    // Whoever awaits it gets the rejection; a command that fails to start is awaited a moment later.
    this.ended.catch(() => {});
  }

  /** Whether a process of the group still runs. */
  get alive(): boolean {
    return this.pid !== undefined && send(this.pid, 0) !== "gone" && !hasOnlyZombies(this.pid);
  }

  /** Returns false if every process of the group belongs to another user, as with `sudo`, and the signal was not sent. */
  signal(name: NodeJS.Signals): boolean {
    return this.pid === undefined || send(this.pid, name) !== "denied";
  }
}

async function endOf(child: ChildProcess, file: string): Promise<number> {
  if (child.pid === undefined) {
    const [error] = (await once(child, "error")) as [NodeJS.ErrnoException];
    throw startError(file, error);
  }
  child.on("error", () => {});
  const [code, signal] = (await once(child, "exit")) as [number | null, NodeJS.Signals | null];
  return code ?? EXIT.signal + os.constants.signals[signal ?? "SIGKILL"];
}

function startError(file: string, { code, message }: NodeJS.ErrnoException): CliError {
  // Node.js refuses an empty name before the system could say that there is no such file.
  if (code === "ENOENT" || file === "")
    return new CliError(EXIT.notFound, `${file === "" ? "''" : file}: command not found`);
  const reason = code === "EACCES" ? "permission denied, or not a program" : message;
  return new CliError(EXIT.notExecutable, `${file}: ${reason}`);
}

function send(group: number, signal: NodeJS.Signals | 0): "sent" | "denied" | "gone" {
  try {
    process.kill(-group, signal);
    return "sent";
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM" ? "denied" : "gone";
  }
}

/** The end of a command. */
export interface Outcome {
  /** The exit code of the command, as shells have it. */
  readonly exitCode: number;
  /** Why the command was ended; undefined if it ended by itself, or by a signal that this process passed on. */
  readonly ending: LostJson["reason"] | undefined;
  /** The group may have run for so long after the lease had run out, because this process did not run. */
  readonly ranOnMs: number;
  /** When the lease runs out, or ran out, without another renewal: on the clock that counts suspend. */
  readonly leaseOverAt: number;
}

/** What a supervisor keeps in view. */
interface Supervised {
  readonly hold: Hold;
  readonly watch: HoldWatch;
  readonly group: ProcessGroup;
  readonly guardian: Guardian;
  readonly pace: Pace;
  readonly maxHoldMs: number | undefined;
  readonly onWanted?: NodeJS.Signals | undefined;
  readonly reporter: Reporter;
}

/** A program that gets one of these is to end. */
const STOPPING: ReadonlySet<NodeJS.Signals> = new Set(["SIGTERM", "SIGINT", "SIGQUIT"] as const);

/** Long enough for a pipeline to end after its first process, too short to hold up the next holder. */
const REST_MS = 100;
/** A process that was killed and is still there waits in the kernel, or is a zombie that its parent does not reap. */
const KILLED_MS = 1000;
const POLL_MS = 10;
/** Two readings of the remaining time differ by less than this if no renewal came between them. */
const READING_MS = 10;

/** Ends a process group before the lease that it runs under can be another client's. */
export class Supervisor {
  #ending: { readonly reason: EndingReason; readonly at: number } | undefined;
  #killedAt: number | undefined;
  #lost = false;
  #ranOnMs = 0;
  #over = false;
  #denied = false;
  #askedToStop = false;
  /** On the monotonic clock, as of the last check. */
  #deadline = -Infinity;
  #leaseOverAt = Infinity;
  readonly #begun = systemClock.monotonic();
  #timer: Timer | undefined;

  constructor(private readonly it: Supervised) {}

  async run(): Promise<Outcome> {
    const { hold, watch, group, guardian } = this.it;
    const check = (): void => this.#check();
    hold.signal.addEventListener("abort", check);
    watch.gone.addEventListener("abort", () => this.#lose());
    const stopListening = this.#listen();
    try {
      check();
      if (watch.gone.aborted) this.#lose();
      const exitCode = await group.ended;
      await this.#endRest();
      if (this.#denied && this.#lost) this.#ranOnMs = this.#sinceLeaseOver();
      return { exitCode, ending: this.#reason, ranOnMs: this.#ranOnMs, leaseOverAt: this.#leaseOverAt };
    } finally {
      this.#over = true;
      stopListening();
      this.#timer?.cancel();
      hold.signal.removeEventListener("abort", check);
      guardian.dismiss();
    }
  }

  /** The command got a signal, because another client waits, that asks a program to end. */
  get askedToStop(): boolean {
    return this.#askedToStop;
  }

  /** From the deadline to the end of the lease. */
  get #unusedMs(): number {
    return this.it.pace.ttlSeconds * 1000 * (1 - DEADLINE_PART);
  }

  get #reason(): Outcome["ending"] {
    if (this.#lost) return "lost";
    const reason = this.#ending?.reason;
    return reason === "left_behind" ? undefined : reason;
  }

  /** For the first waiter. */
  #listen(): () => void {
    const { hold, onWanted } = this.it;
    if (onWanted === undefined) return () => undefined;
    const stop = hold.onWanted((waiter) => {
      stop();
      this.#wanted(waiter, onWanted);
    });
    return stop;
  }

  /** It is asked only: what it does then is its own decision. */
  #wanted(waiter: Contender, signal: NodeJS.Signals): void {
    const { hold, reporter } = this.it;
    if (this.#ending || this.#lost || !this.signal(signal)) return;
    this.#askedToStop = STOPPING.has(signal);
    const message = `${hold.name} is wanted by ${whoText(waiter)}: sent ${signal} to the command`;
    reporter.line(message, {
      event: "wanted",
      name: hold.name,
      signal,
      waiter: contenderJson(waiter),
      message,
    });
  }

  #check(): void {
    if (this.#over) return;
    const now = systemClock.monotonic();
    const left = this.it.hold.remainingMs();
    if (left === 0) return this.#lose();
    this.#renewed(now + left, left);
    const due = this.#due(now, left);
    if (due !== undefined) this.#end(due, now);
    const { graceMs, marginMs } = this.it.pace;
    if (this.#ending && (left <= marginMs || now >= this.#ending.at + graceMs)) this.#kill();
    this.#checkAgain(now, left);
  }

  #renewed(deadline: number, left: number): void {
    if (deadline <= this.#deadline + READING_MS) return;
    this.#deadline = deadline;
    this.#leaseOverAt = systemClock.now().suspend + left + this.#unusedMs;
    if (this.it.group.pid !== undefined) this.it.guardian.watch(this.it.group.pid, left);
    if (this.#ending?.reason === "unanswered")
      this.#report("renewed", "etcd has renewed the lease, too late for this command: it still has to end");
  }

  #due(now: number, left: number): EndingReason | undefined {
    const { pace, maxHoldMs = Infinity } = this.it;
    if (this.#ending) return undefined;
    if (left <= pace.graceMs + pace.marginMs) return "unanswered";
    return now - this.#begun >= maxHoldMs ? "max_hold" : undefined;
  }

  #checkAgain(now: number, left: number): void {
    const { pace, maxHoldMs = Infinity } = this.it;
    const boundaries = this.#ending
      ? [left - pace.marginMs, this.#ending.at + pace.graceMs - now]
      : [left - pace.graceMs - pace.marginMs, this.#begun + maxHoldMs - now];
    const next = Math.min(pace.checkMs, ...(this.#killedAt === undefined ? boundaries : []));
    this.#timer?.cancel();
    this.#timer = systemClock.after(Math.max(1, next), () => this.#check());
  }

  #end(reason: EndingReason, now: number): void {
    this.#ending = { reason, at: now };
    this.signal("SIGTERM");
    const message = ENDING_TEXTS[reason](this.it);
    this.it.reporter.line(message, { event: "ending", name: this.it.hold.name, reason, message });
  }

  #kill(): void {
    if (this.#killedAt !== undefined) return;
    this.#killedAt = systemClock.monotonic();
    if (!this.signal("SIGKILL") || this.#lost) return;
    this.#report("killed", "the command did not end within the grace: sent SIGKILL to its process group");
  }

  #report(event: ControlJson["event"], message: string): void {
    this.it.reporter.line(message, { event, name: this.it.hold.name, message });
  }

  /** Another client may hold already. */
  #lose(): void {
    if (this.#lost || this.#over) return;
    this.#lost = true;
    this.#kill();
    this.#ranOnMs = this.#sinceLeaseOver();
  }

  #sinceLeaseOver(): number {
    return Math.max(0, systemClock.monotonic() - this.#deadline - this.#unusedMs);
  }

  /** Returns false, and reports it once, if this process may not send signals to the group. */
  signal(name: NodeJS.Signals): boolean {
    const sent = this.it.group.signal(name);
    if (!sent && !this.#denied) {
      this.#denied = true;
      const message =
        "the command belongs to another user, so leasehold cannot end it: run leasehold as that user";
      this.it.reporter.line(message, { event: "denied", name: this.it.hold.name, message });
    }
    return sent;
  }

  /** The lock covers the whole group: what the command has left behind in it ends before the release. */
  async #endRest(): Promise<void> {
    const begin = systemClock.monotonic();
    while (this.it.group.alive) {
      const now = systemClock.monotonic();
      if (this.#killedAt !== undefined && now > this.#killedAt + KILLED_MS) return;
      if (!this.#ending && !this.#lost && now > begin + REST_MS) {
        this.#end("left_behind", now);
        this.#check();
      }
      await pause(systemClock, POLL_MS);
    }
  }
}

export const codeOf = ({ ending, exitCode }: Outcome): number =>
  ending === undefined ? exitCode : EXIT.lost;
