// The ticks of a schedule that nobody was there to run.
import type { KeyValue, Txn } from "../../etcd/port.js";
import {
  checkFunction,
  checkName,
  checkOptions,
  checkWait,
  type CheckedWait,
  rangeError,
  typeError,
} from "../../base/options/check.js";
import type { Lock } from "../../lock/hold/hold.js";
import { leaseSourceOf, type LeaseSource, type SessionSource } from "../../lock/session/cluster.js";
import { defaultOwner } from "../../lock/session/open-lease.js";
import { type Mark, parseMark, putMark } from "./marks.js";
import { once, type OnceOptions } from "./once.js";
import type { Asking } from "../../lock/queue/contenders.js";
import { askBy } from "../../observe/inspect.js";
import { queueMicrotask, tellOutside } from "../../base/util/own-context.js";
import { checkChoice, checkOnce, checkSlot } from "./options.js";
import { MarkSpace } from "./slots.js";
import { pathOf } from "../../keys.js";

/** So many ticks are looked at together. etcd takes 128 operations in a request. */
const AT_ONCE = 64;
/** More are a mistake: marks of so many are hardly kept. */
const MAX_DUE = 10_000;
const DEFAULT_GRACE_MS = 60_000;
const MISSED = ["all", "last", "none"] as const;
const CATCH_UP_OPTIONS = [
  "missed",
  "graceMs",
  "onMissed",
  "rerun",
  "keep",
  "label",
  "signal",
  "timeoutMs",
] as const;

export interface CatchUpOptions extends Pick<OnceOptions, "rerun" | "label" | "signal" | "timeoutMs"> {
  /** Marks of so many slots are kept: see `OnceOptions`. Ticks up to the youngest of those that were deleted are never run. @default 1000 */
  readonly keep?: number | { readonly slots: number } | undefined;
  /**
   * Which of the ticks that are due, and have no run, are run now. "all": each, in order. "last": the latest of all that are due, if it has
   * not run. "none": those that became due within `graceMs`. The others are marked as missed, and never run.
   */
  readonly missed: "all" | "last" | "none";
  /** Milliseconds, 0 or more, by the clock of this process, in which a tick does not count as missed. Only for "none". @default 60000 */
  readonly graceMs?: number | undefined;
  /** Gets the slots that this call has marked as missed, when etcd has confirmed that: also if the call rejects later. @default none */
  readonly onMissed?: ((slots: readonly number[]) => void) | undefined;
}

/** A tick of a schedule. */
export interface Tick {
  /** Its time in epoch milliseconds, which is its slot. */
  readonly slot: number;
  readonly date: Date;
  /** How late it is run, by the clock of this process. */
  readonly lateMs: number;
}

/** What one call of `catchUp` has done. */
export interface CaughtUp {
  /** The slots that this call has run, in order. */
  readonly ran: readonly number[];
  /** The slots that this call has marked as missed, in order: no other call returns them, nor does this one if it rejects. */
  readonly missed: readonly number[];
}

/**
 * Runs the ticks of a schedule that are due and that no process has run, such as those of an outage: each at most once, in
 * order, under the lock of `once`, whose slot is the time of the tick. So call it where you would call `once`, at each tick, and when the
 * process starts. One read shows which ticks have run; each run then costs what `once` costs. If another process runs one of them, the
 * call waits for its turn, so that runs never overlap.
 *
 * Goes on until no tick is due, by the clock of this process. A read waits 5 s for etcd, unless `timeoutMs` says otherwise. On abort: rejects with the signal's reason, between two runs.
 * @param slots the ticks, from the oldest that may be run on: epoch milliseconds or Dates, in ascending order, without an end if
 * you like. Or a function that gets the time of the tick whose mark is the youngest (undefined: none has run) and returns the ticks after that.
 * @param work gets the tick and the lock.
 * @throws what `work` threw: the tick has failed, and the next call goes on behind it. @throws as `once`.
 * @throws {TypeError | RangeError} on bad arguments, and when the ticks do not ascend.
 */
// eslint-disable-next-line max-params -- public: the options come last, as everywhere
export async function catchUp(
  source: SessionSource,
  name: string,
  slots: Iterable<number | Date> | ((last: Date | undefined) => Iterable<number | Date>),
  work: (tick: Tick, lock: Lock) => unknown,
  options: CatchUpOptions,
): Promise<CaughtUp> {
  const leases = leaseSourceOf(source);
  const { services } = leases;
  checkName(name);
  checkFunction("work", work);
  const given = checkOptions("catchUp", options, CATCH_UP_OPTIONS) as Partial<CatchUpOptions>;
  const { missed, graceMs = DEFAULT_GRACE_MS, onMissed, ...more } = given;
  checkOnce(more, 0, leases);
  if (onMissed !== undefined) checkFunction("onMissed", onMissed);
  const { signal } = more;
  if (missed === undefined) throw typeError("missed", '"all", "last" or "none"', missed);
  const policy = checkChoice("missed", missed, { choices: MISSED, fallback: "all" });
  if (typeof graceMs !== "number" || !(graceMs >= 0)) throw rangeError("graceMs", "0 or more", graceMs);
  const marks = new Marks(services, name, checkWait("catchUp", options, CATCH_UP_OPTIONS));
  const nowMs = (): number => services.clock.date().getTime();
  const due = new DueTicks(typeof slots === "function" ? slots(await marks.last()) : slots, nowMs);
  const done: { readonly ran: number[]; readonly missed: number[] } = { ran: [], missed: [] };
  for (;;) {
    const ticks = due.next(AT_ONCE);
    const latest = due.hasNext ? undefined : ticks.at(-1);
    if (ticks.length === 0) return done;
    const left = await marks.unmarked(ticks);
    const isRun = (slot: number): boolean =>
      policy === "all" || (policy === "last" ? slot === latest : nowMs() - slot <= graceMs);
    // Once: time passes while the others are marked.
    const chosen = new Set(left.filter(isRun));
    const gone = await marks.miss(left.filter((slot) => !chosen.has(slot)));
    done.missed.push(...gone);
    if (onMissed && gone.length > 0) queueMicrotask(() => tellOutside(() => onMissed(gone)));
    for (const slot of chosen) {
      signal?.throwIfAborted();
      const date = new Date(slot);
      const run = (lock: Lock): unknown => work({ slot, date, lateMs: Math.max(0, nowMs() - slot) }, lock);
      if ((await once(source, name, slot, run, more)).ran) done.ran.push(slot);
    }
  }
}

/** The ticks of an iterable that are due, one after the other. */
class DueTicks {
  readonly #ticks: Iterator<number | Date>;
  readonly #nowMs: () => number;
  /** One that has been taken, and is not due yet; undefined at the end. */
  #ahead: number | undefined;
  #count = 0;

  constructor(slots: Iterable<number | Date>, nowMs: () => number) {
    if (typeof (slots as Partial<Iterable<unknown>> | undefined)?.[Symbol.iterator] !== "function")
      throw typeError("slots", "an iterable, or a function that returns one", slots);
    this.#ticks = slots[Symbol.iterator]();
    this.#nowMs = nowMs;
    this.#ahead = this.#take(-1);
  }

  /** Another tick is due. */
  get hasNext(): boolean {
    return this.#ahead !== undefined && this.#ahead <= this.#nowMs();
  }

  /** The next ones, `limit` at most. */
  next(limit: number): readonly number[] {
    const ticks: number[] = [];
    while (ticks.length < limit && this.#ahead !== undefined && this.hasNext) {
      if (++this.#count > MAX_DUE)
        throw rangeError(
          "slots",
          `at most ${MAX_DUE} that are due: begin later`,
          `more, from ${ticks[0]} on`,
        );
      ticks.push(this.#ahead);
      this.#ahead = this.#take(this.#ahead);
    }
    return ticks;
  }

  #take(before: number): number | undefined {
    const next = this.#ticks.next();
    if (next.done) return undefined;
    const { value } = next;
    const slot = checkSlot(value instanceof Date ? value.getTime() : value);
    if (slot <= before) throw rangeError("slots", `ascending, so above ${before}`, slot);
    return slot;
  }
}

/** The marks of a name, without a session. */
class Marks {
  readonly #space: MarkSpace;

  constructor(
    private readonly services: LeaseSource["services"],
    private readonly name: string,
    private readonly wait: CheckedWait,
  ) {
    this.#space = MarkSpace.of(services, name);
  }

  /** The tick whose mark is the youngest. */
  async last(): Promise<Date | undefined> {
    const youngest = { ...this.#space.slots(), order: "newest first", limit: 1, keysOnly: true } as const;
    const { kvs } = await this.#ask(({ policy, services }) => services.client.range(youngest, policy));
    const [slot] = kvs.map(({ key }) => this.#space.slotOf(key.toString()));
    return typeof slot === "number" ? new Date(slot) : undefined;
  }

  /** Those of `slots` that have no mark, and have not expired. */
  async unmarked(slots: readonly number[]): Promise<number[]> {
    const marks = slots.map((slot) => ({ ...this.#space.mark(slot), keysOnly: true }));
    const reads = [this.#space.floors(), ...marks];
    const { ranges } = await this.#ask(({ policy, services }) => services.client.ranges(reads, policy));
    const [floors, ...found] = ranges.map(({ kvs }) => kvs);
    const [floor = -1] = (floors ?? []).map(({ key }) => this.#space.floorOf(key.toString()));
    return slots.filter((slot, n) => slot > floor && found[n]?.length === 0);
  }

  /** Marks them as missed, as long as they have no mark. Returns those that this call has marked. */
  async miss(slots: readonly number[]): Promise<readonly number[]> {
    const { clock } = this.services;
    const since = clock.date().toISOString();
    const mark: Mark = {
      state: "missed",
      owner: defaultOwner(),
      since,
      ended: since,
      id: clock.randomId().toString(36),
      key: "",
    };
    for (let left = [...slots]; left.length > 0;) {
      const txn = this.#missTxn(left, mark);
      const answer = await this.#ask(({ policy, services }) => services.client.txn(txn, policy));
      // An attempt whose answer was lost has put all of them, or none.
      const isOurs = ({ kvs: [kv] }: { readonly kvs: readonly KeyValue[] }): boolean =>
        kv !== undefined && parseMark(kv)?.id === mark.id;
      if (answer.succeeded || answer.ranges.every((range) => range && isOurs(range))) return left;
      left = await this.unmarked(left);
    }
    return [];
  }

  #missTxn(slots: readonly number[], mark: Mark): Txn {
    const keys = slots.map((slot) => this.#space.mark(slot));
    return {
      queues: [pathOf(this.services, this.name)],
      compare: [
        ...keys.map((at) => ({ kind: "created at", ...at, revision: 0n }) as const),
        { kind: "nothing in", ...this.#space.floorsFrom(slots[0] ?? 0) },
      ],
      success: keys.map((at) => putMark(at, mark, 0n)),
      failure: keys.map((at) => ({ kind: "range", ...at }) as const),
    };
  }

  #ask<T>(call: (asking: Asking) => Promise<T>): Promise<T> {
    const { services, name, wait } = this;
    return askBy(services, { what: `look for the ticks of "${name}"`, wait }, call);
  }
}
