import { inTurn, kindOfQueue, type QueueKind, Room, type SeenEntry } from "../lock/queue/seen-entry.js";

/**
 * `granted`: the entry became a holder. `released`: a holder's key was deleted while other keys of its lease stayed, so the
 * lease lived: a release, or a deletion by another client. `ended`: a holder's key was deleted, and no other key of its
 * lease is on the board: a release, or the end of the lease. The keys of etcd do not tell which one.
 */
type BoardEventKind = "granted" | "released" | "ended";

/** What the board saw of one entry. */
export interface BoardEvent {
  readonly kind: BoardEventKind;
  readonly entry: SeenEntry;
  /** Monotonic milliseconds. */
  readonly at: number;
  readonly revision: bigint;
  /**
   * So many keys of its lease were deleted at this revision; undefined for `granted`, and after an outage whose revisions
   * etcd has compacted. With `ended` and more than one, most often the lease ended: it expired, or its session was
   * closed. A client that releases several locks in one request looks the same.
   */
  readonly together: number | undefined;
}

/** Events that are kept of each name. */
const MAX_EVENTS = 8;
/** What happened to the queue of a name. */
export class NameHistory {
  grants = 0;
  /** The latest event last. */
  readonly events: BoardEvent[] = [];

  add(event: BoardEvent): void {
    if (event.kind === "granted") this.grants++;
    this.events.push(event);
    if (this.events.length > MAX_EVENTS) this.events.shift();
  }
}

/** A key that counts in the queues of its own name and of the names above it. */
export interface Place {
  /** Another one after a modification of the key, such as that of a leader who proclaims. */
  entry: SeenEntry;
  /** The entry's key in latin1. */
  text: string;
  /** The nearest queue that it counts in; the others are its parents. */
  home: LiveQueue;
  /** The queue of its own name. It nests in that of another one only if `home` has the name of a folder of readers or writers. */
  readonly own: LiveQueue | undefined;
  isGone: boolean;
  /** Whether the entry's client has died: the entry is gone, and its delay key has taken its place. */
  isDelay: boolean;
}

/** The order of a queue, as `byAge`. */
export const older = ({ entry: a, text: one }: Place, { entry: b, text: other }: Place): number =>
  a.createRevision === b.createRevision
    ? Number(one > other) - Number(one < other)
    : a.createRevision < b.createRevision
      ? -1
      : 1;

/** The queue of a name now. The object changes with the queue; the arrays do not. */
export type BoardQueue = Pick<
  LiveQueue,
  | "name"
  | "kind"
  | "holders"
  | "waiters"
  | "waiterCount"
  | "holderCount"
  | "deadHolders"
  | "deadCount"
  | "grants"
  | "grantedAt"
>;

/** What a change has made of the holders of a queue. */
interface Settled {
  readonly began: readonly SeenEntry[];
  readonly ended: readonly SeenEntry[];
}

const NOTHING: Settled = { began: [], ended: [] };

/** Less gaps than that in a line are not worth the work. */
const GAPS = 64;

/**
 * The entries of one name, and who of them holds: the rules are those of `holdersIn`. A change costs nothing but its own place, if
 * it is behind those that decide who holds.
 */
export class LiveQueue {
  /** Keys that belong to the name itself. Those of nested names alone make no queue of it. */
  direct = 0;
  /** Whether the queue is in the list of those that the present change has touched. */
  isTouched = false;
  readonly name: string;
  readonly path: string;
  /** The queue of the nearest name above; undefined: it is above all. */
  parent: LiveQueue | undefined;
  /** In the order of the queue, with gaps: places that are gone. */
  #line: Place[];
  #gaps = 0;
  /** All before it are gone. */
  #head = 0;
  /** Where gaps that were passed before end, by the first of them. */
  readonly #jumps = new Map<number, number>();
  /** The first place that nobody has looked at yet: it does not matter who it is. */
  #next = 0;
  /** So many places before that are not gone. */
  #seen = 0;
  /** The latest of them. */
  #last: Place | undefined;
  /** The first of them that excludes readers. */
  #barrier: Place | undefined;
  /** For as many as the first place says. */
  #room: Room | undefined;
  /** Look at all again. */
  #isOld = false;
  /** Places that have been looked at, and are gone. */
  #lost: Place[] = [];
  /** Entries whose delay keys have taken their places. */
  #dead: SeenEntry[] = [];
  /** Who holds, and when the board saw that it had become so, in monotonic milliseconds. */
  #holding = new Map<Place, number | undefined>();
  /** Made of these when they are read. */
  #held: readonly Place[] | undefined;
  #holders: readonly SeenEntry[] | undefined;
  #deadHolders: number | undefined;
  /** How many entries have died, and keep their places. */
  #deadCount = 0;
  /** Those that may show its kind, the oldest first: of the name itself, and of no name below it. */
  #own = new Set<Place>();

  /** `line`: in order, of the names nested in it. */
  constructor(
    { name, path, parent }: Pick<LiveQueue, "name" | "path" | "parent">,
    readonly history: NameHistory,
    line: Place[] = [],
  ) {
    [this.name, this.path, this.parent, this.#line] = [name, path, parent, line];
    for (const { entry } of line) this.#deadCount += Number(entry.isDelay);
  }

  get kind(): QueueKind {
    return kindOfQueue(this.path, entriesOf(this.#own));
  }

  get holderCount(): number {
    return this.#holding.size;
  }

  get deadCount(): number {
    return this.#deadCount;
  }

  /** So many of them are in the place of a holder. */
  get deadHolders(): number {
    this.#deadHolders ??= this.#deadCount === 0 ? 0 : this.holders.filter(({ isDelay }) => isDelay).length;
    return this.#deadHolders;
  }

  /** In the order of the queue. */
  get holders(): readonly SeenEntry[] {
    return (this.#holders ??= this.#inOrder.map(({ entry }) => entry));
  }

  /** The next one first. Made when it is read, from all entries of the queue: see `waiterCount` and `waitersUpTo`. */
  get waiters(): readonly SeenEntry[] {
    return this.waitersUpTo(Infinity);
  }

  /** The first of them: costs no more than these, and those that wait between holders. */
  holdersUpTo(limit: number): readonly SeenEntry[] {
    return this.#upTo(Math.min(limit, this.#holding.size), true, this.#head);
  }

  /** The same of the waiters. */
  waitersUpTo(limit: number): readonly SeenEntry[] {
    const barrier = this.#barrier && !this.#holding.has(this.#barrier) ? [this.#barrier.entry] : [];
    if (this.#room?.isRanked) return inTurn(this.#upTo(this.waiterCount, false, this.#head)).slice(0, limit);
    const between = this.#seen - this.#holding.size - barrier.length;
    if (between > 0) return this.#upTo(Math.min(limit, this.waiterCount), false, this.#head);
    return [...barrier, ...this.#upTo(limit - barrier.length, false, this.#next)];
  }

  #upTo(limit: number, holding: boolean, from: number): readonly SeenEntry[] {
    const found: SeenEntry[] = [];
    for (let n = from; found.length < limit; n++) {
      n = this.#behindGaps(n);
      const place = this.#line[n];
      if (place === undefined) break;
      if (this.#holding.has(place) === holding) found.push(place.entry);
    }
    return found;
  }

  /** The first place from here on that is not gone. Gaps are passed once, and not at each look. */
  #behindGaps(from: number): number {
    let n = from;
    while (this.#line[n]?.isGone) n = this.#jumps.get(n) ?? n + 1;
    if (n > from) this.#jumps.set(from, n);
    return n;
  }

  get waiterCount(): number {
    return this.size - this.#holding.size;
  }

  get size(): number {
    return this.#line.length - this.#gaps;
  }

  /** Entries that became holders since the board began. */
  get grants(): number {
    return this.history.grants;
  }

  /** Monotonic milliseconds at which the board saw that it had become a holder; undefined if it held before the board began. */
  grantedAt(holder: SeenEntry): number | undefined {
    const place = this.#inOrder.find(({ entry }) => entry === holder);
    return place && this.#holding.get(place);
  }

  /** Those that are not gone, in order. */
  places(): readonly Place[] {
    return this.#line.filter(({ isGone }) => !isGone);
  }

  /** Keys of the names above it that nest in it. `places`: in order, and in the line. */
  adopt(places: readonly Place[]): void {
    for (const place of places) {
      place.home = this;
      this.#own.add(place);
    }
  }

  add(place: Place): void {
    const last = this.#line.at(-1);
    this.#line.push(place);
    this.#deadCount += Number(place.entry.isDelay);
    if (place.own === this || place.home === this) this.#own.add(place);
    if (last === undefined || older(last, place) < 0) return;
    // After a restore of etcd from a backup, or of several keys in one revision.
    this.#line.sort(older);
    this.#head = 0;
    this.#jumps.clear();
    this.#own = new Set([...this.#own].sort(older));
    this.#isOld = true;
  }

  remove(place: Place): void {
    this.#gaps++;
    this.#deadCount -= Number(place.entry.isDelay);
    this.#own.delete(place);
    if (this.#last && older(place, this.#last) <= 0) this.#lost.push(place);
  }

  /** The place has another entry now. `before`: that before; `at`: monotonic milliseconds, if its client has died. */
  replaced(place: Place, before: SeenEntry, at?: number): void {
    this.#holders = this.#deadHolders = undefined;
    this.#deadCount += Number(place.entry.isDelay) - Number(before.isDelay);
    const [now, then] = [place.entry, before];
    const isOther = now.permits !== then.permits || now.weighted?.weight !== then.weighted?.weight;
    const isMoved = now.rank !== then.rank || now.priority?.granted !== then.priority?.granted;
    if (isOther || isMoved || now.downgraded !== then.downgraded) this.#isOld = true;
    if (!place.isDelay || !this.#holding.has(place)) return;
    this.#dead.push(before);
    this.#holding.set(place, at);
  }

  /** The name has no keys of its own any more. */
  clear(): void {
    [this.#line, this.#gaps, this.#head, this.#isOld, this.#deadCount] = [[], 0, 0, true, 0];
    this.#jumps.clear();
    this.#own.clear();
  }

  /** All changes of a revision are made: finds the holders, and returns which of them began to hold and which hold no more. */
  settle(at: number | undefined): Settled {
    const { permits = 1 } = this.#room ?? {};
    const isSettled = this.#barrier !== undefined && this.#seen >= permits;
    if (isSettled && !this.#isOld && this.#lost.length === 0 && this.#dead.length === 0) {
      this.#fill();
      return NOTHING;
    }
    const [lost, dead, before] = [this.#lost, this.#dead, this.#holding];
    [this.#lost, this.#dead] = [[], []];
    const began: Place[] = [];
    const hold = (place: Place): void => {
      if (this.#holding.has(place)) return;
      const isNews = !before.has(place);
      this.#holding.set(place, isNews ? at : before.get(place));
      if (isNews && !place.isDelay) began.push(place);
      this.#forgetOrder();
    };
    let ended: Place[] = [];
    const first = this.#first();
    if (this.#isOld || (lost.length > 0 && permits > 1)) ended = this.#lookAgain(hold);
    else if (lost.length > 0) {
      ended = lost.filter((place) => this.#holding.delete(place));
      this.#forgetOrder();
      this.#seen -= lost.length;
      if (this.#barrier?.isGone) this.#barrier = undefined;
      // Whoever is the first one holds.
      if (first && this.#seen > 0) {
        if (first.entry.reach > 1) ended.push(...this.#lookAgain(hold));
        else hold(first);
      }
    }
    this.#look(hold);
    this.#fill();
    const lives = ended.filter(({ isDelay }) => !isDelay).map(({ entry }) => entry);
    return { began: began.map(({ entry }) => entry), ended: [...dead, ...lives] };
  }

  /** Looks at further places until no other can hold. */
  #look(hold: (place: Place) => void): void {
    for (; ; this.#next++) {
      this.#next = this.#behindGaps(this.#next);
      const place = this.#line[this.#next];
      if (place === undefined) return;
      const { entry } = place;
      if (this.#seen === 0) this.#room = undefined;
      const room = (this.#room ??= new Room(entry));
      if (this.#seen >= room.permits && this.#barrier) return;
      const where = entry.placeIn(this.path);
      const hasRoom = room.has(entry, where, this.#seen);
      if (where === "reader" ? !this.#barrier : hasRoom) hold(place);
      if (!entry.admitsReadersIn(this.path)) this.#barrier ??= place;
      this.#last = place;
      this.#seen++;
    }
  }

  /** From the first place on. Returns who holds no more. */
  #lookAgain(hold: (place: Place) => void): Place[] {
    const before = this.#holding;
    [this.#next, this.#seen, this.#isOld] = [this.#head, 0, false];
    this.#holding = new Map();
    this.#last = this.#barrier = undefined;
    this.#forgetOrder();
    this.#look(hold);
    return [...before.keys()].filter((place) => !this.#holding.has(place));
  }

  #first(): Place | undefined {
    this.#head = this.#behindGaps(this.#head);
    return this.#line[this.#head];
  }

  #fill(): void {
    if (this.#gaps < GAPS || 2 * this.#gaps < this.#line.length) return;
    this.#line = this.#line.filter(({ isGone }) => !isGone);
    [this.#gaps, this.#head, this.#next] = [0, 0, this.#seen];
    this.#jumps.clear();
  }

  get #inOrder(): readonly Place[] {
    return (this.#held ??= [...this.#holding.keys()].sort(older));
  }

  #forgetOrder(): void {
    this.#held = this.#holders = this.#deadHolders = undefined;
  }
}

function* entriesOf(places: Iterable<Place>): Iterable<SeenEntry> {
  for (const { entry } of places) yield entry;
}
