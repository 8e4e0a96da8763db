import { EtcdRefusedError } from "../errors.js";
import type { Clock, Timer } from "../time.js";
import { backoff } from "./backoff.js";
import type { Members } from "./members.js";
import {
  TokenExpiredError,
  UnansweredError,
  type Member,
  type Range,
  type RangeAnswer,
  type WatchAnswer,
  type WatchStream,
} from "./rpc.js";
import { Watch, type WatchListener, type WatchTarget } from "./watch-handle.js";

export type { Watch, WatchListener, WatchTarget } from "./watch-handle.js";

/** For so long a new watch, or a probe, may stay unanswered. */
const PATIENCE_MS = 1500;

interface Open {
  readonly member: Member;
  readonly stream: WatchStream;
  readonly watches: Map<number, Watch>;
  /** Creates not answered yet, in order: etcd tells a refused one by its place in the order only. */
  readonly creating: Watch[];
  memberId: string | undefined;
  /** Something was asked and nothing has been heard since. */
  timer: Timer | undefined;
}

/** One watch stream for all waits of a cluster. Creates are pipelined: no watch waits for another one's answer. */
export class WatchHub {
  #open: Open | undefined;
  #nextId = 1;
  #retry = backoff.next();
  /** Made while there was no stream. */
  #unsent: Watch[] = [];
  #reopening: Timer | undefined;
  #closed = false;

  constructor(
    private readonly members: Members,
    private readonly clock: Clock,
  ) {
    members.listen({
      failed: (member) => this.#open?.member === member && this.#move(this.#open),
      suspected: (member) => this.#open?.member === member && this.#probe(this.#open),
    });
  }

  /** The listener is never called before this has returned. */
  watch(target: WatchTarget, listener: WatchListener): Watch {
    const watch = new Watch(this.#nextId++, target, listener, (cancelled) => this.#cancel(cancelled));
    if (this.#open) {
      this.#create(this.#open, watch);
    } else {
      this.#unsent.push(watch);
      this.#reopening ??= this.clock.after(0, () => this.#reopen());
    }
    return watch;
  }

  /**
   * A serializable read on the member that serves the watches, so that its answer can be compared with what they told.
   * undefined = no usable answer: another member's, or none.
   */
  async read(range: Range, timeoutMs: number): Promise<RangeAnswer | undefined> {
    const open = this.#open;
    if (!open) return undefined;
    try {
      const answer = await open.member.range({ ...range, serializable: true }, { timeoutMs });
      return open === this.#open && answer.header.memberId === open.memberId ? answer : undefined;
    } catch (error) {
      if (error instanceof UnansweredError && open === this.#open) this.#probe(open);
      return undefined;
    }
  }

  /** Ends the stream if nothing is watched, so that it does not keep the process alive. */
  rest(): void {
    if ((this.#open?.watches.size ?? 0) === 0 && this.#unsent.length === 0) this.#hangUp();
  }

  close(): void {
    this.#closed = true;
    this.#unsent = [];
    this.#hangUp();
  }

  #hangUp(): void {
    this.#reopening?.cancel();
    this.#reopening = undefined;
    this.#open?.timer?.cancel();
    this.#open?.stream.close();
    this.#open = undefined;
  }

  #cancel(watch: Watch): void {
    const unsent = this.#unsent.indexOf(watch);
    if (unsent >= 0) this.#unsent.splice(unsent, 1);
    if (this.#open?.watches.delete(watch.id)) this.#open.stream.cancel(watch.id);
  }

  #reopen(): void {
    this.#reopening = undefined;
    if (this.#closed || this.#unsent.length === 0) return;
    if (this.members.tokenMissing) return this.#reopenWithToken();
    const { current: member } = this.members;
    const stream = member.watch({
      answer: (answer) => open === this.#open && this.#answered(open, answer),
      ended: (error) => open === this.#open && this.#ended(open, error),
    });
    const open: Open = {
      member,
      stream,
      watches: new Map(),
      creating: [],
      memberId: undefined,
      timer: undefined,
    };
    this.#open = open;
    for (const watch of this.#unsent.splice(0)) this.#create(open, watch);
  }

  #ended(open: Open, error: Error): void {
    if (error instanceof TokenExpiredError) this.#renewToken(open);
    else this.members.fail(open.member, error);
  }

  /** Existing watches outlive a token, creates on the old stream do not: all move to a stream with a fresh one. */
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
      for (const watch of this.#unsent.splice(0)) watch.listener.refused(error);
    });
  }

  /** Every owner is told first; what they watch anew is collected and created in bulk on the next stream. */
  #move(open: Open): void {
    if (open !== this.#open) return;
    this.#hangUp();
    if (this.#closed) return;
    this.#reopenLater();
    for (const watch of open.watches.values()) watch.over = true;
    for (const watch of open.watches.values()) watch.listener.moved();
  }

  #reopenLater(): void {
    this.#reopening = this.clock.after(this.#retry.duration, () => this.#reopen());
    this.#retry = this.#retry.next(undefined);
  }

  #create(open: Open, watch: Watch): void {
    open.watches.set(watch.id, watch);
    open.creating.push(watch);
    const { key, end, events, startRevision = 0n } = watch.target;
    open.stream.create({ watchId: watch.id, key, ...(end !== undefined && { end }), events, startRevision });
    open.timer ??= this.#patience(open);
  }

  #probe(open: Open): void {
    // etcd 3.5 and later answers only to a stream that watches something.
    if (open.watches.size === 0) return this.#hangUp();
    open.stream.probe();
    open.timer ??= this.#patience(open);
  }

  #patience(open: Open): Timer {
    return this.clock.after(PATIENCE_MS, () => {
      // After a pause of this process the answer may be waiting in the socket: timers run before it is read.
      open.timer = this.clock.afterPendingEvents(() => open === this.#open && this.members.fail(open.member));
    });
  }

  #answered(open: Open, answer: WatchAnswer): void {
    this.#retry = backoff.next();
    open.timer?.cancel();
    open.timer = undefined;
    if (answer.created) this.#created(open, answer);
    else if (answer.cancelled) this.#cancelled(open, answer);
    else this.#deliver(open, answer);
    if (open === this.#open && open.creating.length > 0) open.timer ??= this.#patience(open);
  }

  #deliver(open: Open, { watchId, events }: WatchAnswer): void {
    for (const event of events) {
      // Its owner may cancel it on the first.
      const watch = open.watches.get(watchId);
      if (watch?.wants(event)) watch.listener.event(event.kv);
    }
  }

  #created(open: Open, { header, cancelled, cancelReason }: WatchAnswer): void {
    const watch = open.creating.shift();
    if (!watch) return;
    if (cancelled) return this.#refused(open, watch, cancelReason);
    open.memberId = header.memberId;
    // Its owner may have cancelled it meanwhile.
    if (open.watches.has(watch.id)) watch.listener.created(header.revision);
  }

  #refused(open: Open, watch: Watch, reason: string): void {
    const error = open.member.failure(reason);
    if (error instanceof TokenExpiredError) return this.#renewToken(open);
    if (open.watches.delete(watch.id)) watch.listener.refused(error);
  }

  /** By etcd, not by us: the revision to start from was compacted. The owner starts again from now, with a read. */
  #cancelled(open: Open, { watchId }: WatchAnswer): void {
    const watch = open.watches.get(watchId);
    if (!watch) return;
    open.watches.delete(watchId);
    watch.over = true;
    watch.listener.moved();
  }
}
