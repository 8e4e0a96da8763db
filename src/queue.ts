import { EtcdRefusedError } from "./errors.js";
import { LeaseNotFoundError, type KeyValue, type Txn, type TxnAnswer } from "./etcd/rpc.js";
import type { CallPolicy } from "./etcd/members.js";
import type { Lease } from "./lease.js";
import { OwnPlaces } from "./own-places.js";
import {
  joinBehindTxn,
  joinTxn,
  leaveTxn,
  positionOf,
  tryTxn,
  type Place,
  type Predecessor,
} from "./place.js";
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

interface Joined {
  readonly place: Place;
  /** undefined: it takes a read to know. */
  readonly from: "alone" | { readonly predecessor: Predecessor; readonly ahead: number } | undefined;
}

const queues = new WeakMap<Lease, Map<string, Queue>>();

/** One session's side of the queue of one name: joins it, waits for its turn, leaves it. */
export class Queue {
  readonly #own: OwnPlaces;
  readonly #line = new Line();
  /** Waiters by the local place whose end they wait for. */
  readonly #behind = new Map<Place, Waiter>();
  readonly #leaving = new Set<Promise<unknown>>();
  #joining = false;
  #waiting = 0;

  private constructor(
    readonly lease: Lease,
    readonly name: string,
  ) {
    this.#own = new OwnPlaces(lease, name);
  }

  static of(lease: Lease, name: string): Queue {
    const byName = queues.get(lease) ?? new Map<string, Queue>();
    queues.set(lease, byName);
    const queue = byName.get(name) ?? new Queue(lease, name);
    byName.set(name, queue);
    return queue;
  }

  /** A caller of `lock()`, at the end of the line. */
  enter(): Waiter {
    const waiter = new Waiter((left) => this.#abandoned(left));
    this.lease.waits.add(waiter);
    this.#line.add(waiter);
    this.#joinNext();
    return waiter;
  }

  /** A place that holds at once, or undefined if anybody is in the queue. `policy` bounds the attempts. */
  async tryEnter(policy: Pick<CallPolicy, "giveUpMs" | "again">): Promise<Place | undefined> {
    // Own places that are just being deleted would refuse it.
    await Promise.allSettled(this.#leaving);
    this.lease.assertOpen();
    const place = this.#own.make();
    const answer = await this.lease.track(this.#put(place, tryTxn(place), policy));
    if (this.#confirm(place, answer)) return place;
    this.#forget(place);
    return undefined;
  }

  /** Deletes a place; repeated until etcd has confirmed it. Rejects only with the session's end. */
  leave(place: Place): Promise<Left> {
    const leaving = this.lease.track(this.#leave(place));
    this.#leaving.add(leaving);
    const left = (): boolean => this.#leaving.delete(leaving);
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
    void this.lease.track(this.#join(waiter)).then(() => {
      this.#joining = false;
      this.#joinNext();
    });
  }

  async #join(waiter: Waiter): Promise<void> {
    let joined: Joined;
    try {
      joined = await this.#takeOver(waiter);
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

  /** An adopted place, or a new one. A key with a value that is not ours is somebody else's: the next number is taken. */
  async #takeOver(waiter: Waiter): Promise<Joined> {
    const adopted = this.lease.adopted?.claim(this.name);
    if (adopted) return { place: this.#own.adopt(adopted), from: undefined };
    for (;;) {
      const place = this.#own.make();
      // Our own last place is before us then; who else is need not be asked.
      const behindOurs = this.#own.any;
      const txn = behindOurs ? joinBehindTxn(place) : joinTxn(place);
      const answer = await this.#put(place, txn, { again: () => !waiter.gaveUp });
      if (this.#confirm(place, answer)) return { place, from: fromOf(place, answer) };
      this.#own.stranger(place);
    }
  }

  async #put(place: Place, txn: Txn, limits: Pick<CallPolicy, "giveUpMs" | "again">): Promise<TxnAnswer> {
    const policy = {
      ...this.lease.policy(`join the queue of "${this.name}"`),
      ...limits,
      onUnanswered: () => void place.unanswered++,
    };
    try {
      return await this.lease.connection.members.txn(txn, policy);
    } catch (error) {
      if (error instanceof LeaseNotFoundError) this.lease.gone();
      if (place.unanswered === 0) this.#forget(place);
      // It may have been applied, or will be.
      else this.#leaveQuietly(place);
      this.lease.signal.throwIfAborted();
      throw error;
    }
  }

  /** Is the place in the queue? Then this is its create revision. */
  #confirm(place: Place, answer: TxnAnswer): boolean {
    if (answer.succeeded) {
      place.revision = answer.header.revision;
    } else {
      const own = answer.ranges[0]?.kvs[0];
      if (own?.value !== place.value || own.leaseId !== this.lease.leaseId) return false;
      // An earlier attempt got through: its revision counts, and that attempt is in doubt no more.
      place.revision = own.createRevision;
      place.unanswered--;
    }
    this.#own.add(place);
    return true;
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
    this.#line.remove(waiter);
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
    this.#forget(place);
    if (behind?.stage.at === "local") {
      const next = behind.stage.place;
      if (first && next.is(first))
        this.#grant(behind, { place: next, ownWatch: undefined, deletedAt: undefined });
      else this.#wait(behind, next, undefined);
    }
    this.#joinNext();
  }

  #forget(place: Place): void {
    this.#own.release(place);
    this.#rest();
  }

  /** Names come and go (one a user, say): what is not needed is not kept. */
  #rest(): void {
    const idle = !this.#joining && this.#waiting === 0 && this.#line.empty && this.#leaving.size === 0;
    if (idle && this.#own.empty) queues.get(this.lease)?.delete(this.name);
  }
}

/** What the answer to a join tells of the places before it. */
function fromOf(place: Place, { succeeded, ranges }: TxnAnswer): Joined["from"] {
  const last = succeeded ? ranges[1] : undefined;
  if (!last) return undefined;
  if (last.count === 1) return "alone";
  const position = positionOf(place, last.kvs, last.count > last.kvs.length);
  if (position === "first") return "alone";
  return position === "gone" ? undefined : { predecessor: position.predecessor, ahead: last.count - 1 };
}
