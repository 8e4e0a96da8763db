// A count-down latch. Each count is a key of its own, so that a request which is sent again counts once:
//
//   key                              lease             there:
//   LATCH/latch                      for ttlMs         since the first count: the number, the round, and whether it is open
//   LATCH/ROUND/counted/ID           the same one      a count
//   LATCH/ROUND/enlisted/ID          the same one      a counter that has not counted yet
//   LATCH/ROUND/alive/ID             of its session    the same, while its session lives
//   LATCH/ROUND/left/ID              the round's       a counter that has left while its put was in doubt: a late attempt puts nothing
//
// LATCH is `/leasehold/latch/NAME/`: no name has two slashes in a row, or one at its start, so no queue and no other latch contains it.
// A counter that is enlisted and not alive has died. All keys of a round but the last have one lease, so they end together, and the keys
// of a round that is over count for nothing. A reset changes the round: an attempt that etcd executes late finds another first key.
import { type Compare, LeaseNotFoundError, type Txn, type TxnAnswer } from "../../etcd/port.js";
import { CountMismatchError, LatchBrokenError } from "../../errors.js";
import { LATCHES, pathOf, prefixEnd } from "../../keys.js";
import type { Asking } from "../../lock/queue/contenders.js";
import type { EtcdServices } from "../../lock/session/connection.js";
import type { Lease } from "../../lock/session/lease.js";
import { fieldsOf, type SeenKey, withLongLease } from "./await-keys.js";

export const MAX_COUNT = 10_000;

/** What the first key of a latch says. */
export interface Round {
  readonly count: number;
  readonly id: string;
  readonly isOpen: boolean;
  readonly revision: bigint;
  readonly leaseId: bigint;
}

/** The keys of one latch. */
export class LatchKeys {
  readonly queue: string;
  readonly base: string;
  readonly latch: string;

  constructor(services: EtcdServices, name: string) {
    this.queue = `${LATCHES}${pathOf(services, name)}`;
    this.base = `${this.queue}//`;
    this.latch = `${this.base}latch`;
  }

  get range(): { readonly key: string; readonly end: string } {
    return { key: this.base, end: prefixEnd(this.base) };
  }

  of(part: "counted" | "enlisted" | "alive" | "left", round: string, id: string): string {
    return `${this.base}${round}/${part}/${id}`;
  }

  /** etcd counts the keys of the range, whatever the limit is. */
  counts(round: string) {
    const key = this.of("counted", round, "");
    return { key, end: prefixEnd(key), limit: 1, keysOnly: true } as const;
  }
}

/** The transactions of one latch. */
export class LatchStore {
  readonly keys: LatchKeys;
  /** As last seen: it may have ended since. */
  #round: Round | undefined;

  // eslint-disable-next-line max-params -- what a latch is
  constructor(
    readonly services: EtcdServices,
    readonly name: string,
    readonly total: number,
    private readonly ttlMs: number,
  ) {
    this.keys = new LatchKeys(services, name);
  }

  /** @throws CountMismatchError | LatchBrokenError */
  #roundOf(kv: SeenKey | undefined): Round | undefined {
    if (kv === undefined) return undefined;
    const round = roundIn(kv);
    if (round === undefined) throw new LatchBrokenError(this.name, "unreadable");
    if (round.count !== this.total) throw new CountMismatchError(this.name, this.total, round.count);
    return round;
  }

  async left({ services: { client }, policy }: Asking): Promise<number> {
    const latch = { key: this.keys.latch };
    for (;;) {
      const known = this.#round;
      const reads = known ? [latch, this.keys.counts(known.id)] : [latch];
      const { ranges } = await client.ranges(reads, policy);
      const round = (this.#round = this.#roundOf(ranges[0]?.kvs[0]));
      if (!round) return this.total;
      if (round.isOpen) return 0;
      if (round.id === known?.id) return Math.max(0, this.total - (ranges[1]?.count ?? 0));
    }
  }

  /**
   * Puts keys into the present round, or into a new one. Sent again after a lost answer, it puts the same keys. Whether an attempt was
   * executed is read from them, in the round in which it would have put them.
   */
  async write(asking: Asking, lease: Lease | undefined, make: (round: string) => Write): Promise<Written> {
    const { services, policy } = asking;
    const fresh = newId(this.services);
    for (;;) {
      const known = this.#round;
      if (known?.isOpen) {
        // It may have been reset since.
        const [kv] = (await services.client.range({ key: this.keys.latch }, policy)).kvs;
        const round = (this.#round = this.#roundOf(kv));
        if (round?.isOpen) return { at: undefined };
        continue;
      }
      const write = make(known?.id ?? fresh);
      // The round has ended with its lease, or the session has.
      const renew = lease && {
        renew: async (): Promise<void> => {
          await this.#takeBack(asking, write);
          await lease.renewNow();
        },
      };
      try {
        const limits = { what: policy.what, signal: policy.signal ?? services.closed };
        const lifetime = { ms: this.ttlMs, atLeast: true };
        const written = known
          ? await this.#put(asking, known, write)
          : await withLongLease(services, lifetime, { ...limits, ...renew }, (leaseId) =>
              this.#begin(asking, { id: fresh, leaseId }, write),
            );
        if (written) return written;
      } catch (error) {
        if (!known || !(error instanceof LeaseNotFoundError)) throw error;
        this.#round = undefined;
        await renew?.renew();
      }
    }
  }

  /** Of an attempt whose answer was lost, the end of the round has left the key that has another lease. */
  async #takeBack({ services, policy }: Asking, { puts }: Write): Promise<void> {
    const success = puts
      .filter(({ leaseId }) => leaseId !== undefined)
      .map(({ key }) => ({ kind: "delete", key }) as const);
    await services.client.txn({ queues: [this.keys.queue], compare: [], success, failure: [] }, policy);
  }

  /** With the first key. undefined: somebody else was faster. */
  async #begin(asking: Asking, { id, leaseId }: Pick<Round, "id" | "leaseId">, write: Write) {
    const isOpen = write.counts && this.total === 1;
    const value = roundValue({ count: this.total, round: id, isOpen });
    const first = { kind: "put", key: this.keys.latch, value, leaseId } as const;
    const answer = await this.#txn(asking, { id, leaseId, at: undefined }, { write, first: [first] });
    if (!answer.succeeded) return this.#executed(asking, answer, { before: id, write });
    const { revision } = answer.header;
    this.#round = { count: this.total, id, isOpen, revision, leaseId };
    return { at: revision };
  }

  /** Into a round that was there. undefined: it has changed. */
  async #put(asking: Asking, round: Round, write: Write): Promise<Written | undefined> {
    const { id, leaseId, revision: at } = round;
    const answer = await this.#txn(asking, { id, leaseId, at }, { write, first: [] });
    if (!answer.succeeded) return this.#executed(asking, answer, { before: id, write });
    const isFull = write.counts && (answer.ranges.at(-1)?.count ?? 0) >= this.total;
    if (isFull) this.#round = await this.#open(asking, round);
    return { at: answer.header.revision };
  }

  #txn(
    { services, policy }: Asking,
    { id, leaseId, at }: Pick<Round, "id" | "leaseId"> & { readonly at: bigint | undefined },
    { write: { puts, unless = [], tried }, first }: { readonly write: Write; readonly first: Txn["success"] },
  ): Promise<TxnAnswer> {
    tried?.(leaseId);
    const { latch: key, queue } = this.keys;
    const [mine] = puts as readonly [Put, ...Put[]];
    const unchanged: Compare =
      at === undefined
        ? { kind: "created at", key, revision: 0n }
        : { kind: "modified at", key, revision: at };
    const txn: Txn = {
      queues: [queue],
      compare: [
        unchanged,
        ...unless.map((each) => ({ kind: "created at", key: each, revision: 0n }) as const),
      ],
      success: [
        ...first,
        ...puts.map((put) => ({ kind: "put", leaseId, ...put }) as const),
        { kind: "range", ...this.keys.counts(id) },
      ],
      failure: [
        { kind: "range", key },
        { kind: "range", key: mine.key },
      ],
    };
    return services.client.txn(txn, policy);
  }

  /** What an earlier attempt has written; undefined: none was executed, and the next one has to be in another round. */
  async #executed(
    asking: Asking,
    { ranges }: TxnAnswer,
    { before, write }: { readonly before: string; readonly write: Write },
  ): Promise<Written | undefined> {
    const [there] = ranges[1]?.kvs ?? [];
    const found = (this.#round = this.#roundOf(ranges[0]?.kvs[0]));
    if (!there) return found?.isOpen ? { at: undefined } : undefined;
    const mayBeLast = write.counts && found?.id === before && !found.isOpen;
    if (mayBeLast) this.#round = await this.#openIfFull(asking, found);
    return { at: there.createRevision };
  }

  async #openIfFull(asking: Asking, round: Round): Promise<Round> {
    const { client } = asking.services;
    const { count } = await client.range(this.keys.counts(round.id), asking.policy);
    return count >= this.total ? this.#open(asking, round) : round;
  }

  /** So that no further count puts a key. It is open by its counts, too. */
  async #open({ services: { client }, policy }: Asking, round: Round): Promise<Round> {
    const { queue, latch: key } = this.keys;
    const value = roundValue({ count: round.count, round: round.id, isOpen: true });
    const { leaseId } = round;
    const txn = {
      queues: [queue],
      compare: [{ kind: "modified at", key, revision: round.revision }],
      success: [{ kind: "put", key, value, leaseId }],
      failure: [],
    } as const;
    const answer = await client.txn(txn, policy).catch(() => undefined);
    return answer?.succeeded ? { ...round, isOpen: true, revision: answer.header.revision } : round;
  }

  /** The count of an enlisted counter, in its round. */
  async countFor(lease: Lease, place: Place, revision: bigint): Promise<"counted" | "reset" | "gone"> {
    const { services } = lease;
    const { round, id, leaseId } = place;
    const policy = { ...lease.policy(`count down the latch "${this.name}"`), onLeaseGone: undefined };
    const { queue, latch } = this.keys;
    const [counted, enlisted, alive] = (["counted", "enlisted", "alive"] as const).map((part) =>
      this.keys.of(part, round, id),
    ) as [string, string, string];
    const txn: Txn = {
      queues: [queue],
      compare: [{ kind: "created at", key: alive, revision }],
      success: [
        { kind: "put", key: counted, value: valueOf(lease.owner, services), leaseId },
        { kind: "delete", key: enlisted },
        { kind: "delete", key: alive },
        { kind: "range", key: latch },
      ],
      failure: [
        { kind: "range", key: latch },
        { kind: "range", key: counted },
      ],
    };
    const answer = await services.client.txn(txn, policy).catch((error: unknown) => {
      if (error instanceof LeaseNotFoundError) return undefined;
      throw error;
    });
    // The round has ended with its lease.
    if (!answer) {
      await this.remove(lease, place, { revision, inDoubt: false });
      return "reset";
    }
    const [first, own] = answer.ranges.filter((range) => range !== undefined);
    const [kv] = first?.kvs ?? [];
    const now = (this.#round = this.#roundOf(kv));
    if (now?.id !== round) return "reset";
    if (!answer.succeeded && own?.kvs.length === 0) return "gone";
    if (!now.isOpen) this.#round = await this.#openIfFull({ services, policy }, now);
    return "counted";
  }

  /** Removes a counter. `inDoubt`: an attempt to put it may yet be executed, and puts nothing then. */
  async remove(
    lease: Lease,
    { round, id, leaseId }: Place,
    { revision, inDoubt }: { readonly revision: bigint | undefined; readonly inDoubt: boolean },
  ): Promise<void> {
    const policy = { ...lease.policy(`leave the latch "${this.name}"`), untilConfirmed: true };
    const [key, enlisted, left] = (["alive", "enlisted", "left"] as const).map((part) =>
      this.keys.of(part, round, id),
    ) as [string, string, string];
    const { client } = lease.services;
    const txn: Txn = {
      queues: [this.keys.queue],
      // Its put was refused, or its answer is lost: no other keys have these names.
      compare: revision === undefined ? [] : [{ kind: "created at", key, revision }],
      success: [key, enlisted].map((each) => ({ kind: "delete", key: each })),
      failure: [],
    };
    await client.txn(txn, policy);
    if (!inDoubt) return;
    // By itself: a full etcd deletes, but stores no mark. An attempt may be executed between the two.
    const mark = { kind: "put", key: left, value: "", leaseId } as const;
    const leave = { ...txn, compare: [], success: [...txn.success, mark] };
    await client.txn(leave, { ...policy, onLeaseGone: undefined }).catch((error: unknown) => {
      // The round has ended with its lease: a late attempt puts nothing.
      if (!(error instanceof LeaseNotFoundError)) throw error;
    });
  }

  /** A new round, unless nobody has begun one. */
  async reset({ services, policy }: Asking): Promise<void> {
    const { queue, latch: key } = this.keys;
    let round: string | undefined;
    const limits = { what: policy.what, signal: policy.signal ?? services.closed };
    const reset = (): Promise<boolean> =>
      withLongLease(services, { ms: this.ttlMs, atLeast: true }, limits, async (leaseId) => {
        const [kv] = (await services.client.range({ key }, policy)).kvs;
        if (!kv || (round !== undefined && roundIn(kv)?.id === round)) return true;
        // A new one each time: in that of an earlier attempt, others may have counted before they have reset it.
        round = newId(services);
        const value = roundValue({ count: this.total, round, isOpen: false });
        const compare = [{ kind: "modified at", key, revision: kv.modRevision }] as const;
        const success = [{ kind: "put", key, value, leaseId }] as const;
        return (await services.client.txn({ queues: [queue], compare, success, failure: [] }, policy))
          .succeeded;
      });
    while (!(await reset()));
    this.#round = undefined;
  }
}

export const newId = ({ clock }: EtcdServices): string => clock.randomId().toString(36);

export const valueOf = (owner: string, { clock }: EtcdServices): string =>
  JSON.stringify({ owner, since: clock.date().toISOString() });

/** Where the keys of an enlisted counter are, or may be. */
export interface Place {
  readonly round: string;
  readonly id: string;
  /** Of the round. */
  readonly leaseId: bigint;
}

interface Put {
  readonly key: string;
  readonly value: string;
  /** Default: the long lease. */
  readonly leaseId?: bigint;
}

/** What a call puts. `counts`: the first one is a count, which may open the latch. */
interface Write {
  readonly puts: readonly Put[];
  readonly counts: boolean;
  /** Keys that show that it has been executed: a further attempt puts nothing. */
  readonly unless?: readonly string[];
  /** Called before it is sent, with the long lease of its round. */
  readonly tried?: (leaseId: bigint) => void;
}

/** `at`: the create revision of the keys; undefined if the latch is open, and nothing was put. */
interface Written {
  readonly at: bigint | undefined;
}

const roundValue = (round: {
  readonly count: number;
  readonly round: string;
  readonly isOpen: boolean;
}): string => JSON.stringify(round);

export function roundIn(kv: SeenKey): Round | undefined {
  const { count, round, isOpen } = fieldsOf(kv) ?? {};
  if (typeof count !== "number" || !Number.isInteger(count) || count < 1 || count > MAX_COUNT)
    return undefined;
  if (typeof round !== "string" || !/^[0-9a-z]{1,13}$/.test(round)) return undefined;
  return { count, id: round, isOpen: isOpen === true, revision: kv.modRevision, leaseId: kv.leaseId };
}
