import type { Key, World } from "../../../lab/model/world.js";
import type { TraceStats } from "../checked.js";
import { Rejected } from "../rejected.js";
import type { JoinRequest, LeaveRequest } from "../requests.js";
import { modelRange, type ProcessWatches } from "../watched.js";
import { changed, isOf, type QueueChange } from "./changes.js";
import { jointRefused, refusesAt, type JointRefused } from "./joint-refusal.js";
import {
  answered,
  ask,
  askAgain,
  leaseGone,
  leaveAnswered,
  leaveSent,
  leaveUnanswered,
  notExecuted,
  unanswered,
  type Answered,
} from "./places.js";
import {
  keyGone,
  keyReadAnswered,
  queueReadAnswered,
  queueReadSent,
  type KeyShown,
  type QueueRead,
  type Shown,
} from "./reads.js";
import { closure, watchesOf } from "./unseen.js";
import { distinct, isActive, isTaken, newWorld, OURS, over, take, THEIRS, withoutCall } from "./world-of.js";

export interface SessionSetting {
  readonly lease: string;
  readonly watches: ProcessWatches;
  /** The keys of the queue, and its revision. */
  readonly queue: { readonly keys: readonly Key[]; readonly revision: number };
  readonly stats: TraceStats;
}

/** A join or a try of the session: attempts with the same key and value are one. */
export interface JoinId {
  readonly key: string;
  /** As the model has it. */
  readonly value: number;
}

/** A place that holds, or may hold. */
export interface PlaceId {
  readonly key: string;
  /** The create revision of the key. */
  readonly revision: number;
}

type Move = (world: World) => World[];

/** One session in one queue: the states of the model in which it may be after the trace so far. */
export class SessionTrace {
  /** Empty while it has no place. */
  #states: readonly World[] = [];
  readonly #ids = new Map<string, number>();
  /** The keys and values of its tries. */
  readonly #tries = new Map<string, { inDoubt: boolean }>();
  /** The create revisions of the holds that have ended. */
  readonly #ended = new Set<number>();
  #over = false;
  /** The incarnation of its process. */
  #owner: string | undefined;

  constructor(private readonly setting: SessionSetting) {}

  get isIdle(): boolean {
    return this.#states.length === 0;
  }

  joinSent(what: string, request: JoinRequest, value: number): void {
    this.#owner ??= /"owner":"([^/"]+)/.exec(request.value)?.[1];
    const join = textOf({ key: request.key, value });
    const known = this.#ids.get(join);
    // A candidate that has lost its place joins again with the same value.
    if (known !== undefined && this.#states.some((world) => askAgain(world, known).length > 0))
      return this.#step(what, (world) => askAgain(world, known));
    this.#begin();
    this.#ids.set(join, this.#states[0]!.callers.length);
    // Only `lockAll()` joins with the key and the value of a try that was refused.
    const all = request.among > 1 || (request.is === "join" && this.#tries.has(join));
    if (request.is === "try") this.#tries.set(join, { inDoubt: false });
    this.#step(what, (world) => ask(world, request, { value, all }));
  }

  joinAnswered(what: string, join: JoinId, shown: Answered): void {
    const id = this.#ids.get(textOf(join));
    if (id === undefined) return;
    // A watch may have reported the end of the place before this answer: its call joins anew.
    const gone = shown.done && this.setting.watches.lastDeletion(join.key) > shown.revision;
    const joinsAnew = (world: World): World => withoutCall(world, id);
    this.#step(what, (world) => {
      const next = answered(world, id, shown);
      return gone ? [...next, ...next.map(joinsAnew)] : next;
    });
  }

  /** Whether the condition of this name alone may be why a joint transaction was refused. */
  refuses(join: JoinId, revision: number): boolean {
    const id = this.#ids.get(textOf(join));
    return id === undefined || this.isIdle || this.#states.some((world) => refusesAt(world, id, revision));
  }

  jointRefused(what: string, join: JoinId, shown: JointRefused): void {
    const id = this.#ids.get(textOf(join));
    if (id !== undefined) this.#step(what, (world) => jointRefused(world, id, shown));
  }

  joinFailed(what: string, join: JoinId, why: "in doubt" | "not executed" | "lease gone"): void {
    const id = this.#ids.get(textOf(join));
    if (id === undefined) return;
    const tried = this.#tries.get(textOf(join));
    if (tried && why === "in doubt") tried.inDoubt = true;
    const move = { "in doubt": unanswered, "not executed": notExecuted, "lease gone": leaseGone }[why];
    this.#step(what, (world) => move(world, id));
  }

  leaveSent(what: string, request: LeaveRequest): void {
    this.#begin();
    // `lockAll()` deletes what its try may have put, if it does not join any more.
    const tried = this.#tries.get(textOf({ key: request.key, value: Number(request.value) }));
    const mayExist = request.created === 0 && tried?.inDoubt === true;
    this.#step(what, (world) => leaveSent(world, request, mayExist));
  }

  leaveAnswered(what: string, request: LeaveRequest, shown: Answered): void {
    this.#step(what, (world) => leaveAnswered(world, request, shown));
  }

  leaveUnanswered(what: string, request: LeaveRequest): void {
    this.#step(what, (world) => leaveUnanswered(world, request));
  }

  queueReadSent(what: string, read: QueueRead): void {
    this.#step(what, (world) => queueReadSent(world, read));
  }

  queueReadAnswered(what: string, read: QueueRead, shown: Shown): void {
    this.#step(what, (world) => queueReadAnswered(world, read, shown));
  }

  keyReadAnswered(what: string, key: string, shown: KeyShown): void {
    this.#step(what, (world) => keyReadAnswered(world, key, shown));
  }

  changed(what: string, change: QueueChange): void {
    const { lease } = this.setting;
    if (this.isIdle && !change.puts.some((key) => isOf(key, lease))) return;
    const ours = (key: Key): Key => ({ ...key, lease: isOf(key, lease) ? OURS : THEIRS });
    const { puts, deletes, rewrites } = change;
    const own = { ...change, puts: puts.map(ours), deletes: deletes.map(ours), rewrites };
    this.#begin(change.revision);
    const isStopped = this.#owner !== undefined && change.stopped.has(this.#owner);
    this.#step(what, (world) => changed(world, own, { lease, isStopped }));
  }

  /** A holder puts its key again. If the key is gone, etcd refuses the put. The holder is notified later, after a renewal. */
  rewriteSent(what: string, place: PlaceId): void {
    if (this.#ended.has(place.revision)) throw new Rejected(what, this.#states);
    this.#step(what, (world) => (holds(world, place) || isTaken(world, place) ? [world] : []));
  }

  ended({ revision }: PlaceId): void {
    this.#ended.add(revision);
  }

  /** It was refused, and the answer shows that the key of the place is gone: its client gives the hold up. */
  rewriteRefused(what: string, key: string, shown: KeyShown): void {
    this.#step(what, (world) => keyGone(world, key, shown));
  }

  /** Its caller was granted its hold, or claims it. */
  holds(what: string, place: PlaceId): void {
    this.#begin();
    this.#step(what, (world) => (holds(world, place) ? [world] : []));
  }

  /** Its caller was notified that the key of its hold is gone. */
  lost(what: string, place: PlaceId): void {
    this.#step(what, (world) => (holds(world, place) ? [] : [world]));
  }

  mayHaveLost(place: PlaceId): boolean {
    return this.isIdle || this.#states.some((world) => !holds(world, place));
  }

  over(what: string): void {
    this.#over = true;
    this.#step(what, over);
  }

  /** Its connections have received something about these ranges. */
  received(ranges: readonly string[], streamIsOver: boolean): void {
    if (this.isIdle || ranges.length === 0) return;
    if (streamIsOver) return this.#step("", (world) => (watchesAny(world, ranges) ? moved(world) : [world]));
    this.#states = closure(this.#states, this.setting.watches);
    this.#count();
  }

  #begin(before?: number): void {
    if (!this.isIdle) return;
    const { keys, revision } = this.setting.queue;
    const ours = keys.map((key) => ({ ...key, lease: isOf(key, this.setting.lease) ? OURS : THEIRS }));
    const world = newWorld(this.setting.lease, ours, before === undefined ? revision : before - 1);
    this.#ids.clear();
    this.#states = this.#over ? over(world) : [world];
  }

  #step(what: string, move: Move): void {
    if (this.isIdle) return;
    const { stats, watches } = this.setting;
    if (what !== "") stats.steps++;
    const next = distinct(this.#states.flatMap(move));
    if (next.length === 0) throw new Rejected(what, this.#states);
    this.#states = closure(next, watches);
    this.#count();
    this.#endIfQuiet();
  }

  #count(): void {
    const { stats } = this.setting;
    stats.largest = Math.max(stats.largest, this.#states.length);
  }

  /** A session without a place is new when it joins again. */
  #endIfQuiet(): void {
    const quiet = this.#states.every(
      ({ callers, late, keys }) =>
        late.length === 0 &&
        !callers.some(isActive) &&
        !keys.some(({ lease, deleted }) => lease === OURS && deleted === 0),
    );
    if (quiet) this.#states = [];
  }
}

const textOf = ({ key, value }: JoinId): string => `${key} ${value}`;

const watchesAny = ({ callers }: World, ranges: readonly string[]): boolean =>
  callers.some((caller) => watchesOf(caller).some((watch) => ranges.includes(modelRange(watch))));

/** All watches of a process start again, on whichever member. */
const moved = (world: World): World[] =>
  take(world, "moves").map((next) => ({
    ...next,
    sessions: next.sessions.map((session) => ({ ...session, member: "lagging" })),
  }));

const holds = (world: World, { key, revision }: PlaceId): boolean =>
  world.callers.some(
    ({ place, state }) => state.at === "holding" && place?.key === key && place.revision === revision,
  );
