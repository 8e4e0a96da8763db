// Shards: each has one owner among the members of a group. Every member computes from one watch who should own what (`rule.ts`), and does
// its own part: it joins the queues of the shards that should be its own, and lets go of those for which another member stands in the
// queue. There is no leader and no assigner, and a wrong view makes a useless move at most: the lock of a shard decides who owns it.
import { SessionClosedError, ShardCountError } from "../../errors.js";
import { Backoff, type Pauses, retry } from "../../etcd/retry.js";
import type { KeyValue } from "../../etcd/port.js";
import { checkFunction, checkSignal } from "../../base/options/check.js";
import { shardChannel } from "../../base/telemetry/channels.js";
import { newController } from "../../base/util/abort.js";
import type { Timer } from "../../base/util/clock.js";
import { inOwnContext, inThisContext, queueMicrotask, tellOutside } from "../../base/util/own-context.js";
import { printable } from "../../base/util/printable.js";
import { type Cluster, leaseOf, servicesOf, Session } from "../../lock/session/cluster.js";
import type { EtcdServices } from "../../lock/session/connection.js";
import type { Dependent, Lease } from "../../lock/session/lease.js";
import { type Member, type MemberFacts, MemberKey, type MembershipState } from "../members/member.js";
import { type CheckedShards, checkShards, type ShardsOptions } from "./options.js";
import { OwnShard, type Shard, type ShardHost } from "./own-shard.js";
import { type ShardMap, ShardMapHandle } from "./routing.js";
import { RULE } from "./rule.js";
import { shardMemberOf, ShardView } from "./view.js";

/** So long a member leaves a shard to others after its work has failed there. */
const DECLINE_MS = 60_000;
/** The group is told together of all shards that a member declines within so long. */
const TOGETHER_MS = 100;
/** So many shards move together at most, and the next ones so long after them. */
const MOST_TOGETHER = 8;
const MOVE_EVERY_MS = 10;
/** The first one waits for so long: one before which none has wanted to move for twice that time. */
const FIRST_MOVE_MS = 50;
const PAUSES: Pauses = { firstMs: 1000, maxMs: 30_000, factors: [0.75, 1.25] };

/** The shards of a group, and this process as a member of it. */
export interface Shards extends ShardMap {
  /** The shards whose locks this member has, as far as it knows, and whose work has not been told to stop. */
  readonly owned: readonly number[];
  /**
   * Leaves the group: each shard goes to its next owner as soon as its work has settled. What nobody has taken after `drainMs` is
   * let go. Resolves when all work has settled, and the session is closed. Idempotent.
   */
  close(): Promise<void>;
}

/**
 * Joins a group of workers that share out `count` shards, and runs `work` for each shard that this member owns. Each shard has one owner
 * at a time, by the lock `name/shard/<id>`. Owners change when members come and go, and each has a higher fence than the one before. When
 * a shard moves, the next owner already stands in the queue of the lock: `shard.signal` aborts, the work settles, and the release makes
 * the next one the owner. Work that returns earlier has nothing more to do: the shard stays this member's. Work that throws runs again
 * after a pause (1 s, doubling to 30 s); after three failures, another member takes the shard. After a lost lock or session, the work is
 * awaited before this member works on the same shard again.
 *
 * The session is one of its own, with the options of `connect({ session })` where its own ones are not set. It is opened again when it is
 * lost, until `close()`, `signal` or `cluster.close()` ends it. `cluster.close()` and `untilShutdown` hand the shards over, too: give them a
 * `drainMs` that is longer than that of the shards. Resolves when this process is a member, before it owns anything.
 *
 * On abort of `signal`: before it has resolved, rejects with the signal's reason; afterwards the same as `close()`.
 * @throws {ShardCountError} if other members have another number of shards, and `migrate` doesn't name it.
 * @throws {EtcdUnavailableError} when no member of etcd answers in time. @throws {EtcdRefusedError} when etcd rejects a request.
 * @throws {SessionLostError} when the lease ends before its key is there.
 * @throws {SessionClosedError} when the cluster is closed. @throws {TypeError | RangeError} on bad arguments.
 */
// eslint-disable-next-line max-params -- public: `work` comes last, as the longest argument
export async function shards(
  cluster: Cluster,
  name: string,
  options: ShardsOptions,
  work: (shard: Shard) => unknown,
): Promise<Shards> {
  const services = servicesOf(cluster);
  const checked = checkShards(services, name, options);
  checkFunction("work", work);
  const signal = checkSignal(options.signal);
  signal?.throwIfAborted();
  services.closed.throwIfAborted();
  const group = new ShardGroup(cluster, checked, work);
  const stops = [signal, services.closed].map((each) => services.aborts.add(each, () => void group.close()));
  try {
    await group.begin();
  } catch (error) {
    for (const stop of stops) stop();
    void group.close();
    signal?.throwIfAborted();
    services.closed.throwIfAborted();
    throw error;
  }
  void group.ended.then(() => stops.forEach((stop) => stop()));
  return new ShardsHandle(group);
}

class ShardsHandle extends ShardMapHandle implements Shards {
  readonly #group: ShardGroup;

  constructor(group: ShardGroup) {
    super(group.view);
    this.#group = group;
  }

  /** Its own, also while another number is in force. */
  override get count(): number {
    return this.#group.options.count;
  }

  get owned(): readonly number[] {
    return this.#group.owned;
  }

  override close(): Promise<void> {
    return this.#group.close();
  }
}

/** This member, while its session lives. */
interface Place {
  readonly session: Session;
  readonly lease: Lease;
  readonly key: MemberKey;
  readonly dependent: Dependent;
}

class ShardGroup {
  readonly view: ShardView;
  readonly ended: Promise<void>;
  readonly #services: EtcdServices;
  readonly #inContext = inThisContext();
  readonly #own = new Map<number, OwnShard>();
  /** Those whose lock could not be had, until the next try. */
  readonly #pausing = new Map<number, Timer>();
  readonly #backoffs = new Map<number, Backoff>();
  /** Those whose work has failed here, until their time is over. */
  readonly #declined = new Map<number, Timer>();
  readonly #closing = newController();
  #place: Place | undefined;
  /** The last session of this member. It may have no place yet, or none any more. */
  #session: Session | undefined;
  #state: MembershipState = "joining";
  /** The revision that it had seen when it had settled. */
  #admits = 0n;
  #settling: Timer | undefined;
  /** The group has not been told, and is as soon as this is over. */
  #sayingLater: Timer | undefined;
  #reconciling: Timer | undefined;
  /** How many shards move between two pauses, and how many still may before the next one. */
  #together = 1;
  #movesLeft = 0;
  /** When one should have moved, the last time. */
  #wantedAt = -Infinity;
  #pacing: Timer | undefined;
  /** A pause has ended, and nothing has moved since. */
  #paced = false;
  #end: () => void = () => undefined;
  #closed: Promise<void> | undefined;
  #drained: (() => void) | undefined;

  constructor(
    private readonly cluster: Cluster,
    readonly options: CheckedShards,
    private readonly work: (shard: Shard) => unknown,
  ) {
    this.#services = servicesOf(cluster);
    this.view = new ShardView(this.#services, options.name, (error, delayMs) =>
      this.#retried(error, delayMs),
    );
    this.ended = new Promise((resolve) => (this.#end = resolve));
  }

  get owned(): readonly number[] {
    return [...this.#own.values()].filter(({ held }) => held).map(({ id }) => id);
  }

  /** Resolves when it is a member. */
  async begin(): Promise<void> {
    await Promise.all([this.#join(), this.view.ready]);
    this.view.listen(() => this.#reconcileSoon());
    inOwnContext(() => this.#reconcileSoon());
  }

  /** Opens a session, and puts the key of the member on its lease. */
  async #join(): Promise<void> {
    const { name, session: options, settleMs } = this.options;
    const { signal } = this.#closing;
    const session = (this.#session = await Session.open(this.cluster, { ...options, signal }));
    const lease = leaseOf(session);
    const dependent: Dependent = { sessionEnded: () => this.#sessionEnded(place) };
    const place: Place = { session, lease, key: new MemberKey(lease, name), dependent };
    lease.waits.add(dependent);
    try {
      signal.throwIfAborted();
      this.#state = settleMs > 0 ? "joining" : "active";
      this.#admits = 0n;
      await this.#put(place);
      signal.throwIfAborted();
    } catch (error) {
      lease.waits.delete(dependent);
      void session.close({ drainMs: 0 });
      throw error;
    }
    this.#place = place;
    if (lease.signal.aborted) this.#sessionEnded(place);
    else if (settleMs > 0)
      this.#settling = this.#services.clock.after(settleMs, () => {
        if (this.#place !== place || this.#state !== "joining") return;
        this.#admits = this.view.revision;
        this.#say("active");
      });
  }

  async #put(place: Place): Promise<void> {
    const { options } = this;
    const { owner } = place.lease;
    const { id = owner, value = owner, capacity, zone, count, migrate } = options;
    const declines = [...this.#declined.keys()];
    const facts: MemberFacts = {
      ...{ id, value, capacity, zone, state: this.#state },
      shards: { count, rule: RULE, declines, admits: this.#admits.toString() },
    };
    const all = await place.key.put(facts);
    const found = countsBefore(place.key.created, all).find((each) => each !== count && each !== migrate);
    if (found !== undefined) throw new ShardCountError(options.name, count, found);
  }

  /** Tells the group. A request that etcd refuses is repeated after a pause. */
  #say(state = this.#state): void {
    this.#state = state;
    this.#sayingLater?.cancel();
    this.#sayingLater = undefined;
    const place = this.#place;
    if (!place) return;
    this.#put(place).then(
      // What the group was shown meanwhile was not compared with it.
      () => this.#reconcileSoon(),
      (error: unknown) => this.#notSaid(place, error),
    );
  }

  #notSaid(place: Place, error: unknown): void {
    const isOutnumbered = error instanceof ShardCountError;
    if (!isOutnumbered && place.lease.over) return;
    this.#retried(error, PAUSES.firstMs);
    // The members of another number of shards were there first, while this one was away.
    if (isOutnumbered) void place.session.close({ drainMs: 0 });
    else this.#sayLater(PAUSES.firstMs);
    const isAlone = this.view.members.length === 1 && this.view.memberOf(place.lease.leaseId) !== undefined;
    // Nobody is there to be told, or to wait for.
    if (this.#closing.signal.aborted && isAlone) this.#letAllGo();
  }

  /** Tells the group after a pause: what changes until then is told with it. */
  #sayLater(delayMs: number): void {
    this.#sayingLater ??= this.#services.clock.after(delayMs, () => this.#say());
  }

  #sessionEnded(place: Place): void {
    if (this.#place !== place) return;
    // A close waits for the holds, so the shards can still be handed over.
    if (this.#closing.signal.aborted) return;
    this.#place = undefined;
    this.#settling?.cancel();
    inOwnContext(() => void this.#rejoin(place));
  }

  async #rejoin({ session }: Place): Promise<void> {
    void session.close({ drainMs: 0 });
    const { clock } = this.#services;
    const { signal } = this.#closing;
    const joining = retry(() => this.#join(), {
      ...{ clock, signal, backoff: new Backoff(clock, PAUSES) },
      failed: () => signal.throwIfAborted(),
      pausing: (error, delayMs) => this.#retried(error, delayMs),
    });
    // It rejects only when this member closes.
    await joining.then(
      () => this.#reconcileSoon(),
      () => undefined,
    );
  }

  #reconcileSoon(): void {
    this.#reconciling ??= this.#services.clock.afterPendingEvents(() => {
      this.#reconciling = undefined;
      this.#reconcile();
    });
  }

  /** Does this member's part of the plan. */
  #reconcile(): void {
    const place = this.#place;
    if (!place || place.lease.signal.aborted) return;
    const { leaseId } = place.lease;
    const { claimants, targets } = this.view.plan;
    if (!this.#sayingLater && !this.#isShown(place)) this.#say();
    const own = claimants.findIndex(({ member }) => member.leaseId === leaseId);
    for (let id = 0; id < this.options.count; id++) {
      const target = targets[id] ?? -1;
      if (own !== -1 && target === own && !this.#closing.signal.aborted) this.#take(id, place);
      else this.#letGo(id, claimants[target]?.member, place);
    }
  }

  /** False: somebody has deleted its key, and a put that was sent before may have come after that, with what it said then. */
  #isShown({ key }: Place): boolean {
    if (key.putting || this.view.revision < key.modified) return true;
    return this.view.shows(key.key, key.modified);
  }

  #take(id: number, { lease }: Place): void {
    const own = this.#own.get(id);
    if (own && !this.#declined.has(id)) own.resume();
    if (own || this.#pausing.has(id)) return;
    this.#own.set(id, new OwnShard(id, this.#hostFor(lease)));
  }

  /** The place of an owner is left only when another member stands behind it: otherwise, the shard would be free for a moment. */
  #letGo(id: number, to: Member | undefined, { lease }: Place): void {
    const own = this.#own.get(id);
    if (!own) return;
    const queue = this.view.queue(id);
    const { fence } = own;
    // The view may lag, and still show an entry that we have lost.
    const place = queue.findLastIndex(
      ({ leaseId, createRevision }) =>
        leaseId === lease.leaseId && (fence === undefined || createRevision === fence),
    );
    // A join that was sent twice may have left another entry of this member.
    const next = queue.find(
      ({ leaseId }, n) => n > place && leaseId !== lease.leaseId && this.view.memberOf(leaseId) !== undefined,
    );
    if (place !== -1 && next) this.#move(own, this.view.memberOf(next.leaseId)?.member.id);
    // The group knows that this member leaves, and nobody is there who could take it. If the view doesn't show this member, all may be there.
    else if (to === undefined && this.view.memberOf(lease.leaseId)?.member.state === "draining")
      this.#move(own, undefined);
    // Whoever should have it stands before us, and gets it, or keeps it.
    else if (queue.some(({ leaseId }, n) => n < place && leaseId === to?.leaseId)) own.unwanted();
  }

  #letAllGo(): void {
    for (const own of this.#own.values()) {
      own.unwanted();
      own.move(undefined);
    }
  }

  #move(own: OwnShard, to: string | undefined): void {
    own.unwanted();
    if (own.state === "owned" && this.#mayMove()) own.move(to);
  }

  /**
   * A few together, as each is without work for as long as the hand-over of all that move with it takes. None at once: a member that has just
   * joined many queues is too busy to take over. And the first ones alone, as in a new process this code has never run.
   */
  #mayMove(): boolean {
    const { clock } = this.#services;
    const since = this.#wantedAt;
    this.#wantedAt = clock.monotonic();
    // However late a busy process comes to it: the moves that a pause has let go are no first ones.
    const isFirst = !this.#paced && this.#wantedAt > since + 2 * FIRST_MOVE_MS;
    this.#paced = false;
    if (isFirst) this.#movesLeft = 0;
    if (this.#movesLeft > 0) {
      this.#movesLeft--;
      return true;
    }
    this.#pacing ??= clock.pace(isFirst ? FIRST_MOVE_MS : MOVE_EVERY_MS, () => {
      this.#pacing = undefined;
      this.#paced = true;
      this.#together = isFirst ? 1 : Math.min(2 * this.#together, MOST_TOGETHER);
      this.#movesLeft = this.#together;
      this.#reconcileSoon();
    });
    return false;
  }

  #hostFor(lease: Lease): ShardHost {
    const { name, drainMs, lock } = this.options;
    const { onStuck, onFailed } = this.options.listeners;
    const closing = this.#closing.signal;
    return {
      ...{ name, drainMs, lock, work: this.work, inContext: this.#inContext, source: lease.source },
      get isLeaving() {
        return closing.aborted;
      },
      entryValue: (id) => this.#entryValue(id, lease),
      retried: (error, delayMs, id) => this.#retried(error, delayMs, id),
      declined: (id, error) => {
        if (onFailed) tell(() => onFailed(id, error));
        else if (!shardChannel.hasSubscribers)
          this.#warn(`The work on shard ${id} of "${name}" fails`, error);
        this.#decline(id);
      },
      stuck: (id, forMs) => {
        if (onStuck) tell(() => onStuck(id, forMs));
        else if (!shardChannel.hasSubscribers)
          this.#warn(`The work on shard ${id} of "${name}" has not settled ${forMs} ms after its signal`);
      },
      changed: () => this.#reconcileSoon(),
      ended: (own, error) => this.#shardEnded(own, error, lease),
    };
  }

  /**
   * The value of an entry: as every lock's, and the home of the shard. That is this member, unless the one before is not there any more: then
   * that one finds its shard again when it returns.
   */
  #entryValue(id: number, lease: Lease): string {
    const { clock } = this.#services;
    const { owner } = lease;
    const { id: own = owner } = this.options;
    const { claimants } = this.view.plan;
    const isTaken = this.view
      .queue(id)
      .some(({ leaseId }) => claimants.some(({ member }) => member.leaseId === leaseId));
    const last = this.view.homeOf(id);
    const isThere = last === undefined || claimants.some(({ member }) => member.id === last);
    const home = isTaken || isThere ? own : last;
    return JSON.stringify({
      owner,
      since: clock.date().toISOString(),
      id: clock.randomId().toString(36),
      home,
    });
  }

  #shardEnded(own: OwnShard, error: unknown, lease: Lease): void {
    const { id } = own;
    this.#own.delete(id);
    if (error !== undefined && !lease.over && !this.#closing.signal.aborted) {
      const backoff = this.#backoffs.get(id) ?? new Backoff(this.#services.clock, PAUSES);
      this.#backoffs.set(id, backoff);
      const delayMs = backoff.nextMs();
      this.#retried(error, delayMs, id);
      const again = (): void => {
        this.#pausing.delete(id);
        this.#reconcileSoon();
      };
      this.#pausing.set(id, this.#services.clock.after(delayMs, again));
    } else this.#backoffs.delete(id);
    if (!this.#closing.signal.aborted) this.#replaceUnfit();
    else if (this.#own.size === 0) this.#drained?.();
    this.#reconcileSoon();
  }

  /** A session that can join no more queues has another one take its place, as soon as its shards are handed over. */
  #replaceUnfit(): void {
    const place = this.#place;
    if (!place?.lease.unfit) return;
    if (this.#own.size === 0) void place.session.close({ drainMs: 0 });
    else if (this.#state !== "draining") this.#say("draining");
  }

  /** Its key tells the others. */
  #decline(id: number): void {
    const again = (): void => {
      this.#declined.delete(id);
      this.#sayLater(TOGETHER_MS);
      this.#reconcileSoon();
    };
    this.#declined.get(id)?.cancel();
    this.#declined.set(id, this.#services.clock.after(DECLINE_MS, again));
    this.#sayLater(TOGETHER_MS);
  }

  #retried(error: unknown, delayMs: number, id?: number): void {
    const { onRetry } = this.options.listeners;
    if (onRetry) tell(() => onRetry(error, delayMs, id));
    else if (id !== undefined) this.#warn(`Shard ${id} of "${this.options.name}" is tried again`, error);
    else this.#warn(`A member of "${this.options.name}" tries again`, error);
  }

  /** Nothing else shows it. */
  #warn(what: string, error?: unknown): void {
    const why = error instanceof Error ? `: ${error.message}` : "";
    process.emitWarning(printable(`${what}${why}`, MAX_WARNING), {
      type: "LeaseholdWarning",
      code: "SHARDS",
    });
  }

  close(): Promise<void> {
    return (this.#closed ??= inOwnContext(() => this.#close()));
  }

  async #close(): Promise<void> {
    const { clock } = this.#services;
    this.#closing.abort(new SessionClosedError(this.#place?.lease.leaseId ?? 0n));
    this.#settling?.cancel();
    // Its join is not answered yet, and may never be.
    if (!this.#place) void this.#session?.close({ drainMs: 0 });
    if (this.#own.size > 0) {
      const drained = new Promise<void>((resolve) => (this.#drained = resolve));
      this.#say("draining");
      const timer = clock.after(this.options.drainMs, () => this.#letAllGo());
      // The session ends these by itself.
      if (!this.#place) this.#letAllGo();
      this.#reconcileSoon();
      await drained;
      timer.cancel();
    }
    this.view.stop();
    // Work may fail until here.
    for (const timers of [this.#pausing, this.#declined]) for (const timer of timers.values()) timer.cancel();
    this.#reconciling?.cancel();
    this.#pacing?.cancel();
    this.#sayingLater?.cancel();
    this.#place = undefined;
    // No hold is left to wait for.
    await this.#session?.close({ drainMs: 0 });
    this.#end();
  }
}

const MAX_WARNING = 500;

/** What a listener throws goes to the process, and ends nothing of what has called it. */
const tell = (listener: () => void): void => queueMicrotask(() => tellOutside(listener));

/** The numbers of shards of the members that have joined before that revision. */
function countsBefore(created: bigint, kvs: readonly KeyValue[]): readonly number[] {
  const members = kvs.flatMap((kv) => shardMemberOf(kv) ?? []);
  return members.filter(({ member }) => member.revision < created).map(({ count }) => count);
}
