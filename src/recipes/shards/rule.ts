// Who should own what, as a function of what one revision of etcd shows: the members, and the last entry in each shard's queue.
// Each member computes it for itself. Two members that look at different revisions may both join a queue, which costs a move at most:
// only the lock makes an owner.
//
// A shard is its last entry's (whoever stands in the queue is about to own it), or its home's. Its home is the member for which it was
// meant when its owner took it over: of a member that has gone, the others are guests, so it finds its shards again when it returns.
// Members above their share let go of the excess, guests first, and what nobody has goes to members below their share, by rendezvous
// hashing. What has been moved already counts as moved, so the result is the same at each step on the way: see the tests.

/** The rules that this version knows. All members use the highest one that each of them knows. */
export const RULE = 1;

/** A member that takes shards. */
export interface Claimant {
  /** The same after a restart. */
  readonly id: string;
  /** Its share is proportional to that: a whole number above 0. */
  readonly capacity: number;
  readonly zone: string | undefined;
  readonly declines: ReadonlySet<number>;
}

/** What etcd shows of a shard. */
export interface ShardFacts {
  /** The claimant of the last entry in its queue, by its index; -1: none. */
  readonly last: number;
  /** The `id` of its home, by that entry. */
  readonly home: string | undefined;
}

const NOBODY = -1;

/**
 * Returns, for each shard, the index of the claimant that should own it, or -1 if nobody takes it. `claimants` are in the same order for
 * all that compute it. Each gets its share, rounded down or up, unless others decline too much.
 */
export function assign(claimants: readonly Claimant[], shards: readonly ShardFacts[]): Int32Array {
  return new Assignment(claimants, shards).run();
}

class Assignment {
  readonly #owner: Int32Array;
  /** How many shards each claimant has so far. */
  readonly #load: Int32Array;
  /** Its share, rounded down. */
  readonly #share: Int32Array;
  /** So many claimants may have one more than their share. */
  #extras: number;
  readonly #seeds: readonly { readonly own: number; readonly zone: number }[];

  constructor(
    private readonly claimants: readonly Claimant[],
    private readonly shards: readonly ShardFacts[],
  ) {
    const whole = claimants.reduce((sum, { capacity }) => sum + capacity, 0);
    this.#owner = new Int32Array(shards.length).fill(NOBODY);
    this.#load = new Int32Array(claimants.length);
    this.#share = Int32Array.from(claimants, ({ capacity }) =>
      Math.floor((shards.length * capacity) / whole),
    );
    this.#extras = this.#share.reduce((left, share) => left - share, shards.length);
    this.#seeds = claimants.map(({ id, zone = "" }) => ({ own: seedOf(id), zone: seedOf(`zone ${zone}`) }));
  }

  run(): Int32Array {
    if (this.claimants.length === 0) return this.#owner;
    this.#claim();
    this.#goHome();
    this.#letGo();
    this.#fill();
    return this.#owner;
  }

  #claim(): void {
    for (const [shard, { last }] of this.shards.entries())
      if (this.#takes(last, shard)) this.#give(shard, last);
  }

  /** Each home gets back what others have of it, up to its share rounded up. */
  #goHome(): void {
    const homes = new Map<string, number>();
    for (const [n, { id }] of this.claimants.entries()) if (!homes.has(id)) homes.set(id, n);
    const guests = this.claimants.map((): number[] => []);
    for (const [shard, { last, home }] of this.shards.entries()) {
      const owner = home === undefined || home === this.claimants[last]?.id ? undefined : homes.get(home);
      if (owner !== undefined && this.#takes(owner, shard)) guests[owner]?.push(shard);
    }
    // What others get back does not count against the share of those that have it now.
    for (const shard of guests.flat()) this.#give(shard, NOBODY);
    for (const [owner, own] of guests.entries()) {
      const room = Math.max(0, this.#shareOf(owner) + 1 - this.#loadOf(owner));
      for (const shard of this.#byPreference(own, owner).slice(0, room)) this.#give(shard, owner);
    }
    for (const shard of guests.flat())
      if (this.#ownerOf(shard) === NOBODY && this.#takes(this.#lastOf(shard), shard))
        this.#give(shard, this.#lastOf(shard));
  }

  /** The excess becomes free. */
  #letGo(): void {
    const owned = this.claimants.map((): number[] => []);
    for (const [shard, owner] of this.#owner.entries()) owned[owner]?.push(shard);
    for (const [n, own] of owned.entries()) {
      const share = this.#shareOf(n);
      const keepsExtra = own.length > share && this.#extras > 0;
      if (keepsExtra) this.#extras--;
      const excess = own.length - share - Number(keepsExtra);
      if (excess <= 0) continue;
      const isGuest = (shard: number): boolean => this.shards[shard]?.home !== this.claimants[n]?.id;
      const dearest = this.#byPreference(own, n);
      const order = [...dearest.filter((s) => !isGuest(s)), ...dearest.filter(isGuest)].reverse();
      for (const shard of order.slice(0, excess)) this.#give(shard, NOBODY);
    }
  }

  /** What is free goes to those that have room, and what these decline to anybody who does not. */
  #fill(): void {
    for (const [shard, owner] of this.#owner.entries()) {
      if (owner !== NOBODY) continue;
      const last = this.#lastOf(shard);
      const taker = this.#hasRoom(last, shard) ? last : this.#best(shard, (n) => this.#hasRoom(n, shard));
      if (taker === NOBODY) continue;
      if (this.#loadOf(taker) === this.#shareOf(taker)) this.#extras--;
      this.#give(shard, taker);
    }
    for (const [shard, owner] of this.#owner.entries()) {
      if (owner !== NOBODY) continue;
      const last = this.#lastOf(shard);
      this.#give(shard, this.#takes(last, shard) ? last : this.#best(shard, (n) => this.#takes(n, shard)));
    }
  }

  #takes(n: number, shard: number): boolean {
    const claimant = this.claimants[n];
    return claimant !== undefined && !claimant.declines.has(shard);
  }

  #hasRoom(n: number, shard: number): boolean {
    if (!this.#takes(n, shard)) return false;
    return this.#loadOf(n) < this.#shareOf(n) + Number(this.#extras > 0);
  }

  #best(shard: number, may: (n: number) => boolean): number {
    let best = NOBODY;
    for (const n of this.claimants.keys())
      if (may(n) && (best === NOBODY || this.#prefers(shard, n, best))) best = n;
    return best;
  }

  /** Whether `a` comes before `b` for a shard: a zone is preferred as a whole, so that most of what a member loses stays in its zone. */
  #prefers(shard: number, a: number, b: number): boolean {
    const [one, other] = [this.#seeds[a], this.#seeds[b]];
    if (!one || !other) return false;
    const zones = score(one.zone, shard) - score(other.zone, shard);
    return (zones === 0 ? score(one.own, shard) - score(other.own, shard) : zones) > 0;
  }

  /** The dearest to this claimant first. */
  #byPreference(shards: readonly number[], n: number): readonly number[] {
    const seed = this.#seeds[n]?.own ?? 0;
    return [...shards].sort((a, b) => score(seed, b) - score(seed, a) || a - b);
  }

  #give(shard: number, to: number): void {
    const from = this.#ownerOf(shard);
    if (from !== NOBODY) this.#load[from] = this.#loadOf(from) - 1;
    if (to !== NOBODY) this.#load[to] = this.#loadOf(to) + 1;
    this.#owner[shard] = to;
  }

  #ownerOf = (shard: number): number => this.#owner[shard] ?? NOBODY;
  #lastOf = (shard: number): number => this.shards[shard]?.last ?? NOBODY;
  #loadOf = (n: number): number => this.#load[n] ?? 0;
  #shareOf = (n: number): number => this.#share[n] ?? 0;
}

const OFFSET = 0x811c9dc5;
const PRIME = 0x01000193;
const SHARD_SEED = 0x9e3779b9;

/** FNV-1a of the text in UTF-8. */
function seedOf(text: string): number {
  let hash = OFFSET;
  for (const byte of Buffer.from(text)) hash = Math.imul(hash ^ byte, PRIME);
  return mix(hash);
}

/** The finalizer of MurmurHash3. */
function mix(hash: number): number {
  let mixed = hash ^ (hash >>> 16);
  mixed = Math.imul(mixed, 0x85ebca6b);
  mixed ^= mixed >>> 13;
  mixed = Math.imul(mixed, 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

const score = (seed: number, shard: number): number => mix(seed ^ mix(shard + SHARD_SEED));
