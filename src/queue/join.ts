import type { CallPolicy } from "../etcd/retry.js";
import { backoff } from "../etcd/backoff.js";
import type { Range, Txn, TxnAnswer } from "../etcd/port.js";
import type { Joined, Kind, Told } from "./lock-mode.js";
import type { Lease } from "../session/lease.js";
import type { OwnPlaces } from "./session-entries.js";
import { joinRefused } from "./refused-join.js";
import { joinBehindTxn, joinTxn, tryTxn, type Place } from "./entry.js";
import { pause } from "../async/clock.js";

type Limits = Pick<CallPolicy, "giveUpMs" | "again">;

/** A place in the queue, and what its join was told of it. */
export interface JoinedPlace {
  readonly place: Place;
  readonly from: Joined;
}

/** Puts places into the queue of one name, so that a lost answer neither loses one nor leaves one behind. */
export class Joiner {
  constructor(
    private readonly lease: Lease,
    private readonly name: string,
    private readonly own: OwnPlaces,
    /** Removes a place that may be there though its join failed, or that is not wanted. */
    private readonly undo: (place: Place) => void,
  ) {}

  /** An adopted place, or a new one. When the key is there with a value that is not ours, the next number is tried. */
  async join(kind: Kind, value: string | undefined, limits: Limits): Promise<JoinedPlace> {
    const adopted = this.lease.adopted?.claim(`${this.name}${kind.folder}`);
    if (adopted) return { place: this.own.adopt(adopted, kind), from: undefined };
    return this.#joinAnew(kind, value, limits);
  }

  async #joinAnew(kind: Kind, value: string | undefined, limits: Limits): Promise<JoinedPlace> {
    for (let wait = backoff.next(); ; wait = wait.next(undefined)) {
      const place = this.own.make(kind, value);
      const behindOurs = kind.surelyFollows(this.own.joined);
      const txn = behindOurs ? joinBehindTxn(place) : joinTxn(place);
      const answer = await this.#put(place, txn, limits);
      if (this.#confirm(place, answer))
        return { place, from: behindOurs ? undefined : fromOf(place, answer) };
      this.own.stranger(place);
      await pause(this.lease.connection.clock, wait.duration, this.lease.signal);
    }
  }

  /** A place that holds at once, or undefined if it would have to wait. */
  async tryJoin(kind: Kind, value: string | undefined, limits: Limits): Promise<JoinedPlace | undefined> {
    const { trying } = kind;
    if ("look" in trying) {
      const [told] = await this.#read([trying.look(this.name)], limits);
      return told && trying.hasRoom(told) ? this.#joinIfHeld(kind, value, limits) : undefined;
    }
    const place = this.own.make(kind, value);
    const answer = await this.#put(place, tryTxn(place, trying.when(place)), limits);
    if (this.#confirm(place, answer)) return { place, from: "held" };
    this.own.release(place);
    return undefined;
  }

  /** Somebody may have been faster: then it leaves again. */
  async #joinIfHeld(kind: Kind, value: string | undefined, limits: Limits): Promise<JoinedPlace | undefined> {
    const { place, from } = await this.#joinAnew(kind, value, limits);
    if (typeof from === "string") return { place, from };
    const held = from === undefined && (await this.#isFirst(place, limits));
    if (held) return { place, from: "held, unseen" };
    this.undo(place);
    return undefined;
  }

  async #isFirst(place: Place, limits: Limits): Promise<boolean> {
    try {
      const told = await this.#read(place.kind.reads(place, true), limits);
      return place.kind.positionOf(place, told) === "first";
    } catch (error) {
      this.undo(place);
      throw error;
    }
  }

  async #read(ranges: readonly Range[], limits: Limits): Promise<readonly Told[]> {
    const policy = { ...this.#policy(), ...limits };
    return (await this.lease.connection.members.ranges(ranges, policy)).ranges;
  }

  async #put(place: Place, txn: Txn, limits: Limits): Promise<TxnAnswer> {
    const policy = { ...this.#policy(), ...limits, onUnanswered: () => void place.unanswered++ };
    try {
      return await this.lease.connection.members.txn(txn, policy);
    } catch (error) {
      await joinRefused(this.lease, txn, error);
      if (place.unanswered === 0) this.own.release(place);
      // It may have been applied, or will be.
      else this.undo(place);
      this.lease.signal.throwIfAborted();
      throw error;
    }
  }

  #policy(): CallPolicy {
    return this.lease.policy(`join the queue of "${this.name}"`);
  }

  /** Is the place in the queue? Then this is its create revision. */
  #confirm(place: Place, answer: TxnAnswer): boolean {
    if (answer.succeeded) {
      place.revision = answer.header.revision;
    } else {
      const own = answer.ranges[0]?.kvs[0];
      if (own?.value !== place.value || own.leaseId !== this.lease.leaseId) return false;
      // The same request got through before, sent by us or repeated by a proxy: its revision counts, and no attempt is in
      // doubt for it. Candidates may have equal values, but no two places of a session have the same key at a time.
      place.revision = own.createRevision;
      place.foundExecuted();
    }
    this.own.add(place);
    return true;
  }
}

/** What the answer to a join tells of the places before it. */
function fromOf(place: Place, { succeeded, ranges }: TxnAnswer): Joined {
  const told = ranges.filter((range) => range !== undefined);
  const from = succeeded && told.length > 0 ? place.kind.joined(place, told) : undefined;
  if (typeof from === "object") place.joinedBehind = from.predecessor.revision;
  return from;
}
