// What etcd shows of a group of shards, by one watch: its members, and the queue of each shard.
import { SessionClosedError } from "../../errors.js";
import type { KeyValue } from "../../etcd/port.js";
import { keyText } from "../../etcd/watch.js";
import { parseEntryValue, pathOf, prefixEnd, prefixOf } from "../../keys.js";
import { withJson } from "../../base/telemetry/publish.js";
import type { Timer } from "../../base/util/clock.js";
import { inOwnContext } from "../../base/util/own-context.js";
import type { EtcdServices } from "../../lock/session/connection.js";
import { SeenEntry } from "../../lock/queue/seen-entry.js";
import { Feed, type QueueChange, QueueWatch } from "../../observe/queue-watch.js";
import { type Member, membersPath, parseMember } from "../members/member.js";
import { assign, RULE, type ShardFacts } from "./rule.js";

export const MAX_COUNT = 4096;

/** What the key of a member says of its shards. */
export interface ShardPart {
  readonly count: number;
  /** The highest rule that it knows. */
  readonly rule: number;
  readonly declines: readonly number[];
  /** When it had settled, it has seen this revision: the members that had joined by then take their shares with it. */
  readonly admits: bigint;
}

/** A member that has shards, or is about to. */
export interface ShardMember extends ShardPart {
  readonly member: Member;
}

function parseShardPart(value: unknown): ShardPart | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { count, rule, declines, admits } = value as Record<string, unknown>;
  const isCount = typeof count === "number" && Number.isInteger(count) && count >= 1 && count <= MAX_COUNT;
  if (!isCount || typeof rule !== "number" || !Array.isArray(declines)) return undefined;
  const isShard = (n: unknown): n is number => Number.isInteger(n);
  const isRevision = typeof admits === "string" && /^\d{1,19}$/.test(admits);
  const known = { count, rule, admits: isRevision ? BigInt(admits) : 0n };
  return { ...known, declines: declines.slice(0, MAX_COUNT).filter(isShard) };
}

export function shardMemberOf(kv: KeyValue): ShardMember | undefined {
  const parsed = parseMember(kv);
  const part = parsed && parseShardPart(parsed.shards);
  return part && { ...part, member: parsed.member };
}

/** The name of the lock of a shard. */
export const shardName = (name: string, id: number): string => `${name}/shard/${id}`;

/** An entry in the queue of a shard. */
export interface ShardEntry extends Pick<SeenEntry, "leaseId" | "createRevision" | "isDelay" | "owner"> {
  readonly key: string;
  readonly home: string | undefined;
}

/** What is kept of a key. */
interface SeenKey extends Pick<KeyValue, "createRevision" | "modRevision"> {
  readonly member?: ShardMember | undefined;
  readonly entry?: ShardEntry;
}

/** Who owns a shard. */
export interface ShardOwner {
  readonly shard: number;
  /** The fence of its lock: what the owner writes is valid up to the next one's, which is higher. */
  readonly fence: bigint;
  /** The `id` and `value` of the member; undefined if whoever has the lock is no member, such as `etcdctl lock`. */
  readonly id: string | undefined;
  readonly value: string | undefined;
  readonly leaseId: bigint;
}

/** The owners at one revision of etcd. */
export interface ShardOwners {
  readonly revision: bigint;
  /** By shard. undefined: nobody owns it. */
  readonly owners: readonly (ShardOwner | undefined)[];
}

/** What each member should own, by one revision. */
export interface Plan {
  /** In the order of their joins. */
  readonly claimants: readonly ShardMember[];
  /** By shard, an index into `claimants`; -1: nobody. */
  readonly targets: Int32Array;
}

/** There may be thousands of keys. An event that is missed delays a move, and no lock depends on it. */
const SLOW_READ_MS = 60_000;

/** A plan, and what it was made of. */
interface Planned {
  readonly plan: Plan;
  /** Of the claimants, by lease. */
  readonly index: ReadonlyMap<bigint, number>;
  readonly facts: readonly ShardFacts[];
}

const AGAIN_MS = 5000;
const NO_ENTRIES: readonly ShardEntry[] = [];
const SHARD = /^(0|[1-9]\d{0,3})$/;

export class ShardView {
  /** In the order of their joins. */
  members: readonly ShardMember[] = [];
  revision = 0n;
  readonly #queues = new Map<number, readonly ShardEntry[]>();
  /** For whom each shard was last meant. */
  readonly #homes = new Map<number, string>();
  readonly #byLease = new Map<bigint, ShardMember>();
  /** The modification revisions of all members' keys. */
  #keys: ReadonlyMap<string, bigint> = new Map();
  readonly #listeners = new Set<() => void>();
  /** How to end those who iterate over the owners. */
  readonly #feeds = new Set<(error: Error) => void>();
  #watch: QueueWatch<SeenKey> | undefined;
  #again: Timer | undefined;
  /** Why nothing is seen any more. */
  #closed: Error | undefined;
  readonly #membersPrefix: string;
  readonly #shardsPrefix: string;
  #planned: Planned | undefined;
  #settle: { readonly resolve: () => void; readonly reject: (error: Error) => void } | undefined;
  /** Resolves with the first answer; rejects if etcd refuses to show the keys. */
  readonly ready: Promise<void>;

  /** `onRetry`: etcd has refused to show the keys, and is asked again after so many milliseconds. */
  constructor(
    private readonly services: EtcdServices,
    readonly name: string,
    private readonly onRetry: (error: Error, delayMs: number) => void,
  ) {
    this.#membersPrefix = keyText(prefixOf(membersPath(services, name)));
    this.#shardsPrefix = keyText(`${pathOf(services, name)}/shard/`);
    this.ready = new Promise((resolve, reject) => (this.#settle = { resolve, reject }));
    this.ready.catch(() => undefined);
    inOwnContext(() => this.#begin());
  }

  stop(): void {
    this.#watch?.stop();
    this.#again?.cancel();
    this.#listeners.clear();
    const closed = new SessionClosedError(0n);
    this.#closed = closed;
    this.#settle?.reject(closed);
    for (const failed of this.#feeds) failed(closed);
  }

  #begin(): void {
    const { services, name } = this;
    const range = {
      key: prefixOf(membersPath(services, name)),
      end: prefixEnd(`${pathOf(services, name)}/shard/`),
    };
    let isFirst = true;
    this.#watch = new QueueWatch<SeenKey>(
      {
        services,
        range,
        what: `observe the shards of "${name}"`,
        isShared: true,
        slowReadMs: SLOW_READ_MS,
        keep: (kv) => this.#keep(kv),
      },
      {
        changed: (change) => {
          // Its first read shows all that is there. What an earlier watch has shown may have gone since.
          if (isFirst) this.#forget();
          isFirst = false;
          this.#changed(change);
          this.#settle?.resolve();
          this.#settle = undefined;
        },
        failed: (error) => this.#failed(error),
      },
    );
  }

  #failed(error: Error): void {
    this.#watch?.stop();
    if (this.#settle) return this.#settle.reject(error);
    this.#again = this.services.clock.after(AGAIN_MS, () => this.#begin());
    // It may stop the view.
    this.onRetry(error, AGAIN_MS);
  }

  /** After each change. Returns the function that ends it. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** The oldest member decides: two numbers of shards are never in force at a time. */
  get count(): number | undefined {
    return this.members[0]?.count;
  }

  memberOf(leaseId: bigint): ShardMember | undefined {
    return this.#byLease.get(leaseId);
  }

  /** Whether the key of a member was last put at this revision. */
  shows(key: string, modRevision: bigint): boolean {
    return this.#keys.get(key) === modRevision;
  }

  queue(shard: number): readonly ShardEntry[] {
    return this.#queues.get(shard) ?? NO_ENTRIES;
  }

  /** For whom a shard was meant by the last entry that was seen in its queue, even if that is gone. */
  homeOf(shard: number): string | undefined {
    return this.#homes.get(shard);
  }

  /** The same until a member changes, or the last place in a queue. */
  get plan(): Plan {
    return (this.#planned ??= this.#newPlan()).plan;
  }

  #newPlan(): Planned {
    const { count = 0 } = this;
    const rule = Math.min(RULE, ...this.members.map((each) => each.rule));
    // A rule that this version does not know: nothing moves until all members know one that it knows.
    const claimants = rule < 1 ? [] : this.#claimants(count);
    const index = new Map(claimants.map(({ member }, n) => [member.leaseId, n]));
    const facts = Array.from({ length: count }, (_, shard) => this.#factsOf(shard, index));
    const targets = assign(
      claimants.map(({ member: { id, capacity, zone }, declines }) => ({
        ...{ id, capacity, zone },
        declines: new Set(declines),
      })),
      facts,
    );
    return { plan: { claimants, targets }, index, facts };
  }

  /**
   * Those that have joined after the first one with another number wait until it has left, also with the number in force: another one is in
   * force as soon as the members before that one have left, and these would still be at work.
   */
  #claimants(count: number): readonly ShardMember[] {
    const other = this.members.findIndex(({ count: own }) => own !== count);
    const first = other === -1 ? this.members : this.members.slice(0, other);
    const inForce = first.filter(({ member }) => member.capacity > 0);
    const active = inForce.filter(({ member }) => member.state === "active");
    const admitted = active.reduce((latest, { admits }) => (admits > latest ? admits : latest), 0n);
    return inForce.filter(
      ({ member: { state, revision } }) =>
        state === "active" || (state === "joining" && revision <= admitted),
    );
  }

  #factsOf(shard: number, index: ReadonlyMap<bigint, number>): ShardFacts {
    const queue = this.queue(shard);
    const last = queue.findLast(({ leaseId, isDelay }) => !isDelay && index.has(leaseId));
    return { last: last ? (index.get(last.leaseId) ?? -1) : -1, home: (last ?? queue.at(-1))?.home };
  }

  /** What has changed matters to the plan: a release to the one that stands behind doesn't. */
  #isPlanOld(shards: Iterable<number>): boolean {
    const planned = this.#planned;
    if (!planned) return false;
    for (const shard of shards) {
      const [now, then] = [this.#factsOf(shard, planned.index), planned.facts[shard]];
      if (then && (now.last !== then.last || now.home !== then.home)) return true;
    }
    return false;
  }

  owner(shard: number): ShardOwner | undefined {
    const [first] = this.queue(shard);
    // A dead owner's place is kept for a while by its delay key: nobody owns it.
    if (!first || first.isDelay) return undefined;
    const { createRevision: fence, leaseId } = first;
    const member = this.memberOf(leaseId)?.member;
    return withJson({ shard, fence, leaseId, id: member?.id, value: member?.value });
  }

  get owners(): ShardOwners {
    const owners = Array.from({ length: this.count ?? 0 }, (_, shard) => this.owner(shard));
    return withJson({ revision: this.revision, owners });
  }

  feed(signal: AbortSignal | undefined): AsyncIterableIterator<ShardOwners> {
    return new Feed<ShardOwners>({
      services: this.services,
      signal,
      // Only the latest state matters.
      maxUnread: 1,
      same: (a, b) =>
        a.owners.length === b.owners.length && a.owners.every((one, n) => isSameOwner(one, b.owners[n])),
      start: ({ item, failed }) => {
        const tell = (): void => item(this.owners);
        const unlisten = this.listen(tell);
        this.#feeds.add(failed);
        const begin = (): void => (this.#closed ? failed(this.#closed) : tell());
        this.ready.then(begin, (error: unknown) => failed(error as Error));
        const stop = (): void => {
          unlisten();
          this.#feeds.delete(failed);
        };
        return { stop };
      },
    });
  }

  #keep(kv: KeyValue): SeenKey {
    const { createRevision, modRevision } = kv;
    const key = kv.key.toString("latin1");
    const revisions = { createRevision, modRevision };
    if (key.startsWith(this.#membersPrefix)) return { ...revisions, member: shardMemberOf(kv) };
    const shard = this.#shardOf(key);
    if (shard === undefined) return revisions;
    const { leaseId, isDelay, owner } = new SeenEntry(kv);
    return { ...revisions, entry: { key, createRevision, leaseId, isDelay, owner, home: homeIn(kv.value) } };
  }

  /** Of a key that is directly in the queue of a shard. */
  #shardOf(key: string): number | undefined {
    if (!key.startsWith(this.#shardsPrefix)) return undefined;
    const start = this.#shardsPrefix.length;
    const slash = key.indexOf("/", start);
    const id = key.slice(start, slash);
    if (slash === -1 || !SHARD.test(id) || key.includes("/", slash + 1)) return undefined;
    return Number(id) < MAX_COUNT ? Number(id) : undefined;
  }

  #forget(): void {
    this.#queues.clear();
    this.#setMembers([]);
    this.#planned = undefined;
  }

  #changed({ keys, before, revision }: QueueChange<SeenKey>): void {
    this.revision = revision;
    let membersChanged = false;
    const changed = new Map<number, Map<string, ShardEntry>>();
    for (const [key, last] of before) {
      const now = keys.get(key);
      const shard = this.#shardOf(key);
      if (shard === undefined) membersChanged ||= last?.member !== undefined || now?.member !== undefined;
      else {
        // Another client may have put thousands: each is found by its key.
        const queue = changed.get(shard) ?? new Map(this.queue(shard).map((entry) => [entry.key, entry]));
        if (now?.entry) queue.set(key, now.entry);
        else queue.delete(key);
        changed.set(shard, queue);
      }
    }
    for (const [shard, queue] of changed) this.#setQueue(shard, [...queue.values()]);
    if (membersChanged) this.#setMembers([...keys.values()].flatMap(({ member }) => member ?? []));
    if (membersChanged || this.#isPlanOld(changed.keys())) this.#planned = undefined;
    for (const listener of [...this.#listeners]) listener();
  }

  #setQueue(shard: number, queue: ShardEntry[]): void {
    // The delay key of an entry has its create revision, and comes behind it.
    queue.sort((a, b) =>
      a.createRevision === b.createRevision
        ? Number(a.isDelay) - Number(b.isDelay)
        : a.createRevision < b.createRevision
          ? -1
          : 1,
    );
    if (queue.length === 0) this.#queues.delete(shard);
    else this.#queues.set(shard, queue);
    const home = queue.at(-1)?.home;
    if (home !== undefined) this.#homes.set(shard, home);
  }

  /** A lease is one member, by its first key: anybody may have put another one with it. */
  #setMembers(all: readonly ShardMember[]): void {
    this.#byLease.clear();
    for (const each of all) {
      const { leaseId } = each.member;
      if (!this.#byLease.has(leaseId)) this.#byLease.set(leaseId, each);
    }
    this.members = [...this.#byLease.values()];
    this.#keys = new Map(all.map(({ member }) => [member.key, member.modRevision]));
  }
}

const isSameOwner = (a: ShardOwner | undefined, b: ShardOwner | undefined): boolean =>
  a?.fence === b?.fence && a?.id === b?.id && a?.value === b?.value;

const MAX_ENTRY = 8192;
const MAX_HOME = 256;

/** The value of our entries: that of a lock's, and its home. */
function homeIn(value: string): string | undefined {
  if (value.length > MAX_ENTRY || parseEntryValue(value).id === undefined) return undefined;
  const { home } = JSON.parse(value) as { readonly home?: unknown };
  return typeof home === "string" && Buffer.byteLength(home) <= MAX_HOME ? home : undefined;
}
