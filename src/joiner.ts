import type { CallPolicy } from "./etcd/attempts.js";
import { LeaseNotFoundError, type Txn, type TxnAnswer } from "./etcd/rpc.js";
import type { Lease } from "./lease.js";
import type { OwnPlaces } from "./own-places.js";
import { joinBehindTxn, joinTxn, positionOf, tryTxn, type Place, type Predecessor } from "./place.js";

export interface Joined {
  readonly place: Place;
  /** undefined: it takes a read to know. */
  readonly from: "alone" | { readonly predecessor: Predecessor; readonly ahead: number } | undefined;
}

/** Puts places into the queue of one name, so that a lost answer neither loses one nor leaves one behind. */
export class Joiner {
  constructor(
    private readonly lease: Lease,
    private readonly name: string,
    private readonly own: OwnPlaces,
    /** Removes a place that may be there though its join failed. */
    private readonly undo: (place: Place) => void,
  ) {}

  /** An adopted place, or a new one. A key with a value that is not ours is somebody else's: the next number is taken. */
  async join(value: string | undefined, again: () => boolean): Promise<Joined> {
    const adopted = this.lease.adopted?.claim(this.name);
    if (adopted) return { place: this.own.adopt(adopted), from: undefined };
    for (;;) {
      const place = this.own.make(value);
      // Our own last place is before us then; who else is need not be asked.
      const behindOurs = this.own.any;
      const txn = behindOurs ? joinBehindTxn(place) : joinTxn(place);
      const answer = await this.#put(place, txn, { again });
      if (this.#confirm(place, answer)) return { place, from: fromOf(place, answer) };
      this.own.stranger(place);
    }
  }

  /** A place that holds at once, or undefined if anybody is in the queue. */
  async tryJoin(limits: Pick<CallPolicy, "giveUpMs" | "again">): Promise<Place | undefined> {
    const place = this.own.make();
    const answer = await this.#put(place, tryTxn(place), limits);
    if (this.#confirm(place, answer)) return place;
    this.own.release(place);
    return undefined;
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
      if (place.unanswered === 0) this.own.release(place);
      // It may have been applied, or will be.
      else this.undo(place);
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
    this.own.add(place);
    return true;
  }
}

/** What the answer to a join tells of the places before it. */
function fromOf(place: Place, { succeeded, ranges }: TxnAnswer): Joined["from"] {
  const last = succeeded ? ranges[1] : undefined;
  if (!last) return undefined;
  const position = positionOf(place, last.kvs, last.count > last.kvs.length);
  if (position === "first") return "alone";
  return position === "gone" ? undefined : { predecessor: position.predecessor, ahead: last.count - 1 };
}
