import { EtcdRefusedError } from "./errors.js";
import type { CallPolicy } from "./etcd/attempts.js";
import type { KeyValue, TxnAnswer } from "./etcd/rpc.js";
import { Joiner, type Joined } from "./joiner.js";
import type { Lease } from "./lease.js";
import { OwnPlaces } from "./own-places.js";
import { leaveTxn, type Place, type Predecessor } from "./place.js";
import { pause } from "./time.js";
import { Turn, type TurnOutcome } from "./turn.js";
import { Line, Waiter } from "./waiter.js";

/** More waiting places of one session under one name only make etcd's sorted ranges slower: the rest waits in line here. */
const MAX_WAITING = 100;
/** A refused delete is sent again after this time: a place must not outlive its use while the lease lives. */
const REFUSED_AGAIN_MS = 1000;

/** What deleting a place came to. */
export interface Left {
  /** `false`: the key was not there any more, or not this place's. */
  readonly deleted: boolean;
  /** An earlier attempt was not answered, and may be the one that deleted it. */
  readonly repeated: boolean;
}

const queues = new WeakMap<Lease, Map<string, Queue>>();

/** One session's side of the queue of one name: joins it, waits for its turn, leaves it. */
export class Queue {
  readonly #own: OwnPlaces;
  readonly #joiner: Joiner;
  readonly #line = new Line();
  /** Waiters by the local place whose end they wait for. */
  readonly #behind = new Map<Place, Waiter>();
  readonly #leaving = new Set<Promise<unknown>>();
  #joining = false;
  #trying = 0;
  #waiting = 0;

  private constructor(
    readonly lease: Lease,
    readonly name: string,
  ) {
    this.#own = new OwnPlaces(lease, name);
    this.#joiner = new Joiner(lease, name, this.#own, (place) => this.#leaveQuietly(place));
  }

  static of(lease: Lease, name: string): Queue {
    const byName = queues.get(lease) ?? new Map<string, Queue>();
    queues.set(lease, byName);
    const queue = byName.get(name) ?? new Queue(lease, name);
    byName.set(name, queue);
    return queue;
  }

  /** A caller that waits for its turn, at the end of the line. */
  enter({ value }: { readonly value?: string } = {}): Waiter {
    const waiter = new Waiter((left) => this.#abandoned(left), value);
    this.lease.waits.add(waiter);
    this.#line.add(waiter);
    this.#joinNext();
    return waiter;
  }

  /** A place that holds at once, or undefined if anybody is in the queue. `policy` bounds the attempts. */
  async tryEnter(policy: Pick<CallPolicy, "giveUpMs" | "again">): Promise<Place | undefined> {
    this.#trying++;
    try {
      // Own places that are just being deleted would refuse it.
      await Promise.allSettled(this.#leaving);
      this.lease.assertOpen();
      return await this.lease.inFlight.add(this.#joiner.tryJoin(policy));
    } finally {
      this.#trying--;
      this.#rest();
    }
  }

  /** Deletes a place; repeated until etcd has confirmed it. Rejects only with the session's end. */
  leave(place: Place): Promise<Left> {
    const leaving = this.lease.inFlight.add(this.#leave(place));
    this.#leaving.add(leaving);
    const left = (): void => {
      this.#leaving.delete(leaving);
      this.#rest();
    };
    leaving.then(left, left);
    return leaving;
  }

  /** A held place is gone: somebody deleted its key. */
  lost(place: Place): void {
    this.#gone(place, undefined);
  }

  #joinNext(): void {
    if (this.#joining || this.#waiting >= MAX_WAITING) return;
    const waiter = this.#line.next();
    if (!waiter) return this.#rest();
    this.#joining = true;
    this.#waiting++;
    waiter.stage = { at: "join" };
    void this.lease.inFlight.add(this.#join(waiter)).then(() => {
      this.#joining = false;
      this.#joinNext();
    });
  }

  async #join(waiter: Waiter): Promise<void> {
    let joined: Joined;
    try {
      joined = await this.#joiner.join(waiter.value, () => !waiter.gaveUp);
    } catch (error) {
      this.#waiting--;
      waiter.fail(error as Error);
      this.lease.waits.delete(waiter);
      return;
    }
    const { place, from } = joined;
    if (waiter.gaveUp) {
      this.#waiting--;
      return this.#leaveQuietly(place);
    }
    if (from === "alone") this.#grant(waiter, { place, ownWatch: undefined, deletedAt: undefined });
    else this.#wait(waiter, place, from);
  }

  #wait(
    waiter: Waiter,
    place: Place,
    from: { readonly predecessor: Predecessor; readonly ahead: number } | undefined,
  ): void {
    const below = this.#own.below(place);
    if (below) {
      waiter.stage = { at: "local", place, below };
      this.#behind.set(below, waiter);
      return;
    }
    const outcome: TurnOutcome = {
      granted: (ownWatch, deletedAt) => this.#grant(waiter, { place, ownWatch, deletedAt }),
      gone: () => this.#joinAnew(waiter, place),
      failed: (error) => {
        this.#waiting--;
        this.lease.waits.delete(waiter);
        waiter.fail(error);
        this.#leaveQuietly(place);
      },
    };
    waiter.stage = { at: "turn", place, turn: new Turn(place, outcome, from) };
  }

  #grant(waiter: Waiter, grant: Parameters<Waiter["grant"]>[0]): void {
    this.#waiting--;
    this.lease.waits.delete(waiter);
    waiter.grant(grant);
    this.#joinNext();
  }

  /** Somebody deleted the key of a waiting place. */
  #joinAnew(waiter: Waiter, place: Place): void {
    this.#waiting--;
    this.#line.addAgain(waiter);
    this.#gone(place, undefined);
  }

  #abandoned(waiter: Waiter): void {
    const { stage } = waiter;
    this.lease.waits.delete(waiter);
    if (stage.at === "line") this.#line.remove(waiter);
    // A join that was sent is waited for: a delete sent now could be executed before it.
    if (stage.at !== "local" && stage.at !== "turn") return;
    waiter.stage = { at: "end" };
    if (stage.at === "turn") stage.turn.stop();
    else if (this.#behind.get(stage.below) === waiter) this.#behind.delete(stage.below);
    this.#waiting--;
    this.#leaveQuietly(stage.place);
  }

  #leaveQuietly(place: Place): void {
    // Rejects only when the session is over, and the key with it.
    this.leave(place).catch(() => undefined);
    this.#joinNext();
  }

  async #leave(place: Place): Promise<Left> {
    // Before the delete: a late put may come right behind it.
    if (place.unanswered > 0) this.#own.doubt(place);
    let repeated = false;
    const answer = await this.#delete(place, () => (repeated = true));
    const first = answer.ranges.at(-1)?.kvs[0];
    this.#gone(place, first);
    return { deleted: answer.succeeded, repeated };
  }

  async #delete(place: Place, onUnanswered: () => void): Promise<TxnAnswer> {
    const { members, clock } = this.lease.connection;
    const policy = { ...this.lease.policy(`leave the queue of "${this.name}"`), onUnanswered };
    for (;;) {
      try {
        return await members.txn(leaveTxn(place, { tellFirst: this.#behind.has(place) }), policy);
      } catch (error) {
        if (!(error instanceof EtcdRefusedError)) throw error;
        await pause(clock, REFUSED_AGAIN_MS, this.lease.signal);
      }
    }
  }

  /** Every end of a place wakes the local waiter behind it once; `first` is who comes first now, where that was told. */
  #gone(place: Place, first: KeyValue | undefined): void {
    this.#own.remove(place);
    const behind = this.#behind.get(place);
    this.#behind.delete(place);
    this.#own.release(place);
    if (behind?.stage.at === "local") {
      const next = behind.stage.place;
      if (first && next.is(first))
        this.#grant(behind, { place: next, ownWatch: undefined, deletedAt: undefined });
      else this.#wait(behind, next, undefined);
    }
    this.#joinNext();
  }

  /** Names come and go (one a user, say): what is not needed is not kept. */
  #rest(): void {
    const busy = this.#joining || this.#trying > 0 || this.#waiting > 0 || this.#leaving.size > 0;
    // An own place, also one in doubt, keeps its number from being used twice.
    if (!busy && this.#line.empty && this.#own.empty) queues.get(this.lease)?.delete(this.name);
  }
}
