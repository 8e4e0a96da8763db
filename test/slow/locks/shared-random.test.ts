// Random readers, writers, mutexes and permits of several sessions on one name, judged by which holds overlap, by the
// order of their create revisions, and by what etcd itself has seen.
import { setTimeout as pause } from "node:timers/promises";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Cluster, connect, type Hold, Mutex, RwLock, Semaphore, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { observe } from "../../support/clients/observer.js";
import { placesOf } from "../../support/clients/server-view.js";

const SESSIONS = 3;
const SEEDS = 3;
const SECONDS_EACH = 1.5;
/**
 * Much longer than all others hold together, and shorter than the half minute after which a slow check finds what was
 * missed.
 */
const FORGOTTEN_MS = 15_000;

let etcd: EtcdCluster;
let clusters: readonly Cluster[];
let sessions: readonly Session[];
beforeAll(async () => {
  etcd = await startEtcd();
  // Each with its own cluster, like separate processes: they share no watch and no request.
  clusters = Array.from({ length: SESSIONS }, () => connect({ hosts: etcd.endpoints }));
  sessions = await Promise.all(clusters.map((cluster) => Session.open(cluster, { ttlSeconds: 60 })));
}, 60_000);
afterAll(async () => {
  await Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 })));
  await etcd.stop();
});

const call = fc.record({
  session: fc.nat(SESSIONS - 1),
  what: fc.constantFrom("read", "read", "read", "write", "mutex", "try read", "try write"),
  permits: fc.constantFrom(2, 2, 3, 5),
  /** Milliseconds: before the call, and while it holds. */
  after: fc.nat(30),
  holds: fc.nat(6),
  /** Gives up after this many milliseconds. */
  patience: fc.option(fc.nat(12), { freq: 4 }),
});
type Call = typeof call extends fc.Arbitrary<infer T> ? T : never;
const calls = fc.array(call, { minLength: 5, maxLength: 40 });

interface Held {
  readonly shared: boolean;
  readonly revision: bigint;
}

/** The current holders, in the order of their grants. */
class Holders {
  readonly #now = new Set<Held>();
  readonly granted: Held[] = [];
  most = 0;

  async during(hold: Hold, shared: boolean, ms: number): Promise<void> {
    const held = { shared, revision: hold.revision };
    this.granted.push(held);
    this.#now.add(held);
    this.most = Math.max(this.most, this.#now.size);
    const others = [...this.#now].filter((other) => other !== held);
    if (others.some((other) => !shared || !other.shared)) expect.fail(`${hold.key} holds beside another one`);
    if (ms > 0) await pause(ms);
    expect(hold.held).toBe(true);
    this.#now.delete(held);
    await hold.release();
  }
}

function lockOf(name: string, { session, what }: Call, signal: AbortSignal): Promise<Hold | undefined> {
  const source = sessions[session]!;
  const wait = { signal, timeoutMs: FORGOTTEN_MS };
  if (what === "mutex") return new Mutex(source, name).lock(wait);
  const lock = new RwLock(source, name);
  if (what === "try read") return lock.tryReadLock(wait);
  if (what === "try write") return lock.tryWriteLock(wait);
  return what === "read" ? lock.readLock(wait) : lock.writeLock(wait);
}

/** Makes the call, keeps the resulting hold, and releases it. */
async function live(
  each: Call,
  ask: (each: Call, signal: AbortSignal) => Promise<Hold | undefined>,
  hold: (held: Hold) => Promise<void>,
): Promise<void> {
  await pause(each.after);
  const caller = new AbortController();
  const patience =
    each.patience === null ? undefined : setTimeout(() => caller.abort("enough"), each.patience);
  try {
    const held = await ask(each, caller.signal);
    if (held) await hold(held);
  } catch (error) {
    if (error !== "enough") throw error;
  } finally {
    clearTimeout(patience);
  }
}

const seeds = Array.from(
  { length: SEEDS },
  (_, n) => Number(process.env["LEASEHOLD_SEED"] ?? Date.now() % 1e6) + n,
);
const settings = (seed: number) => ({
  seed,
  numRuns: 200,
  interruptAfterTimeLimit: SECONDS_EACH * 1000,
  endOnFailure: true,
});
const LIMIT = { timeout: (SECONDS_EACH + 60) * 1000 };
let names = 0;
/** The maximum number of readers that have held one name at the same time. */
let together = 0;

test.each(seeds)(
  "readers overlap only readers, and who exclude each other hold in the order of their places, seed %i",
  LIMIT,
  async (seed) => {
    const story = fc.asyncProperty(calls, async (all) => {
      const name = `rw${++names}`;
      const holders = new Holders();

      await Promise.all(
        all.map((each) =>
          live(
            each,
            (mine, signal) => lockOf(name, mine, signal),
            (held) => holders.during(held, !("fence" in held), each.holds),
          ),
        ),
      );

      together = Math.max(together, holders.most);
      const outOfTurn = holders.granted.filter(({ revision, shared: reads }, i) =>
        holders.granted.slice(0, i).some((other) => other.revision > revision && !(reads && other.shared)),
      );
      expect(outOfTurn).toEqual([]);
      await expect.poll(() => placesOf(etcd.member, name)).toEqual([]);
    });

    await fc.assert(story, settings(seed));
  },
);

test("and readers did overlap", () => {
  expect(together).toBeGreaterThan(1);
});

test.each(seeds)(
  "never more than all permits are held, and no waiter is forgotten, seed %i",
  LIMIT,
  async (seed) => {
    const story = fc.asyncProperty(calls, fc.constantFrom(1, 2, 3, 5), async (all, permits) => {
      const name = `sem${++names}`;
      const holders = new Holders();

      await Promise.all(
        all.map((each) =>
          live(
            each,
            ({ session, what }, signal) => {
              const semaphore = new Semaphore(sessions[session]!, name, permits);
              const wait = { signal, timeoutMs: FORGOTTEN_MS };
              return what.startsWith("try") ? semaphore.tryAcquire(wait) : semaphore.acquire(wait);
            },
            (held) => holders.during(held, true, each.holds),
          ),
        ),
      );

      expect(holders.most).toBeLessThanOrEqual(permits);
      await expect.poll(() => placesOf(etcd.member, name)).toEqual([]);
    });

    await fc.assert(story, settings(seed));
  },
);

test.each(seeds)(
  "while users disagree on the number, a permit is given only where that of the oldest place allows it, seed %i",
  LIMIT,
  async (seed) => {
    const story = fc.asyncProperty(calls, async (all) => {
      const name = `roll${++names}`;
      using server = await observe(etcd.member.endpoint, `${name}/`);
      const permitsOf = new Map<bigint, number>();
      const granted: bigint[] = [];

      await Promise.all(
        all.map((each) =>
          live(
            each,
            ({ session, permits }, signal) =>
              new Semaphore(sessions[session]!, name, permits).acquire({ signal, timeoutMs: FORGOTTEN_MS }),
            async (held) => {
              granted.push(held.revision);
              permitsOf.set(held.revision, each.permits);
              if (each.holds > 0) await pause(each.holds);
              expect(held.held).toBe(true);
              await held.release();
            },
          ),
        ),
      );
      await expect.poll(() => placesOf(etcd.member, name)).toEqual([]);

      for (const revision of granted) {
        await server.first(({ type, create }) => type === "DELETE" && create === revision);
      }
      for (const { type, key, create } of [...server.seen])
        if (type === "PUT") await server.deleted(key, create);
      const history = new History(server.seen);
      for (const revision of granted) expect(history.allows(revision, permitsOf)).toBe(true);
    });

    await fc.assert(story, settings(seed));
  },
);

type Seen = { type: "PUT" | "DELETE"; create: bigint; mod: bigint };

/** The places of one queue, by create revision, with the revision at which each was deleted. */
class History {
  readonly #deleted = new Map<bigint, bigint>();

  constructor(seen: readonly Seen[]) {
    for (const { type, create, mod } of seen) if (type === "DELETE") this.#deleted.set(create, mod);
  }

  /** Whether there was a moment in the place's life when fewer places were before it than the oldest place's limit. */
  allows(place: bigint, permitsOf: ReadonlyMap<bigint, number>): boolean {
    const end = this.#deleted.get(place) ?? 0n;
    const earlier = [...this.#deleted]
      .filter(([create]) => create < place)
      .sort(([a], [b]) => (a < b ? -1 : 1));
    const moments = [place, ...earlier.map(([, deleted]) => deleted)].filter((at) => at >= place && at < end);
    return moments.some((at) => {
      const alive = earlier.filter(([, deleted]) => deleted > at).map(([create]) => create);
      // A waiter that gave up has not published its limit: then any order is allowed.
      const permits = permitsOf.get(alive[0] ?? place) ?? Infinity;
      return alive.length < permits;
    });
  }
}
