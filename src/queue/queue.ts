import type { CallPolicy } from "../etcd/retry.js";
import { Joiner, type JoinedPlace } from "./join.js";
import { exclusive, type Behind, type Joined, type Kind } from "./lock-mode.js";
import type { Lease } from "../session/lease.js";
import { OwnPlaces } from "./session-entries.js";
import { leaveTxn, tellTxn, type Place } from "./entry.js";
import { txnUntilConfirmed } from "../session/cleanup.js";
import { Turn } from "./predecessor-wait.js";
import { Followers, Line, unwatched, Waiter, WaiterTurn, type Grant } from "./waiter.js";

/** More waiting places of one session under one name only make etcd's sorted ranges slower: the rest waits in line here. */
const MAX_WAITING = 100;

/** What is asked for: a place of a mutex, if nothing else is said. */
export interface Entry {
  readonly kind?: Kind;
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
  readonly own: OwnPlaces;
  readonly #line = new Line();
  readonly #followers = new Followers();
  #leaving: Set<Promise<unknown>> | undefined;
  #joining = false;
  #trying = 0;
  #waiting = 0;

  private constructor(
    readonly lease: Lease,
    readonly name: string,
  ) {
    this.own = new OwnPlaces(lease, name);
  }

  get #joiner(): Joiner {
    return new Joiner(this.lease, this.name, this.own, (place) => this.leaveQuietly(place));
  }

  static of(lease: Lease, name: string): Queue {
    const byName = queues.get(lease) ?? queuesOn(lease);
    const queue = byName.get(name) ?? new Queue(lease, name);
    byName.set(name, queue);
    return queue;
  }

  /** A caller that waits for its turn, at the end of the line. */
  enter({ kind = exclusive, value, onJoined }: Entry = {}): Waiter {
    const waiter = new Waiter(this, kind, value, onJoined);
    this.lease.waits.add(waiter);
    this.#line.add(waiter);
    this.#joinNext();
    return waiter;
  }

  /** A place that holds at once, or undefined if it would have to wait. `policy` bounds the attempts. */
  async tryEnter(
    policy: Pick<CallPolicy, "giveUpMs" | "again">,
    { kind = exclusive, value }: Entry = {},
  ): Promise<Place | undefined> {
    this.#trying++;
    try {
      // Own places that are just being deleted would refuse it.
      if (this.#leaving) await Promise.allSettled(this.#leaving);
      this.lease.assertOpen();
      const joined = await this.lease.inFlight.add(this.#joiner.tryJoin(kind, value, policy));
      if (joined) this.#turnCame(joined.place, joined.from);
      return joined?.place;
    } finally {
      this.#trying--;
      this.rest();
    }
  }

  /**
   * Deletes a place; repeated until etcd has confirmed it. Rejects only with the session's end. false: the key was not there
   * any more, or not this place's. That proves no loss: an attempt without an answer may have deleted it, and so may the
   * same request if a proxy sent it twice.
   */
  leave(place: Place): Promise<boolean> {
    place.leaving = true;
    const leaving = this.lease.inFlight.add(this.#leave(place));
    const all = (this.#leaving ??= new Set()).add(leaving);
    const left = (): void => {
      all.delete(leaving);
      this.rest();
    };
    leaving.then(left, left);
    return leaving;
  }

  /** A held place is gone: somebody deleted its key. */
  lost(place: Place): void {
    this.#gone(place, () => false);
  }

  #joinNext(): void {
    if (this.#joining || this.#waiting >= MAX_WAITING) return;
    const waiter = this.#line.next();
    if (!waiter) return this.rest();
    this.#joining = true;
    this.#waiting++;
    waiter.stage = { at: "join" };
    void this.lease.inFlight.add(this.#join(waiter)).then(() => {
      this.#joining = false;
      waiter.onJoined?.();
      this.#joinNext();
    });
  }

  async #join(waiter: Waiter): Promise<void> {
    let joined: JoinedPlace;
    try {
      joined = await this.#joiner.join(waiter.kind, waiter.value, { again: () => !waiter.gaveUp });
    } catch (error) {
      this.#waiting--;
      waiter.fail(error as Error);
      this.lease.waits.delete(waiter);
      return;
    }
    const { place, from } = joined;
    if (waiter.gaveUp) {
      this.#waiting--;
      return this.leaveQuietly(place);
    }
    if (typeof from === "string") this.grant(waiter, unwatched(place), from);
    else this.#wait(waiter, place, from);
  }

  #wait(waiter: Waiter, place: Place, from: Behind | undefined): void {
    const below = this.own.followedBy(place);
    if (below) {
      waiter.stage = { at: "local", place, below };
      this.#followers.add(waiter, place, below);
      return;
    }
    const turn = new Turn(place, new WaiterTurn(this, waiter, place), from);
    waiter.stage = { at: "turn", place, turn };
  }

  /** Somebody deleted the key of a waiting place. */
  joinAnew(waiter: Waiter, place: Place): void {
    this.#waiting--;
    this.#line.addAgain(waiter);
    this.#gone(place, () => false);
  }

  failed(waiter: Waiter, place: Place, error: Error): void {
    this.#waiting--;
    this.lease.waits.delete(waiter);
    waiter.fail(error);
    this.leaveQuietly(place);
  }

  grant(waiter: Waiter, grant: Grant, from?: Joined): void {
    this.#waiting--;
    this.lease.waits.delete(waiter);
    waiter.grant(grant);
    this.#turnCame(grant.place, from, grant.deletedAt);
    this.#joinNext();
  }

  /** Those of this session who waited for the turn of `place`, not for its end, go on: beside it, on their own, or behind another. */
  #turnCame(place: Place, from: Joined, deletedAt = place.revision): void {
    place.held = true;
    if (place.kind.tellsTurn && from !== "held") this.#tell(place);
    for (const [waiter, next] of this.#followers.of(place)) {
      const below = this.own.followedBy(next);
      if (below === place) continue;
      this.#followers.remove(waiter, place);
      const then = below ? undefined : next.kind.afterTurn(next);
      // Nothing has confirmed its key since: that is read beside the handle.
      if (typeof then === "string") this.grant(waiter, { ...unwatched(next), deletedAt }, then);
      else this.#wait(waiter, next, then);
    }
  }

  /** Who waits behind a place that waited itself cannot see that it holds by now: it hears a put of the same key. */
  #tell(place: Place): void {
    const policy = { ...this.lease.policy("tell the next waiter"), again: () => !place.leaving };
    // Rejects only when the place leaves or the session ends. `orphan()` does not wait for it: the key may be refused for long.
    txnUntilConfirmed(this.lease, tellTxn(place), policy).catch(() => undefined);
  }

  /** The caller of `waiter` waits no longer. */
  abandoned(waiter: Waiter): void {
    const { stage } = waiter;
    this.lease.waits.delete(waiter);
    if (stage.at === "line") this.#line.remove(waiter);
    // A join that was sent is waited for: a delete sent now could be executed before it.
    if (stage.at !== "local" && stage.at !== "turn") return;
    waiter.stage = { at: "end" };
    if (stage.at === "turn") stage.turn.stop();
    else this.#followers.remove(waiter, stage.below);
    this.#waiting--;
    this.leaveQuietly(stage.place);
  }

  /** The same for whoever does not wait for it. */
  leaveQuietly(place: Place): void {
    // Rejects only when the session is over, and the key with it.
    this.leave(place).catch(() => undefined);
    this.#joinNext();
  }

  async #leave(place: Place): Promise<boolean> {
    // Before the delete: a late put may come right behind it.
    if (place.unanswered > 0) this.own.doubt(place);
    const asker = this.#followers.of(place)[0]?.[1];
    const asked = asker?.kind.asksForFirst(asker) ?? [];
    let doubted = false;
    const onUnanswered = (): void => void (doubted = true);
    const policy = { ...this.lease.policy(`leave the queue of "${this.name}"`), onUnanswered };
    const answer = await txnUntilConfirmed(this.lease, leaveTxn(place, asked), policy);
    const told = answer.ranges.slice(-asked.length).filter((range) => range !== undefined);
    this.#gone(place, (next) => next.kind === asker?.kind && next.kind.isFirst(next, told));
    return answer.succeeded || doubted;
  }

  /** Every end of a place wakes the local waiters behind it once; `isFirst` knows whom its deletion has told to be first. */
  #gone(place: Place, isFirst: (next: Place) => boolean): void {
    this.own.remove(place);
    this.own.release(place);
    for (const [waiter, next] of this.#followers.of(place)) {
      this.#followers.remove(waiter, place);
      if (isFirst(next)) this.grant(waiter, unwatched(next));
      else this.#wait(waiter, next, undefined);
    }
    this.#joinNext();
  }

  /** Names come and go (one a user, say): what is not needed is not kept. */
  rest(): void {
    const busy = this.#joining || this.#trying > 0 || this.#waiting > 0 || this.#leaving?.size;
    if (!busy && this.#line.empty && this.own.joined.length === 0) queues.get(this.lease)?.delete(this.name);
  }
}
