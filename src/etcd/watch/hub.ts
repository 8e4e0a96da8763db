import { EtcdRefusedError } from "../../errors.js";
import type { Clock, Timer } from "../../async/clock.js";
import { backoff } from "../backoff.js";
import type { Members } from "../client.js";
import { ParkedWatches } from "./idle-watches.js";
import { readRanges, type RangesAnswer } from "../ranges.js";
import { UnansweredError, type Member, type Range } from "../port.js";
import { Watch, type WatchCarrier, type WatchListener, type WatchTarget } from "./watch.js";
import { OpenStream, type StreamGroup } from "./stream.js";

export type { Interruption, Watch, WatchListener, WatchTarget } from "./watch.js";

/** Streams of one member: they stay and move together. */
interface Open extends StreamGroup {
  readonly streams: Set<OpenStream>;
  /** By which the watches say they were created: more than one if something between us and etcd divides the streams. */
  readonly memberIds: Set<string>;
}

/** All waits of a cluster, on one stream of one member, or as many as they need. */
export class WatchHub {
  #open: Open | undefined;
  #nextId = 1;
  #retry = backoff.next();
  /** Made while there was no stream; each with the one that it wants to be beside. */
  #unsent = new Map<Watch, Watch | undefined>();
  readonly #waiting: WatchCarrier = { drop: (watch) => void this.#unsent.delete(watch), park: () => false };
  readonly #parked: ParkedWatches;
  #reopening: Timer | undefined;
  #closed = false;

  constructor(
    private readonly members: Members,
    private readonly clock: Clock,
  ) {
    this.#parked = new ParkedWatches(clock);
    members.listen({
      failed: (member) => this.#open?.member === member && this.#move(this.#open),
      suspected: (member) => this.#open?.member === member && this.#probe(this.#open),
    });
  }

  /**
   * The listener is never called before this has returned. The stream is that of `beside`, if it has one. A watch that is
   * reused has its `createdAt` already, and the owner looks at its `lastEvent`.
   */
  watch(target: WatchTarget, listener: WatchListener, beside?: Watch): Watch {
    const there = this.#parkedFor(target);
    if (there) {
      there.listener = listener;
      return there;
    }
    const watch = new Watch(this.#nextId++, target, listener, this.#waiting);
    if (this.#open) {
      this.#create(this.#open, watch, beside);
    } else {
      this.#unsent.set(watch, beside);
      this.#reopening ??= this.clock.after(0, () => this.#reopen());
    }
    return watch;
  }

  /** Parked are watches for the deletion of one key: another kind of watch would hear too little from one. */
  #parkedFor({ key, end, events, reuseFrom }: WatchTarget): Watch | undefined {
    const oneDeletion = end === undefined && events === "DELETE";
    return oneDeletion && reuseFrom !== undefined ? this.#parked.take(key, reuseFrom) : undefined;
  }

  /**
   * A serializable read on the member that serves all watches, so that its answer can be compared with what they told.
   * undefined = no usable answer: another member's, or none.
   */
  async read(ranges: readonly Range[], timeoutMs: number): Promise<RangesAnswer | undefined> {
    const open = this.#open;
    if (!open) return undefined;
    try {
      const near = ranges.map((range) => ({ ...range, serializable: true }));
      const answer = await readRanges(open.member, near, { timeoutMs });
      const { memberIds } = open;
      const theirs = memberIds.size === 1 && memberIds.has(answer.header.memberId);
      return open === this.#open && theirs ? answer : undefined;
    } catch (error) {
      if (error instanceof UnansweredError && open === this.#open) this.#probe(open);
      return undefined;
    }
  }

  /** Ends streams on which nothing is watched, so that they do not keep the process alive. */
  rest(): void {
    if (this.#open) this.#endIdle(this.#open);
    else if (this.#unsent.size === 0) this.#hangUp();
  }

  dropParked(): void {
    this.#parked.clear();
  }

  close(): void {
    this.#closed = true;
    this.#parked.clear();
    this.#unsent.clear();
    this.#hangUp();
  }

  #endIdle(open: Open): void {
    for (const stream of open.streams) {
      if (stream.watches.size > 0) continue;
      stream.close();
      open.streams.delete(stream);
    }
    if (open.streams.size === 0) this.#hangUp();
  }

  #hangUp(): void {
    this.#reopening?.cancel();
    this.#reopening = undefined;
    for (const stream of this.#open?.streams ?? []) stream.close();
    this.#open = undefined;
  }

  #reopen(): void {
    this.#reopening = undefined;
    if (this.#closed || this.#unsent.size === 0) return;
    if (this.members.tokenMissing) return this.#reopenWithToken();
    const open = (this.#open = this.#openOn(this.members.current));
    for (const [watch, beside] of this.#takeUnsent()) this.#create(open, watch, beside);
  }

  #openOn(member: Member): Open {
    const memberIds = new Set<string>();
    const open: Open = {
      member,
      streams: new Set(),
      memberIds,
      answers: 0,
      created: (header) => {
        this.#retry = backoff.next();
        memberIds.add(header.memberId);
        return this.members.accepts(member, header);
      },
      tokenExpired: () => this.#renewToken(open),
      failed: (why) => this.members.fail(member, why),
      park: (watch) => this.#parked.add(watch),
    };
    return open;
  }

  #takeUnsent(): Map<Watch, Watch | undefined> {
    const unsent = this.#unsent;
    this.#unsent = new Map();
    return unsent;
  }

  #create(open: Open, watch: Watch, beside: Watch | undefined): void {
    const { carrier } = beside ?? {};
    const there = carrier instanceof OpenStream && !carrier.closed ? carrier : undefined;
    (there ?? this.#streamWithRoom(open)).create(watch);
  }

  #streamWithRoom(open: Open): OpenStream {
    for (const stream of open.streams) if (!stream.full) return stream;
    const stream = new OpenStream(open, this.clock);
    open.streams.add(stream);
    return stream;
  }

  /** Existing watches outlive a token, creates on the old streams do not: all move to streams with a fresh one. */
  #renewToken(open: Open): void {
    this.#move(open);
    this.#reopening?.cancel();
    this.#reopenWithToken();
  }

  #reopenWithToken(): void {
    const held: Timer = { cancel: () => undefined };
    this.#reopening = held;
    const reopen = (): void => {
      if (this.#reopening === held) this.#reopen();
    };
    void this.members.freshToken().then(reopen, (error: Error) => {
      if (this.#reopening !== held) return;
      this.#reopenLater();
      // A password that was changed: no stream will ever be opened. Unanswered: the next one may.
      if (!(error instanceof EtcdRefusedError)) return;
      for (const watch of this.#takeUnsent().keys()) watch.listener.refused(error);
    });
  }

  /** Every owner is told first; what they watch anew is collected and created in bulk on the next streams. */
  #move(open: Open): void {
    if (open !== this.#open) return;
    this.#hangUp();
    if (this.#closed) return;
    this.#reopenLater();
    for (const { watches } of open.streams) for (const watch of watches.values()) watch.over = true;
    for (const { watches } of open.streams)
      for (const watch of watches.values()) watch.listener.moved("broken");
  }

  #reopenLater(): void {
    this.#reopening = this.clock.after(this.#retry.duration, () => this.#reopen());
    this.#retry = this.#retry.next(undefined);
  }

  #probe(open: Open): void {
    // etcd 3.5 and later answers only to a stream that watches something.
    this.#endIdle(open);
    for (const stream of open.streams) stream.probe();
  }
}
