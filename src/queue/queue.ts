import type { CallPolicy } from "../etcd/retry.js";
import { Joiner, type JoinedEntry } from "./join.js";
import { exclusive, type Behind, type JoinResult, type LockMode } from "./lock-mode.js";
import type { Lease } from "../session/lease.js";
import { SessionEntries } from "./session-entries.js";
import { leaveTxn, announceGrantTxn, type QueueEntry } from "./entry.js";
import { txnUntilConfirmed } from "../session/cleanup.js";
import { PredecessorWait } from "./predecessor-wait.js";
import { LocalSuccessors, LocalLine, unwatched, Waiter, WaiterTurn, type Grant } from "./waiter.js";

/** More waiting places of one session under one name only make etcd's sorted ranges slower: the rest waits in line here. */
const MAX_WAITING = 100;

/** What is asked for: a place of a mutex, if nothing else is said. */
export interface JoinOptions {
  readonly mode?: LockMode;
  /** Written under its key, instead of what tells `inspect` about it. An adopted place keeps the value it has. */
  readonly value?: string;
  /** Its place is in the queue, or never will be: later calls cannot come before it any more. */
  readonly onJoined?: () => void;
}

const queues = new WeakMap<Lease, Map<string, Queue>>();

function queuesOn(lease: Lease): Map<string, Queue> {
  const byName = new Map<string, Queue>();
  queues.set(lease, byName);
  lease.places = () => [...byName.values()].flatMap(({ own }) => own.joined);
  return byName;
}

/** One session's side of the queue of one name: joins it, waits for its turn, leaves it. */
export class Queue {
  readonly own: SessionEntries;
  readonly #line = new LocalLine();
  readonly #followers = new LocalSuccessors();
  #leaving: Set<Promise<unknown>> | undefined;
  #joining = false;
  #trying = 0;
  #waiting = 0;

  private constructor(
    readonly lease: Lease,
    readonly name: string,
  ) {
    this.own = new SessionEntries(lease, name);
  }

  get #joiner(): Joiner {
    return new Joiner(this.lease, this.name, this.own, (entry) => this.leaveInBackground(entry));
  }

  static of(lease: Lease, name: string): Queue {
    const byName = queues.get(lease) ?? queuesOn(lease);
    const queue = byName.get(name) ?? new Queue(lease, name);
    byName.set(name, queue);
    return queue;
  }

  /** A caller that waits for its turn, at the end of the line. */
  join({ mode = exclusive, value, onJoined }: JoinOptions = {}): Waiter {
    const waiter = new Waiter(this, mode, value, onJoined);
    this.lease.waits.add(waiter);
    this.#line.add(waiter);
    this.#joinNext();
    return waiter;
  }

  /** A place that holds at once, or undefined if it would have to wait. `policy` bounds the attempts. */
  async tryJoin(
    policy: Pick<CallPolicy, "giveUpMs" | "again">,
    { mode = exclusive, value }: JoinOptions = {},
  ): Promise<QueueEntry | undefined> {
    this.#trying++;
    try {
      // Own places that are just being deleted would refuse it.
      if (this.#leaving) await Promise.allSettled(this.#leaving);
      this.lease.assertOpen();
      const joined = await this.lease.inFlight.track(this.#joiner.tryJoin(mode, value, policy));
      if (joined) this.#onGranted(joined.entry, joined.from);
      return joined?.entry;
    } finally {
      this.#trying--;
      this.forgetIfIdle();
    }
  }

  /**
   * Deletes a place; repeated until etcd has confirmed it. Rejects only with the session's end. false: the key was not there
   * any more, or not this place's. That proves no loss: an attempt without an answer may have deleted it, and so may the
   * same request if a proxy sent it twice.
   */
  leave(entry: QueueEntry): Promise<boolean> {
    entry.leaving = true;
    const leaving = this.lease.inFlight.track(this.#leave(entry));
    const all = (this.#leaving ??= new Set()).add(leaving);
    const left = (): void => {
      all.delete(leaving);
      this.forgetIfIdle();
    };
    leaving.then(left, left);
    return leaving;
  }

  /** A held place is gone: somebody deleted its key. */
  lost(entry: QueueEntry): void {
    this.#removed(entry, () => false);
  }

  #joinNext(): void {
    if (this.#joining || this.#waiting >= MAX_WAITING) return;
    const waiter = this.#line.next();
    if (!waiter) return this.forgetIfIdle();
    this.#joining = true;
    this.#waiting++;
    waiter.stage = { at: "join" };
    void this.lease.inFlight.track(this.#join(waiter)).then(() => {
      this.#joining = false;
      waiter.onJoined?.();
      this.#joinNext();
    });
  }

  async #join(waiter: Waiter): Promise<void> {
    let joined: JoinedEntry;
    try {
      joined = await this.#joiner.join(waiter.mode, waiter.value, { again: () => !waiter.gaveUp });
    } catch (error) {
      this.#waiting--;
      waiter.fail(error as Error);
      this.lease.waits.delete(waiter);
      return;
    }
    const { entry, from } = joined;
    if (waiter.gaveUp) {
      this.#waiting--;
      return this.leaveInBackground(entry);
    }
    if (typeof from === "string") this.grant(waiter, unwatched(entry), from);
    else this.#wait(waiter, entry, from);
  }

  #wait(waiter: Waiter, entry: QueueEntry, from: Behind | undefined): void {
    const below = this.own.followedBy(entry);
    if (below) {
      waiter.stage = { at: "local", entry, below };
      this.#followers.add(waiter, entry, below);
      return;
    }
    const wait = new PredecessorWait(entry, new WaiterTurn(this, waiter, entry), from);
    waiter.stage = { at: "turn", entry, wait };
  }

  /** Somebody deleted the key of a waiting place. */
  joinAnew(waiter: Waiter, entry: QueueEntry): void {
    this.#waiting--;
    this.#line.addAgain(waiter);
    this.#removed(entry, () => false);
  }

  failed(waiter: Waiter, entry: QueueEntry, error: Error): void {
    this.#waiting--;
    this.lease.waits.delete(waiter);
    waiter.fail(error);
    this.leaveInBackground(entry);
  }

  grant(waiter: Waiter, grant: Grant, from?: JoinResult): void {
    this.#waiting--;
    this.lease.waits.delete(waiter);
    waiter.grant(grant);
    this.#onGranted(grant.entry, from, grant.deletedAt);
    this.#joinNext();
  }

  /** Those of this session who waited for the turn of `place`, not for its end, go on: beside it, on their own, or behind another. */
  #onGranted(entry: QueueEntry, from: JoinResult, deletedAt = entry.revision): void {
    entry.held = true;
    if (entry.mode.announcesGrant && from !== "held") this.#announceGrant(entry);
    for (const [waiter, next] of this.#followers.of(entry)) {
      const below = this.own.followedBy(next);
      if (below === entry) continue;
      this.#followers.remove(waiter, entry);
      const then = below ? undefined : next.mode.afterTurn(next);
      // Nothing has confirmed its key since: that is read beside the handle.
      if (typeof then === "string") this.grant(waiter, { ...unwatched(next), deletedAt }, then);
      else this.#wait(waiter, next, then);
    }
  }

  /** Who waits behind a place that waited itself cannot see that it holds by now: it hears a put of the same key. */
  #announceGrant(entry: QueueEntry): void {
    const policy = { ...this.lease.policy("tell the next waiter"), again: () => !entry.leaving };
    // Rejects only when the place leaves or the session ends. `orphan()` does not wait for it: the key may be refused for long.
    txnUntilConfirmed(this.lease, announceGrantTxn(entry), policy).catch(() => undefined);
  }

  /** The caller of `waiter` waits no longer. */
  abandoned(waiter: Waiter): void {
    const { stage } = waiter;
    this.lease.waits.delete(waiter);
    if (stage.at === "line") this.#line.remove(waiter);
    // A join that was sent is waited for: a delete sent now could be executed before it.
    if (stage.at !== "local" && stage.at !== "turn") return;
    waiter.stage = { at: "end" };
    if (stage.at === "turn") stage.wait.stop();
    else this.#followers.remove(waiter, stage.below);
    this.#waiting--;
    this.leaveInBackground(stage.entry);
  }

  /** The same for whoever does not wait for it. */
  leaveInBackground(entry: QueueEntry): void {
    // Rejects only when the session is over, and the key with it.
    this.leave(entry).catch(() => undefined);
    this.#joinNext();
  }

  async #leave(entry: QueueEntry): Promise<boolean> {
    // Before the delete: a late put may come right behind it.
    if (entry.unanswered > 0) this.own.doubt(entry);
    const asker = this.#followers.of(entry)[0]?.[1];
    const asked = asker?.mode.asksForFirst(asker) ?? [];
    let doubted = false;
    const onUnanswered = (): void => void (doubted = true);
    const policy = { ...this.lease.policy(`leave the queue of "${this.name}"`), onUnanswered };
    const answer = await txnUntilConfirmed(this.lease, leaveTxn(entry, asked), policy);
    const told = answer.ranges.slice(-asked.length).filter((range) => range !== undefined);
    this.#removed(entry, (next) => next.mode === asker?.mode && next.mode.isFirst(next, told));
    return answer.succeeded || doubted;
  }

  /** Every end of a place wakes the local waiters behind it once; `isFirst` knows whom its deletion has told to be first. */
  #removed(entry: QueueEntry, isFirst: (next: QueueEntry) => boolean): void {
    this.own.remove(entry);
    this.own.release(entry);
    for (const [waiter, next] of this.#followers.of(entry)) {
      this.#followers.remove(waiter, entry);
      if (isFirst(next)) this.grant(waiter, unwatched(next));
      else this.#wait(waiter, next, undefined);
    }
    this.#joinNext();
  }

  /** Names come and go (one a user, say): what is not needed is not kept. */
  forgetIfIdle(): void {
    const busy = this.#joining || this.#trying > 0 || this.#waiting > 0 || this.#leaving?.size;
    if (!busy && this.#line.empty && this.own.joined.length === 0) queues.get(this.lease)?.delete(this.name);
  }
}
