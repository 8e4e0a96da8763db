// What a member of a double barrier does in one round. The keys are in member-keys.ts.
import { BarrierBrokenError, BarrierFullError, CountMismatchError } from "../../errors.js";
import type { Txn, TxnAnswer } from "../../etcd/port.js";
import { retry } from "../../etcd/retry.js";
import type { CheckedWait } from "../../base/options/check.js";
import { inOwnContext } from "../../base/util/own-context.js";
import { settleWithin } from "../../base/util/settle.js";
import type { Dependent, Lease } from "../../lock/session/lease.js";
import {
  ATTEMPTS,
  ownerIn,
  type SeenKey,
  seenKey,
  timedOut,
  untilKeys,
  type WaitEnds,
  withLongLease,
} from "./await-keys.js";
import {
  admitted,
  BarrierKeys,
  hasLeft,
  latin1,
  LEFT,
  membersIn,
  readyIs,
  type View,
  type Waiter,
  waiterOf,
  waitersIn,
} from "./member-keys.js";

const RECORDS = { ms: 30 * 86_400_000, atLeast: true };
/** Other clients may have put more: those that matter are the oldest. */
const MAX_READ = 1000;

interface EnterWait extends CheckedWait {
  /** The limit that the caller has given. */
  readonly saidMs: number;
  readonly rejects: boolean;
  /** Settles when this member has left its last round: until then, it would meet itself. */
  readonly after: Promise<unknown> | undefined;
}

type Entered = "entered" | Error | undefined;

/** One member in one round. */
export class MemberRound {
  readonly #lease: Lease;
  readonly #keys: BarrierKeys;
  readonly #key: string;
  readonly #record: string;
  readonly #value: string;
  /** Its session is in use, though nothing is held. */
  readonly #user: Dependent = { sessionEnded: () => undefined };
  /** Create revision of the key; 0n before it is known. */
  #created = 0n;
  #putting: Promise<unknown> = Promise.resolve();
  #leaving: Promise<unknown> | undefined;
  /** So many attempts to put it may be executed at any later time. */
  #inDoubt = 0;
  /** None of them puts it any more. */
  #isMarked = false;
  /** Members that were among the first ones: the end of one of them before the barrier opens is news. */
  readonly #seen = new Map<bigint, SeenKey>();
  #view: View = { waiters: [], ready: undefined };
  /** The members of the round, once it is open. */
  #members: ReadonlySet<bigint> = new Set();

  constructor(
    private readonly name: string,
    private readonly count: number,
    lease: Lease,
  ) {
    const keys = (this.#keys = new BarrierKeys(lease.services, name));
    this.#lease = lease;
    const id = lease.services.clock.randomId().toString(36);
    this.#key = `${keys.waiters.key}${id}`;
    this.#record = `${keys.records.key}${id}`;
    const since = lease.services.clock.date().toISOString();
    this.#value = JSON.stringify({ owner: lease.owner, members: count, since, id });
  }

  async enter({ rejects, saidMs, after, ...wait }: EnterWait): Promise<void> {
    const { services } = this.#lease;
    const what = `enter the barrier "${this.name}"`;
    this.#lease.waits.add(this.#user);
    const stop = new AbortController();
    this.#putting = this.#lease.inFlight.track(this.#putAfter(after, what, stop.signal));
    const entering = this.#enter(what, rejects, stop.signal);
    try {
      await settleWithin(entering, wait, services, {
        onTimeout: () => timedOut(services, { name: this.name, what, timeoutMs: saidMs }, this.#missing()),
        onGiveUp: () => stop.abort(),
      });
    } catch (error) {
      // Whether it is inside by now or not: nobody of this process is.
      inOwnContext(() => void this.goOut().catch(() => undefined));
      throw error;
    }
  }

  #missing(): string {
    const there = Math.min(this.count, this.#view.waiters.filter((kv) => this.#counts(kv)).length);
    return `${this.count - there} of ${this.count} members are missing`;
  }

  async #enter(what: string, rejects: boolean, stop: AbortSignal): Promise<void> {
    const { services, signal } = this.#lease;
    await this.#putting;
    if (stop.aborted) return;
    // The state of the very revision in which it came decides whether there was room for it.
    const first = await this.#judge(rejects, true);
    if (first instanceof Error) throw first;
    if (first) return;
    let latest = this.#view;
    let judging = false;
    const judge = async (ends: WaitEnds<void>): Promise<void> => {
      if (judging) return;
      judging = true;
      try {
        for (let seen: View | undefined; seen !== latest;) {
          seen = this.#view = latest;
          const outcome = await this.#judge(rejects, false);
          if (outcome === "entered") return ends.resolve();
          if (outcome) return ends.reject(outcome);
        }
      } catch (error) {
        ends.reject(error);
      } finally {
        judging = false;
      }
    };
    const ready = latin1(this.#keys.ready);
    const waiters = latin1(this.#keys.waiters.key);
    await untilKeys<void>(
      { services, range: this.#keys.all, name: this.name, what, ends: [signal, stop] },
      ({ keys }, ends) => {
        latest = { waiters: waitersIn(keys, waiters), ready: keys.get(ready) };
        void judge(ends);
      },
      { signal: undefined, timeoutMs: undefined },
      { missing: () => "" },
    );
  }

  async #putAfter(after: Promise<unknown> | undefined, what: string, stop: AbortSignal): Promise<void> {
    await after?.catch(() => undefined);
    if (stop.aborted) return;
    this.#lease.assertOpen();
    await this.#put(what);
  }

  async #put(what: string): Promise<void> {
    const { services, leaseId } = this.#lease;
    const [key, record, value] = [this.#key, this.#record, this.#value];
    const waiters = { kind: "range", ...this.#keys.waiters, order: "oldest first", limit: MAX_READ } as const;
    const ready = { kind: "range", key: this.#keys.ready } as const;
    const onUnanswered = (): void => void this.#inDoubt++;
    const policy = { ...this.#lease.policy(what), onLeaseGone: undefined, onUnanswered };
    const limits = { what, signal: this.#lease.signal, renew: () => this.#lease.renewNow() };
    const { header, succeeded, ranges } = await withLongLease(services, RECORDS, limits, (long) =>
      services.client.txn(
        {
          queues: [this.#keys.queue],
          compare: [key, record].map((each) => ({ kind: "created at", key: each, revision: 0n })),
          success: [
            { kind: "put", key, value, leaseId },
            { kind: "put", key: record, value, leaseId: long },
            waiters,
            ready,
          ],
          failure: [waiters, ready, { kind: "range", key }, { kind: "range", key: record }],
        },
        policy,
      ),
    );
    const [all, open, ...own] = ranges.filter((range) => range !== undefined);
    // An attempt whose answer was lost. Without its key, the record is that of a death.
    const [put] = own.flatMap(({ kvs }) => kvs);
    // It was one of those in doubt.
    if (!succeeded && put) this.#inDoubt--;
    this.#created = succeeded ? header.revision : (put?.createRevision ?? 0n);
    const [kv] = open?.kvs ?? [];
    this.#view = { waiters: (all?.kvs ?? []).map(waiterOf), ready: kv && seenKey(kv) };
  }

  /** Whether it waits for the same number. A Go client doesn't say. */
  #counts(kv: SeenKey): boolean {
    return (membersIn(kv) ?? this.count) === this.count;
  }

  /** `isFirst`: the view is that of its own put, or a later one. */
  async #judge(rejects: boolean, isFirst: boolean): Promise<Entered> {
    const own = this.#created;
    const { waiters, ready } = this.#view;
    if (ready && this.#isIn(ready)) return this.#entered(ready);
    const older = waiters.filter(({ createRevision }) => createRevision < own);
    const isOpen = ready && waiters.some(({ createRevision }) => createRevision < ready.modRevision);
    const there = waiters.filter((kv) => this.#counts(kv));
    const isFull =
      there.length > this.count && !there.slice(0, this.count).some((kv) => kv.createRevision === own);
    const other = isFirst
      ? older.map(membersIn).find((members) => members !== undefined && members !== this.count)
      : undefined;
    const refusal =
      other !== undefined
        ? new CountMismatchError(this.name, this.count, other)
        : isOpen || (isFirst && isFull)
          ? new BarrierFullError(this.name, this.count)
          : undefined;
    if (refusal) return this.#withdrawn(refusal);
    if (!waiters.some(({ createRevision }) => createRevision === own)) return this.#keyIsGone("enter");
    const present = new Set(there.map(({ createRevision }) => createRevision));
    const missing = [...this.#seen].filter(([revision]) => !present.has(revision));
    for (const [revision] of missing) this.#seen.delete(revision);
    const firsts = there.slice(0, this.count);
    for (const kv of firsts) this.#seen.set(kv.createRevision, kv);
    if (missing.length > 0 && rejects) {
      const dead = await this.#deadAmong(missing.map(([, kv]) => kv));
      if (dead.length > 0) return this.#withdrawn(new BarrierBrokenError(this.name, "enter", dead));
    }
    if (firsts.length === this.count && firsts.at(-1)?.createRevision === own)
      return this.#open(firsts, ready);
    return undefined;
  }

  #isIn(ready: SeenKey): boolean {
    if (ready.modRevision <= this.#created) return false;
    return admitted(ready)?.has(this.#created) ?? this.#olderThan(this.#created) < this.count;
  }

  #olderThan(revision: bigint): number {
    return this.#view.waiters.filter(({ createRevision }) => createRevision < revision).length;
  }

  #entered(ready: SeenKey): "entered" {
    const firsts = this.#view.waiters
      .filter(({ createRevision }) => createRevision < ready.modRevision)
      .slice(0, this.count)
      .map(({ createRevision }) => createRevision);
    this.#members = admitted(ready) ?? new Set([...this.#seen.keys(), ...firsts, this.#created]);
    return "entered";
  }

  async #keyIsGone(phase: "enter" | "leave"): Promise<Error> {
    // Most likely with the lease, of which etcd knows first.
    await this.#lease.renewNow();
    return new BarrierBrokenError(this.name, phase, [this.#lease.owner], ": its key was deleted");
  }

  /** The owners of those whose sessions have ended: the others have left. A Go member does not leave before it has entered. */
  async #deadAmong(missing: readonly SeenKey[]): Promise<(string | undefined)[]> {
    const records = await this.#records();
    return missing.flatMap((kv) => {
      if (membersIn(kv) === undefined) return [undefined];
      return records.has(kv.createRevision) ? [ownerIn(kv)] : [];
    });
  }

  /** By the create revisions of the members that they are of. */
  async #records(): Promise<ReadonlyMap<bigint, SeenKey>> {
    const { services } = this.#lease;
    const range = { ...this.#keys.records, order: "newest first", limit: MAX_READ } as const;
    const policy = this.#lease.policy(`look for the members of the barrier "${this.name}"`);
    const { kvs } = await services.client.range(range, policy);
    return new Map(kvs.filter((kv) => !hasLeft(kv)).map((kv) => [kv.createRevision, seenKey(kv)]));
  }

  /** All members are there: opens the barrier, if they still are. undefined: one of them is not. */
  async #open(firsts: readonly Waiter[], stale: SeenKey | undefined): Promise<Entered> {
    const { services } = this.#lease;
    const revisions = firsts.map(({ createRevision }) => createRevision);
    const value = JSON.stringify({ members: revisions.map(String) });
    const key = this.#keys.ready;
    const txn: Txn = {
      queues: [this.#keys.queue],
      compare: [
        readyIs(key, stale),
        ...firsts.map((kv) => ({ kind: "created at", key: kv.key, revision: kv.createRevision }) as const),
      ],
      success: [{ kind: "put", key, value, leaseId: 0n }],
      failure: [{ kind: "range", key }],
    };
    const { succeeded, ranges } = await services.client.txn(
      txn,
      this.#lease.policy(`open the barrier "${this.name}"`),
    );
    const [kv] = ranges[0]?.kvs ?? [];
    if (succeeded) {
      this.#members = new Set(revisions);
      return "entered";
    }
    // An attempt whose answer was lost.
    return kv && this.#isIn(seenKey(kv)) ? this.#entered(seenKey(kv)) : undefined;
  }

  /** Takes it back before the barrier opens; if it has opened meanwhile, this member is inside. `goOut` follows an error. */
  async #withdrawn(error: Error): Promise<Entered> {
    const what = `leave the barrier "${this.name}"`;
    const [key, ready] = [this.#key, this.#keys.ready];
    for (let { ready: last } = this.#view; ;) {
      const { succeeded, ranges } = await this.#remove(what, (success) => ({
        queues: [this.#keys.queue],
        compare: [readyIs(ready, last), { kind: "created at", key, revision: this.#created }],
        success,
        failure: [
          { kind: "range", key: ready },
          { kind: "range", key },
        ],
      }));
      const [open, own] = ranges.map((range) => range?.kvs[0]);
      // Where an earlier attempt has deleted it, a late one may have put it anew.
      if (succeeded || own?.createRevision !== this.#created) return error;
      last = open && seenKey(open);
      if (last && this.#isIn(last)) return this.#entered(last);
    }
  }

  #removeAgain(what: string): Promise<unknown> {
    return this.#remove(what, (success) => ({
      queues: [this.#keys.queue],
      compare: [],
      success,
      failure: [],
    }));
  }

  /** A transaction that removes the keys of this member, and marks it if it can: a full etcd deletes, but stores no mark. */
  async #remove(what: string, txn: (removals: Txn["success"]) => Txn): Promise<TxnAnswer> {
    const { services, signal } = this.#lease;
    if (this.#inDoubt > 0)
      try {
        return await this.#mark(what, txn);
      } catch {
        signal.throwIfAborted();
      }
    const removals = [this.#key, this.#record].map((key) => ({ kind: "delete", key }) as const);
    return services.client.txn(txn(removals), { ...this.#lease.policy(what), untilConfirmed: true });
  }

  /** The same with a mark in the place of its record, which lets no late attempt put its keys. */
  async #mark(what: string, txn: (removals: Txn["success"]) => Txn): Promise<TxnAnswer> {
    const { services, signal } = this.#lease;
    const policy = { ...this.#lease.policy(what), onLeaseGone: undefined };
    const removal = { kind: "delete", key: this.#key } as const;
    const answer = await withLongLease(services, ATTEMPTS, { what, signal }, (leaseId) =>
      services.client.txn(txn([removal, { kind: "put", key: this.#record, value: LEFT, leaseId }]), policy),
    );
    if (answer.succeeded) this.#isMarked = true;
    return answer;
  }

  /** Repeated until etcd has confirmed it, or the session is over: then no attempt puts anything. It takes back what one has put meanwhile. */
  #markLater(what: string): Promise<unknown> {
    const { services, signal } = this.#lease;
    const { queue } = this.#keys;
    const mark = () =>
      this.#mark(what, (success) => ({ queues: [queue], compare: [], success, failure: [] }));
    const failed = (): void => signal.throwIfAborted();
    return retry(mark, { clock: services.clock, signal, failed });
  }

  /** Deletes the keys of this member, and the open state behind those of the last one. Resolves with the members that are still there. */
  goOut(): Promise<readonly SeenKey[]> {
    const leaving = this.#lease.inFlight.track(this.#goOut());
    return (this.#leaving = leaving.finally(() => this.#lease.waits.delete(this.#user)));
  }

  /** Settles when etcd has confirmed that, or the session is over; undefined before the call of `goOut`. */
  get leaving(): Promise<unknown> | undefined {
    return this.#leaving;
  }

  async #goOut(): Promise<readonly SeenKey[]> {
    await this.#putting.catch(() => undefined);
    const what = `leave the barrier "${this.name}"`;
    const others = await this.#delete(what);
    // Nobody waits for it, as etcd may be full for long.
    if (this.#inDoubt > 0 && !this.#isMarked)
      inOwnContext(() => this.#lease.inFlight.track(this.#markLater(what))).catch(() => undefined);
    // A proxy may send again what was answered.
    else if (this.#created !== 0n && !this.#isMarked)
      this.#lease.sweeper.left(this.#key, false, () => this.#removeAgain(what));
    return others;
  }

  async #delete(what: string): Promise<readonly SeenKey[]> {
    const { client } = this.#lease.services;
    const { queue, ready: key, waiters } = this.#keys;
    if (this.#created === 0n) {
      // Its put was refused, or its answer is lost: no other key has this name.
      if (this.#inDoubt > 0) await this.#removeAgain(what);
      return [];
    }
    const after = [
      { kind: "range", ...waiters, order: "oldest first", limit: MAX_READ },
      { kind: "range", key },
    ] as const;
    const answer = await this.#remove(what, (removals) => ({
      queues: [queue],
      compare: [{ kind: "created at", key: this.#key, revision: this.#created }],
      success: [...removals, ...after],
      failure: [...after, { kind: "range", key: this.#record }],
    }));
    const [others, open, record] = answer.ranges.filter((range) => range !== undefined);
    // With an earlier attempt, its record would be gone, or would say so, or would be that of a late put.
    if (record?.kvs.some((kv) => !hasLeft(kv) && kv.createRevision === this.#created))
      throw await this.#keyIsGone("leave");
    const [ready] = open?.kvs ?? [];
    if (ready && others?.kvs.length === 0) {
      const policy = { ...this.#lease.policy(what), untilConfirmed: true };
      const compare = [readyIs(key, ready), { kind: "nothing in", ...waiters }] as const;
      await client.txn({ queues: [queue], compare, success: [{ kind: "delete", key }], failure: [] }, policy);
    }
    return (others?.kvs ?? []).map(seenKey);
  }

  async leave({ rejects, ...wait }: CheckedWait & { readonly rejects: boolean }): Promise<void> {
    const { services } = this.#lease;
    const what = `leave the barrier "${this.name}"`;
    const stop = new AbortController();
    let left = this.#members.size - 1;
    const leaving = this.#leave(what, stop.signal, (others) => (left = others));
    const records = await settleWithin(leaving, wait, services, {
      onTimeout: () =>
        timedOut(
          services,
          { name: this.name, what, timeoutMs: wait.timeoutMs ?? 0 },
          `${left} of ${this.count} members have not left`,
        ),
      onGiveUp: () => stop.abort(),
    });
    const dead = [...records].filter(([revision]) => this.#members.has(revision));
    if (rejects && dead.length > 0)
      throw new BarrierBrokenError(
        this.name,
        "leave",
        dead.map(([, kv]) => ownerIn(kv)),
      );
  }

  /** Resolves with the records that are left when all members have gone. */
  async #leave(
    what: string,
    stop: AbortSignal,
    tell: (others: number) => void,
  ): Promise<ReadonlyMap<bigint, SeenKey>> {
    const { services, signal } = this.#lease;
    const count = (kvs: readonly SeenKey[]): number =>
      kvs.filter(({ createRevision }) => this.#members.has(createRevision)).length;
    const others = count(await this.goOut());
    tell(others);
    if (others > 0)
      await untilKeys<void>(
        { services, range: this.#keys.waiters, name: this.name, what, ends: [signal, stop] },
        ({ keys }, { resolve }) => {
          const there = count([...keys.values()]);
          tell(there);
          if (there === 0) resolve();
        },
        { signal: undefined, timeoutMs: undefined },
        { missing: () => "" },
      );
    return this.#records();
  }
}
