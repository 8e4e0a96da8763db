// The ticks of a schedule that nobody was there to run.
import type { KeyValue, Range, Txn } from "../../etcd/port.js";
import type { RangesAnswer } from "../../etcd/ranges.js";
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
import { DueTicks } from "./due-ticks.js";
import { type Mark, parseMark, putMark, unchanged } from "./marks.js";
import { once, type OnceOptions } from "./once.js";
import type { Asking } from "../../lock/queue/contenders.js";
import { askBy } from "../../observe/inspect.js";
import { queueMicrotask, tellOutside } from "../../base/util/own-context.js";
import { oldestOf } from "../../lock/queue/lock-mode.js";
import { checkChoice, checkOnce } from "./options.js";
import type { Rerun } from "./plan.js";
import { MarkSpace } from "./slots.js";
import { pathOf } from "../../keys.js";

/** So many ticks are looked at together. etcd takes 128 operations in a request. */
const AT_ONCE = 64;
/** With their values, which may have 96 KiB, or with the marks of older versions. Many proxies pass on 4 MiB at a time. */
const FEWER_AT_ONCE = 32;
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
   * not run. "none": those that became due within `graceMs`. The others are marked as missed, and never run. A tick that has failed or was
   * lost is never marked as missed; it's run again only if `rerun` and `missed` say so, and if the ticks begin before it.
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
 * call waits for its turn, so that runs never overlap, and nothing is made of later ticks before that run has ended: if that process gives up
 * before its work, the tick is run here, whatever `missed` says.
 *
 * Goes on until no tick is due, by the clock of this process. A read waits 5 s for etcd, unless `timeoutMs` says otherwise. On abort: rejects with the signal's reason, between two runs.
 * @param slots the ticks, from the oldest that may be run on: epoch milliseconds or Dates, in ascending order, without an end if
 * you like. Or a function that gets the time of the tick whose mark is the youngest (undefined: none has run) and returns the ticks after that.
 * @param work gets the tick and the lock.
 * @throws what `work` threw: the tick has failed, and the next call goes on behind it, unless `rerun` says "if_failed". @throws as `once`.
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
  const wait = checkWait("catchUp", options, CATCH_UP_OPTIONS);
  const marks = new Marks(services, { name, wait, rerun: more.rerun ?? "never" });
  const nowMs = (): number => services.clock.date().getTime();
  const last = typeof slots === "function" ? await marks.last() : undefined;
  const due = new DueTicks(typeof slots === "function" ? slots(last && new Date(last.slot)) : slots, nowMs);
  const done: { readonly ran: number[]; readonly missed: number[] } = { ran: [], missed: [] };
  /** Ticks that another process runs, or ran when they were looked at. */
  const running = new Set(last?.isBusy ? [last.slot] : []);
  const run = async (slot: number, ifRunning?: "wait"): Promise<void> => {
    signal?.throwIfAborted();
    const date = new Date(slot);
    const tick = (lock: Lock): unknown => work({ slot, date, lateMs: Math.max(0, nowMs() - slot) }, lock);
    const result = await once(source, name, slot, tick, { ...more, ifRunning });
    if (result.ran) done.ran.push(slot);
    if (!result.ran && result.reason === "running") running.add(slot);
    else running.delete(slot);
  };
  /** A process may give up before its work. With a mark on a later tick, nobody would look at that one any more: so it is run here. */
  const settle = async (later: number | undefined): Promise<void> => {
    for (const slot of running) if (later !== undefined && slot < later) await run(slot, "wait");
  };
  try {
    for (;;) {
      const ticks = due.next(marks.atOnce);
      const latest = due.hasNext ? undefined : ticks.at(-1);
      if (ticks.length === 0) {
        due.close();
        return done;
      }
      const { unmarked, again, busy } = await marks.look(ticks);
      for (const slot of busy) running.add(slot);
      const isRun = (slot: number): boolean =>
        policy === "all" || (policy === "last" ? slot === latest : nowMs() - slot <= graceMs);
      // Once: time passes while the others are marked.
      const chosen = new Set(ticks.filter((slot) => (unmarked.has(slot) || again.has(slot)) && isRun(slot)));
      const left = ticks.filter((slot) => unmarked.has(slot) && !chosen.has(slot));
      await settle(left.at(-1));
      const gone = await marks.miss(left);
      done.missed.push(...gone);
      if (onMissed && gone.length > 0) queueMicrotask(() => tellOutside(() => onMissed(gone)));
      for (const slot of chosen) {
        await settle(slot);
        await run(slot);
      }
    }
  } catch (error) {
    due.failed();
    throw error;
  }
}

/** What is known of some ticks that have not expired. One that may be run again may also be busy. */
interface Look {
  /** Without a mark. */
  readonly unmarked: ReadonlySet<number>;
  /** Their run failed or was lost, or has not ended, and `rerun` says that they may be run again. */
  readonly again: ReadonlySet<number>;
  /** A run that has not ended may have put the mark. */
  readonly busy: readonly number[];
}

/** The marks of a name, without a session. */
class Marks {
  readonly #name: string;
  readonly #wait: CheckedWait;
  readonly #rerun: Rerun;
  readonly #path: string;
  readonly #space: MarkSpace;
  /** Also that of older versions. */
  readonly #spaces: readonly MarkSpace[];

  constructor(
    private readonly services: LeaseSource["services"],
    { name, wait, rerun }: { readonly name: string; readonly wait: CheckedWait; readonly rerun: Rerun },
  ) {
    [this.#name, this.#wait, this.#rerun] = [name, wait, rerun];
    this.#path = pathOf(services, name);
    this.#space = MarkSpace.of(services, name);
    const old = MarkSpace.oldOf(services, name);
    this.#spaces = old ? [this.#space, old] : [this.#space];
  }

  /** So many ticks fit into a request. */
  get atOnce(): number {
    return this.#rerun === "never" && this.#spaces.length === 1 ? AT_ONCE : FEWER_AT_ONCE;
  }

  /** Whoever runs a tick has this entry. */
  get #oldest(): Range {
    return { ...oldestOf(this.#path), keysOnly: true };
  }

  /** The tick whose mark is the youngest. `isBusy`: a run that has not ended may have put it. */
  async last(): Promise<{ readonly slot: number; readonly isBusy: boolean } | undefined> {
    const youngest = this.#spaces.map(
      (space) => ({ ...space.slots(), order: "newest first", limit: 1, keysOnly: true }) as const,
    );
    const { ranges } = await this.#read([this.#oldest, ...youngest]);
    const [holder, ...found] = ranges.map(({ kvs: [kv] }) => kv);
    const marks = found.flatMap((kv, n) => (kv ? [{ kv, space: this.#spaces[n] }] : []));
    const [last] = marks.sort((a, b) => (a.kv.createRevision < b.kv.createRevision ? 1 : -1));
    const slot = last?.space?.slotOf(last.kv.key.toString());
    return last && typeof slot === "number" ? { slot, isBusy: isBusy(last.kv, holder) } : undefined;
  }

  async look(slots: readonly number[]): Promise<Look> {
    const keysOnly = this.#rerun === "never";
    const reads = this.#spaces.flatMap((space) => [
      space.floors(),
      ...slots.map((slot) => ({ ...space.mark(slot), keysOnly })),
    ]);
    const { ranges } = await this.#read([this.#oldest, ...reads]);
    const [holder, ...found] = ranges.map(({ kvs: [kv] }) => kv);
    const inSpaces = this.#spaces.map((space, n) => {
      const [floor, ...marks] = found.slice(n * (slots.length + 1), (n + 1) * (slots.length + 1));
      return { floor: floor ? space.floorOf(floor.key.toString()) : -1, marks };
    });
    const floor = Math.max(...inSpaces.map((each) => each.floor));
    const ticks = slots
      .map((slot, n) => ({ slot, mark: inSpaces.map(({ marks }) => marks[n]).find((mark) => mark) }))
      .filter(({ slot }) => slot > floor);
    const among = (is: (mark: KeyValue | undefined) => boolean | undefined): number[] =>
      ticks.filter(({ mark }) => is(mark)).map(({ slot }) => slot);
    return {
      unmarked: new Set(among((mark) => !mark)),
      again: new Set(among((mark) => mark && this.#mayRunAgain(mark))),
      busy: among((mark) => mark && isBusy(mark, holder)),
    };
  }

  /** `once` decides whether a run has ended. */
  #mayRunAgain(mark: KeyValue): boolean {
    const state = this.#rerun === "never" ? undefined : parseMark(mark)?.state;
    return state === "started" || (state === "failed" && this.#rerun === "if_failed");
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
      const { unmarked } = await this.look(left);
      left = left.filter((slot) => unmarked.has(slot));
    }
    return [];
  }

  #missTxn(slots: readonly number[], mark: Mark): Txn {
    const keys = slots.map((slot) => this.#space.mark(slot));
    return {
      queues: [this.#path],
      compare: this.#spaces.flatMap((space) => [
        ...slots.map((slot) => unchanged(space.mark(slot), 0n)),
        { kind: "nothing in", ...space.floorsFrom(slots[0] ?? 0) } as const,
      ]),
      success: keys.map((at) => putMark(at, mark, 0n)),
      failure: keys.map((at) => ({ kind: "range", ...at }) as const),
    };
  }

  #read(ranges: readonly Range[]): Promise<RangesAnswer> {
    return this.#ask(({ policy, services }) => services.client.ranges(ranges, policy));
  }

  #ask<T>(call: (asking: Asking) => Promise<T>): Promise<T> {
    const what = `look for the ticks of "${this.#name}"`;
    return askBy(this.services, { what, wait: this.#wait }, call);
  }
}

/** A run puts its mark when, or after, it has put its entry, which is the oldest one. */
const isBusy = (mark: KeyValue, holder: KeyValue | undefined): boolean =>
  holder !== undefined && mark.modRevision >= holder.createRevision;
