import type { LockKind } from "../../kinds.js";
import type { CheckedLock } from "../../base/options/lock.js";
import type { AuditedWait } from "../session/key-audit.js";
import type { Dependent, SessionEnd } from "../session/lease.js";
import type { WaitSnapshot } from "../../base/telemetry/inspect.js";
import { type About, type JoinedEntry, kindOf, type QueueEntry } from "./entry.js";
import type { LockMode } from "./lock-mode.js";
import type { PredecessorWait, WaitOutcome } from "./predecessor-wait.js";
import type { Queue } from "./queue.js";
import type { Superseding } from "./superseding.js";

/** The state of a waiter. */
type Stage =
  | { readonly at: "line" }
  | { readonly at: "join" }
  /** Behind an entry of the same session, whose end or grant wakes the waiter: no watch is needed. */
  | { readonly at: "local"; readonly entry: JoinedEntry; readonly below: JoinedEntry }
  | { readonly at: "turn"; readonly entry: JoinedEntry; readonly wait: PredecessorWait }
  | { readonly at: "end" };

const NOBODY: readonly Waiter[] = [];
const NO_ENTRIES: readonly JoinedEntry[] = [];
const IN_LINE: Stage = { at: "line" };
const END: Stage = { at: "end" };
let calls = 0;

export interface WaiterOptions {
  /** What is acquired, and with which options, for reports. */
  readonly kind?: LockKind;
  /** As its caller gave it, where that is not the name of the queue. */
  readonly names?: readonly string[];
  readonly options?: CheckedLock;
  /** The value of its key, instead of the data for `inspect`. An adopted entry keeps its value. */
  readonly value?: string;
  /** Why its caller wants the lock, for the data for `inspect`. */
  readonly reason?: string | undefined;
  /** It joins only if fewer entries wait. */
  readonly maxWaiting?: number | undefined;
  /** What a candidate says of itself. */
  readonly about?: About | undefined;
  /** It overtakes the older calls of its kind that wait. */
  readonly superseding?: Superseding | undefined;
  /** Called when its entry is in the queue or never will be: later calls can no longer come before it. */
  readonly onJoined?: () => void;
  /** Called with the number of entries that must end before its own, if the answer to its join shows it. */
  readonly onAhead?: (ahead: number) => void;
}

/** One caller, from its call until it is granted, fails or gives up. */
export class Waiter implements Dependent, AuditedWait, WaitOutcome {
  /** A waiter that must join again comes before later callers of this process. */
  readonly order = calls++;
  readonly granted: Promise<JoinedEntry>;
  stage: Stage = IN_LINE;
  readonly #since: number;
  #gaveUp = false;
  #lostPlace = false;
  #lastRevision: bigint | undefined;
  #resolve: (entry: JoinedEntry) => void = () => {};
  #reject: (error: Error) => void = () => {};

  constructor(
    private readonly queue: Queue,
    readonly mode: LockMode,
    readonly options: WaiterOptions,
  ) {
    this.#since = queue.lease.services.clock.monotonic();
    this.granted = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  get kind(): LockKind {
    return this.options.kind ?? kindOf(this.mode);
  }

  /** Create revision of its entry; undefined when it has none yet. */
  get revision(): bigint | undefined {
    return "entry" in this.stage ? this.stage.entry.revision : this.#lastRevision;
  }

  get waitingFor(): { readonly name: string; readonly revision: bigint | undefined } {
    return { name: this.queue.name, revision: this.revision };
  }

  describe(): WaitSnapshot {
    const { stage, revision, queue, kind } = this;
    const { options, names = [queue.name] } = this.options;
    const { leaseId, services } = queue.lease;
    const key = "entry" in stage ? stage.entry.key : undefined;
    const ahead = stage.at === "turn" ? stage.wait.ahead : undefined;
    const waitedMs = services.clock.monotonic() - this.#since;
    return { kind, names, name: queue.name, label: options?.label, leaseId, key, revision, waitedMs, ahead };
  }

  /** Whether it has, or had, a place in the queue. */
  get joined(): boolean {
    return this.#lostPlace || this.revision !== undefined;
  }

  /** A key that its session keeps serves it. */
  get sticky(): boolean {
    return this.options.options?.sticky === true;
  }

  /** It is passed on in this process while others wait. */
  get local(): boolean {
    return this.options.options?.local !== undefined;
  }

  get gaveUp(): boolean {
    return this.#gaveUp;
  }

  /** Another client deleted the key of its entry: the waiter must join again. */
  lostPlace(): void {
    this.#lostPlace = true;
    this.stage = IN_LINE;
  }

  /** The waiter's entry, if its own watches don't report the end of that one. */
  get unwatched(): readonly JoinedEntry[] {
    const { stage } = this;
    const watched = stage.at === "turn" && stage.wait.seesOwnEnd;
    return "entry" in stage && !watched ? [stage.entry] : NO_ENTRIES;
  }

  /** An audit has shown that the key of this entry is gone. */
  placeLost(entry: JoinedEntry): void {
    if (this.unwatched.includes(entry)) this.queue.joinAnew(this, entry);
  }

  turnGranted(): void {
    // Another session had it. To stay, the key would be watched in vain: it is asked for at once.
    if (this.sticky && !this.local) this.queue.contended();
    this.queue.turnCame(this, this.#turn);
  }

  keyGone(at?: bigint): void {
    this.queue.joinAnew(this, this.#turn, at);
  }

  waitFailed(error: Error): void {
    this.queue.failed(this, this.#turn, error);
  }

  /** The entry whose turn it waits for. */
  get #turn(): JoinedEntry {
    if (this.stage.at !== "turn") throw new Error("Expected a waiter that waits for its turn");
    return this.stage.entry;
  }

  succeed(entry: JoinedEntry): void {
    this.#lastRevision = entry.revision;
    this.stage = END;
    this.#resolve(entry);
  }

  fail(error: Error): void {
    this.#lastRevision = this.revision;
    this.stage = END;
    this.#rejectGranted(error);
  }

  /** The caller no longer waits; its entry is removed in the background. */
  giveUp(): void {
    if (this.#gaveUp || this.stage.at === "end") return;
    this.#gaveUp = true;
    this.#lastRevision = this.revision;
    this.queue.abandoned(this);
  }

  sessionEnded(reason: SessionEnd): void {
    this.#rejectGranted(reason);
    this.giveUp();
  }

  #rejectGranted(error: Error): void {
    // The caller may have left already: the rejection then has no other listener.
    this.granted.catch(() => undefined);
    this.#reject(error);
  }
}

/** Callers of one process that have not joined yet, in the order of their calls. */
export class LocalLine {
  /** Created on demand: most of thousands of names have no caller in line. */
  #new: Set<Waiter> | undefined;
  /** Waiters that lost their place and join again: never more than wait in etcd. */
  #again: readonly Waiter[] = NOBODY;

  get empty(): boolean {
    return this.#new === undefined && this.#again.length === 0;
  }

  get size(): number {
    return (this.#new?.size ?? 0) + this.#again.length;
  }

  /** Whether all callers may wait for a key of this mode that is passed on to them. etcd's count decides for one that joins only if there is room. */
  isLocal(mode: LockMode): boolean {
    const isLocal = (each: Waiter): boolean =>
      each.local && each.mode === mode && each.options.maxWaiting === undefined;
    return this.#again.every(isLocal) && [...(this.#new ?? NOBODY)].every(isLocal);
  }

  /** The callers that join only if there is room. */
  get bounded(): readonly Waiter[] {
    return this.#with("maxWaiting");
  }

  /** The callers that a newer one of their kind overtakes. */
  get superseding(): readonly Waiter[] {
    return this.#with("superseding");
  }

  #with(option: "maxWaiting" | "superseding"): readonly Waiter[] {
    return [...this.#again, ...(this.#new ?? NOBODY)].filter(({ options }) => options[option] !== undefined);
  }

  get first(): Waiter | undefined {
    const [again] = this.#again;
    if (again) return again;
    for (const waiter of this.#new ?? NOBODY) return waiter;
    return undefined;
  }

  add(waiter: Waiter): void {
    this.#new ??= new Set();
    this.#new.add(waiter);
  }

  addAgain(waiter: Waiter): void {
    waiter.lostPlace();
    this.#again = [...this.#again, waiter].sort((a, b) => a.order - b.order);
  }

  remove(waiter: Waiter): void {
    if (!this.#removeNew(waiter)) this.#again = this.#again.filter((other) => other !== waiter);
  }

  next(): Waiter | undefined {
    const { first } = this;
    if (first && !this.#removeNew(first)) this.#again = this.#again.slice(1);
    return first;
  }

  #removeNew(waiter: Waiter): boolean {
    const removed = this.#new?.delete(waiter) ?? false;
    if (this.#new?.size === 0) this.#new = undefined;
    return removed;
  }
}

/** Waiters, each with its entry, by the entry of their own session that they wait for. */
export class LocalSuccessors {
  /** Created on demand: most of thousands of names have one waiter. */
  #behind: Map<QueueEntry, Map<Waiter, JoinedEntry>> | undefined;

  /** In the order in which they were added. */
  of(below: QueueEntry): readonly (readonly [Waiter, JoinedEntry])[] {
    return [...(this.#behind?.get(below) ?? [])];
  }

  add(waiter: Waiter, entry: JoinedEntry, below: QueueEntry): void {
    this.#behind ??= new Map();
    this.#behind.set(below, (this.#behind.get(below) ?? new Map<Waiter, JoinedEntry>()).set(waiter, entry));
  }

  remove(waiter: Waiter, below: QueueEntry): void {
    const waiters = this.#behind?.get(below);
    waiters?.delete(waiter);
    if (waiters?.size === 0) this.#behind?.delete(below);
  }
}
