// One call of a Mutex with `priorities`, from its call until it holds, fails or gives up. What its places mean is in `priority-mode.ts`.
//
//   at        it waits for                          and then
//   (free)    the claim of a better call, once      joins
//   line      the joins of better calls of ours     tries the lock, if we have no key in the queue; otherwise puts its place
//   place     the end of the key before it, or      claims, if nobody better waited at its last read;
//             of a better call of this session      otherwise reads the queue
//   claim     the answer                            holds, or waits again, by what the answer shows
//
// Its place is gone: it joins again, and its rank is that of a new call.
import type { KeyValue, WatchEvent } from "../../etcd/port.js";
import type { Watch, WatchListener } from "../../etcd/watch-hub.js";
import type { WaitSnapshot } from "../../base/telemetry/inspect.js";
import { inOwnContext } from "../../base/util/own-context.js";
import type { Timer } from "../../base/util/clock.js";
import type { AuditedWait } from "../session/key-audit.js";
import type { Dependent, Lease, SessionEnd } from "../session/lease.js";
import type { JoinedEntry } from "./entry.js";
import type { Admission, JoinWanted } from "./join.js";
import { GRANTED, type LockMode, queueRange, whenEmpty } from "./lock-mode.js";
import {
  assertOurKind,
  everyEntry,
  type InTheWay,
  type NextPlace,
  type Outlook,
  outlookOf,
  prioritized,
  rankOf,
} from "./priority-mode.js";
import type { JoinOptions, LockTable, Queue } from "./queue.js";
import { claimTxn, placeTxn } from "./txns.js";

/** Bounds the damage of an event that never comes. */
const SLOW_READ_MS = 30_000;
const SLOW_GRAIN_MS = 500;
/** A rejected call leaves within a round trip or two. One that stays so long is of a client that waits for us, as we for it. */
const FOREIGN_MS = 1000;
/** For the claim of another call, which takes a round trip or two. */
const LET_PASS_MS = 1000;

/** Somebody is better, or holds. Nobody outside sees this error. */
const NOT_NEXT = new Error("the turn has not come");

let calls = 0;

/** The calls of one session under one name: one of them joins at a time, the best first. */
export class PriorityLine {
  readonly #calls = new Set<PriorityWaiter>();
  readonly #waiting = new Map<PriorityWaiter, () => void>();
  #joining = false;
  /** By the last answer to any of them. */
  next: NextPlace | undefined;

  get isEmpty(): boolean {
    return this.#calls.size === 0;
  }

  add(call: PriorityWaiter): void {
    this.#calls.add(call);
  }

  delete(call: PriorityWaiter): void {
    this.#calls.delete(call);
  }

  /** The last call of ours before this one that has a place. Its end is known here, and needs no watch. */
  before(call: PriorityWaiter): PriorityWaiter | undefined {
    let last: PriorityWaiter | undefined;
    for (const other of this.#calls)
      if (other !== call && other.stands(call) && !(last && other.stands(last))) last = other;
    return last;
  }

  async join<T>(call: PriorityWaiter, work: () => Promise<T>): Promise<T> {
    if (this.#joining) await new Promise<void>((resolve) => this.#waiting.set(call, resolve));
    this.#joining = true;
    try {
      return await work();
    } finally {
      const best = [...this.#waiting.keys()].reduce<PriorityWaiter | undefined>(
        (a, b) => (a && !b.isBefore(a) ? a : b),
        undefined,
      );
      const next = best && this.#waiting.get(best);
      if (best) this.#waiting.delete(best);
      this.#joining = next !== undefined;
      next?.();
    }
  }
}

function modesOf({ mode }: JoinOptions): ReturnType<typeof prioritized> {
  const { level = 0, agingMs = 1 } = mode?.priority ?? {};
  return prioritized(level, agingMs);
}

/** One call that waits. */
export class PriorityWaiter implements Dependent, AuditedWait {
  readonly granted: Promise<JoinedEntry>;
  readonly #order = calls++;
  #since: string;
  #rank: number;
  readonly #beganMs: number;
  readonly #lease: Lease;
  readonly #line: PriorityLine;
  readonly #modes: { readonly place: LockMode; readonly hold: LockMode };
  #place: JoinedEntry | undefined;
  /** By the last answer that has shown the queue. */
  #outlook: Outlook | undefined;
  /** The end for which it waited has come: the queue may differ from what is known only by that, and by later calls. */
  #hasEnded = false;
  #hasLetPass = false;
  #joined = false;
  #lastRevision: bigint | undefined;
  #gaveUp = false;
  #wake: () => void = () => {};
  readonly #listeners = new Set<() => void>();
  #reject: (error: Error) => void = () => {};

  constructor(
    private readonly table: LockTable,
    private readonly name: string,
    private readonly options: JoinOptions,
  ) {
    const { lease } = table;
    this.#lease = lease;
    this.#beganMs = lease.services.clock.monotonic();
    this.#modes = modesOf(options);
    [this.#since, this.#rank] = this.#now();
    this.#line = this.#queue.prioritized ??= new PriorityLine();
    lease.waits.add(this);
    this.#line.add(this);
    this.granted = new Promise((resolve, reject) => {
      this.#reject = reject;
      inOwnContext(() => this.#run()).then(
        (entry) => entry && resolve(entry),
        (error: Error) => reject(error),
      );
    });
    // The caller may have given up already: then nothing else handles a rejection.
    this.granted.catch(() => undefined);
  }

  get joined(): boolean {
    return this.#joined;
  }

  /** When a call joins the queue for the first time, or again. */
  #now(): [since: string, rank: number] {
    const since = this.#lease.services.clock.date();
    return [since.toISOString(), rankOf(since.getTime(), this.#modes.place.priority!)];
  }

  /** Both have places, and the rank of this one is better in etcd. */
  stands(before: PriorityWaiter): boolean {
    if (!this.#place || !before.#place || this.#gaveUp) return false;
    if (this.#rank !== before.#rank) return this.#rank < before.#rank;
    return this.#place.revision < before.#place.revision;
  }

  get waitingFor(): { readonly name: string; readonly revision: bigint | undefined } {
    return { name: this.name, revision: this.#place?.revision ?? this.#lastRevision };
  }

  describe(): WaitSnapshot {
    const { leaseId, services } = this.#lease;
    const { name } = this;
    const { options } = this.options;
    const waitedMs = services.clock.monotonic() - this.#beganMs;
    const { key } = this.#place ?? {};
    const ahead = this.#place && this.#outlook?.ahead;
    const { revision } = this.waitingFor;
    return {
      kind: "priority",
      names: [name],
      name,
      label: options?.label,
      leaseId,
      key,
      revision,
      waitedMs,
      ahead,
    };
  }

  /** It joins first. */
  isBefore(other: PriorityWaiter): boolean {
    return this.#rank === other.#rank ? this.#order < other.#order : this.#rank < other.#rank;
  }

  /** Calls `listener` once, when its place has ended. Returns the function that ends this. */
  whenPlaceEnds(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** No watch reports the end of its place. */
  get unwatched(): readonly JoinedEntry[] {
    return this.#place ? [this.#place] : [];
  }

  placeLost(entry: JoinedEntry): void {
    if (this.#place !== entry) return;
    this.#hasEnded = false;
    this.#wake();
  }

  giveUp(): void {
    if (this.#gaveUp) return;
    this.#gaveUp = true;
    this.#lease.waits.delete(this);
    this.#wake();
  }

  sessionEnded(reason: SessionEnd): void {
    this.#reject(reason);
    this.giveUp();
  }

  /** Looked up at each step: a queue may be idle meanwhile, and be forgotten. */
  get #queue(): Queue {
    return this.table.queue(this.name);
  }

  /** undefined: the caller gave up. */
  async #run(): Promise<JoinedEntry | undefined> {
    const line = this.#line;
    try {
      const adopted = await this.#adopted();
      if (adopted) return adopted;
      while (!this.#gaveUp) {
        if (this.#mustLetPass(line.next)) await this.#letPass(line.next);
        const hold = await this.#lease.inFlight.track(
          this.#place ? this.#claim() : line.join(this, () => this.#join()),
        );
        const granted = hold && this.#grant(hold);
        if (granted) return granted;
        if (this.#place && !this.#gaveUp) await this.#wait();
      }
      return undefined;
    } finally {
      this.#lease.waits.delete(this);
      line.delete(this);
      if (this.#place) this.#queue.leaveInBackground(this.#place);
      this.#placeEnded();
      this.#queue.forgetIfIdle();
    }
  }

  /** undefined: its key is gone already, or the caller. */
  #grant(hold: JoinedEntry): JoinedEntry | undefined {
    const queue = this.#queue;
    // Reads the clock: the process may have been suspended before the answer was read.
    if (this.#lease.over || this.#gaveUp) {
      this.#gaveUp = true;
      queue.leaveInBackground(hold);
      return undefined;
    }
    if (queue.grant(hold, GRANTED, this.options.options)) return hold;
    queue.deletedAlone(hold);
    queue.lost(hold);
    return this.#beginAnew();
  }

  /** The hold of the process that has left its session to this one. */
  async #adopted(): Promise<JoinedEntry | undefined> {
    const queue = this.#queue;
    const { leaseId } = this.#lease;
    const found = this.#lease.adopted?.claim(queue.path, ({ key, value }) => {
      assertOurKind(queue, { key, value, leaseId });
      return true;
    });
    if (!found) return undefined;
    const hold = queue.own.adopt(found, { mode: this.#modes.hold, kind: "priority" });
    const policy = this.#lease.policy(`read the queue of "${this.name}"`);
    const { kvs } = await this.#lease.services.client.range({ key: hold.key }, policy);
    if (kvs.some((kv) => hold.is(kv))) return this.#grant(hold);
    queue.lost(hold);
    return undefined;
  }

  /** Tries the lock, and puts a place if that is taken. */
  async #join(): Promise<JoinedEntry | undefined> {
    await this.#queue.tenures.keptHaveLeft();
    const queue = this.#queue;
    const { own } = queue;
    if (this.#gaveUp) return undefined;
    this.#lease.assertOpen();
    // An answer to the call before it in the line may have shown it.
    if (this.#mustLetPass(this.#line.next)) return undefined;
    const mismatch = own.mismatch("priority", own.joined);
    if (mismatch) throw mismatch;
    this.#outlook = undefined;
    if (own.joined.length === 0) {
      const hold = await this.#claim();
      if (hold || this.#gaveUp || this.#mustLetPass(this.#line.next)) return hold;
    }
    const admission: Admission = {
      txn: (place) => placeTxn(place),
      // Its number was taken: another one is tried.
      shown: () => undefined,
      put: ({ kvs, revision }, place) => {
        this.#place = place;
        this.#joined = true;
        this.#look(kvs, revision, true);
      },
    };
    await this.table.joiner.joinIf(admission, queue, this.#wanted(this.#modes.place));
    this.options.onAhead?.(this.#outlook === undefined ? 0 : (this.#outlook as Outlook).ahead);
    this.options.onJoined?.();
    return undefined;
  }

  /** The hold, if nobody holds and nobody better waits. */
  async #claim(): Promise<JoinedEntry | undefined> {
    const place = this.#place;
    if (place && !this.#mayClaim) return undefined;
    const admission: Admission = {
      txn: (hold) => claimTxn(hold, place, this.#conditions(place)),
      shown: ({ kvs, revision }) => {
        this.#look(kvs, revision);
        if (!this.#mayClaim || this.#place !== place) throw NOT_NEXT;
      },
    };
    try {
      const [joined] = await this.table.joiner.joinIf(admission, this.#queue, this.#wanted(this.#modes.hold));
      if (place) this.#placeIsGone(place);
      else this.options.onAhead?.(0);
      this.options.onJoined?.();
      return joined?.entry;
    } catch (error) {
      if (error !== NOT_NEXT) throw error;
      return undefined;
    }
  }

  get #mayClaim(): boolean {
    const { blockers, behind } = this.#outlook ?? {};
    return blockers !== undefined && (behind === undefined || this.#hasEnded);
  }

  /** What must be true for the claim, besides that its key is new. */
  #conditions(place: JoinedEntry | undefined): Parameters<typeof claimTxn>[2] {
    const { path } = this.#queue;
    const { blockers = [], revision } = this.#outlook ?? {};
    if (!place || revision === undefined) return whenEmpty({ path, key: "", delayKey: undefined });
    return [
      { kind: "created at", key: place.key, revision: place.revision },
      ...blockers.map(({ key }) => ({ kind: "created at", key, revision: 0n }) as const),
      { kind: "nothing since", ...queueRange(path), revision },
    ];
  }

  #wanted(mode: LockMode): JoinWanted {
    const { reason } = this.options;
    const limits = { again: () => !this.#gaveUp };
    return { names: [this.name], mode, kind: "priority", reason, since: this.#since, limits };
  }

  #look(kvs: readonly KeyValue[], revision: bigint, isNew = this.#place === undefined): void {
    const place = this.#place;
    this.#hasEnded = false;
    this.#outlook = outlookOf(this.#queue, { place, rank: this.#rank, isNew }, { kvs, revision });
    this.#line.next = this.#outlook.next;
    if (!place || this.#outlook.isThere) return;
    this.#queue.deletedAlone(place);
    this.#placeIsGone(place);
    this.#beginAnew();
  }

  /** Another client has deleted its key. */
  #beginAnew(): undefined {
    [this.#since, this.#rank] = this.#now();
    return undefined;
  }

  #placeIsGone(place: JoinedEntry): void {
    this.#lastRevision = place.revision;
    this.#place = undefined;
    this.#queue.lost(place);
    this.#placeEnded();
  }

  #placeEnded(): void {
    const listeners = [...this.#listeners];
    this.#listeners.clear();
    for (const listener of listeners) listener();
  }

  /** See "No endless claims". A call that is better than that one does not let it pass: it is next itself. */
  #mustLetPass(next: NextPlace | undefined): next is NextPlace {
    return next !== undefined && !this.#place && !this.#hasLetPass && this.#rank >= next.rank;
  }

  async #letPass(next: NextPlace): Promise<void> {
    this.#hasLetPass = true;
    await this.#untilEnd(next, next.shownAt, LET_PASS_MS);
  }

  /** Until its turn may have come. */
  async #wait(): Promise<void> {
    const { behind, foreign, revision } = this.#outlook as Outlook;
    if (!behind) return;
    this.table.placeAudit.begin();
    const local = this.#line.before(this);
    if (local) {
      const woken = this.#woken();
      const stop = local.whenPlaceEnds(this.#wake);
      await woken;
      stop();
    } else this.#hasEnded = await this.#untilEnd(behind, revision, foreign && FOREIGN_MS);
    if (this.#gaveUp || this.#mayClaim) return;
    const read = await this.#read();
    if (foreign && read.foreign?.revision === foreign.revision) throw foreign.mismatch;
  }

  #woken(): Promise<void> {
    return new Promise((resolve) => (this.#wake = resolve));
  }

  /** Whether it has come. false: this call was woken before, or `withinMs` is over. `shownAt`: the revision of the answer that has shown the key. */
  async #untilEnd(key: InTheWay, shownAt: bigint, withinMs: number | undefined): Promise<boolean> {
    const woken = this.#woken();
    const end = new EndOfKey(this.#lease, key, shownAt);
    const patience =
      withinMs === undefined ? undefined : this.#lease.services.timers.add(withinMs, this.#wake);
    try {
      return await Promise.race([end.over, woken.then(() => false)]);
    } finally {
      patience?.cancel();
      end.stop();
    }
  }

  async #read(): Promise<Outlook> {
    const policy = this.#lease.policy("read the queue");
    const { header, kvs } = await this.#lease.services.client.range(everyEntry(this.#queue.path), policy);
    this.#look(kvs, header.revision);
    return this.#outlook as Outlook;
  }
}

/** Waits for the end of one key that an answer of revision `seenAt` has shown. */
class EndOfKey implements WatchListener {
  /** true: it has ended. false: something else may have happened, which only a read shows. */
  readonly over: Promise<boolean>;
  readonly #watch: Watch;
  #timer: Timer | undefined;
  #resolve: (hasEnded: boolean) => void = () => {};
  #reject: (error: Error) => void = () => {};

  constructor(
    private readonly lease: Lease,
    private readonly ending: InTheWay,
    private readonly seenAt: bigint,
  ) {
    this.over = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.over.catch(() => undefined);
    this.#watch = lease.services.watches.watch({ key: ending.key, events: "DELETE" }, this);
    this.#checkLater();
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#watch.cancel();
    this.#resolve(false);
  }

  #checkLater(): void {
    const { timers, clock } = this.lease.services;
    this.#timer = timers.add(
      SLOW_READ_MS * (0.75 + clock.random() / 2),
      () => void this.#check().then(() => this.#timer && this.#checkLater()),
      SLOW_GRAIN_MS,
    );
  }

  /** The key may have ended between the answer and the watch. */
  created(revision: bigint): void {
    if (revision > this.seenAt) void this.#check();
  }

  events(events: readonly WatchEvent[]): void {
    if (events.some(({ kv }) => kv.modRevision > this.ending.createRevision)) this.#resolve(true);
  }

  /** The next member may be that of an etcd that was restored, with lower revisions: only a read shows its queue. */
  interrupted(): void {
    this.#resolve(false);
  }

  refused(error: Error): void {
    this.#reject(error);
  }

  async #check(): Promise<void> {
    const { key, createRevision } = this.ending;
    try {
      const policy = this.lease.policy("read the queue");
      const { kvs } = await this.lease.services.client.range({ key }, policy);
      if (!kvs.some((kv) => kv.createRevision === createRevision)) this.#resolve(true);
    } catch (error) {
      this.#reject(error as Error);
    }
  }
}
