// The queues of a board against what the keys say, read anew after each change; and what they cost, in numbers of steps.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { keyText } from "../../../src/etcd/watch.js";
import { delayKeyOf } from "../../../src/keys.js";
import { byAge, kindOfQueue, SeenEntry, splitQueue } from "../../../src/lock/queue/seen-entry.js";
import { Intake, Queues } from "../../../src/observe/board-queues.js";
import { LiveQueue, NameHistory, type Place } from "../../../src/observe/live-queue.js";
import { FakeClock } from "../../support/fakes/fake-clock.js";
import { keyValue } from "../../support/fakes/fake-member.js";

const RUNS = { numRuns: Number(process.env["LEASEHOLD_FUZZ"] ?? 60) };

type Bytes = string | Buffer;

const latin1 = (key: Bytes): string => Buffer.from(key).toString("latin1");

/** An etcd with one client that puts and deletes keys, and the queues that follow it. */
class World {
  readonly queues = new Queues("", "");
  readonly keys = new Map<string, SeenEntry>();
  steps = 0;
  longest = 0;
  #revision = 0n;
  #before = new Map<string, SeenEntry | undefined>();

  get revision(): bigint {
    return this.#revision + 1n;
  }

  /** In the revision that `commit` makes. */
  put(key: Bytes, value = "", leaseId = 0n): void {
    const text = latin1(key);
    const there = this.keys.get(text);
    const createRevision = there?.createRevision ?? this.revision;
    this.#remember(text);
    const kv = keyValue({ key: "", createRevision, modRevision: this.revision, value, leaseId });
    this.keys.set(text, new SeenEntry({ ...kv, key: Buffer.from(key) }));
  }

  delete(text: string): void {
    this.#remember(text);
    this.keys.delete(text);
  }

  /** @param at undefined: the first picture */
  commit(at: number | undefined, isRead = at === undefined): void {
    this.#revision = this.revision;
    const keys = new Map([...this.#before].map(([key, was]) => [key, [was, this.keys.get(key)]] as const));
    this.#before = new Map();
    const work = this.queues.apply({ revision: this.#revision, isRead, at, keys });
    for (let next = work.next(); !next.done; next = work.next()) {
      this.steps += next.value;
      this.longest = Math.max(this.longest, next.value);
    }
  }

  #remember(text: string): void {
    if (!this.#before.has(text)) this.#before.set(text, this.keys.get(text));
  }
}

const plain = (entries: readonly SeenEntry[]) =>
  entries.map(
    ({ bytes, createRevision, modRevision }) => `${createRevision}.${modRevision} ${keyText(bytes)}`,
  );

const shown = ({ queues }: World) =>
  [...queues.live.values()]
    .map((queue) => ({
      ...{ path: queue.path, kind: queue.kind, count: [queue.holderCount, queue.waiterCount] },
      ...{ holders: plain(queue.holders), waiters: plain(queue.waiters) },
      dead: [queue.deadHolders, queue.deadCount],
    }))
    .sort((a, b) => (a.path < b.path ? -1 : 1));

const deadIn = (entries: readonly SeenEntry[]): number => entries.filter(({ isDelay }) => isDelay).length;

/** By the definition: every key under a name counts, and a name is one that has a key of its own. */
function truth({ keys }: World) {
  const names = new Set<string>();
  for (const text of keys.keys()) {
    const directory = text.slice(0, Math.max(0, text.lastIndexOf("/"))).replace(/\/(read|write)$/, "");
    // Only those that are no name: see `strays`.
    if (directory !== "" && !/^\/|\/$|\/\/|\xff/.test(directory)) names.add(directory);
  }
  return [...names].sort().map((path) => {
    const under = [...keys].filter(([text]) => text.startsWith(`${path}/`)).map(([, entry]) => entry);
    const { holders, waiters } = splitQueue(path, under.sort(byAge));
    return {
      ...{ path, kind: kindOfQueue(path, [...holders, ...waiters].sort(byAge)) },
      ...{ count: [holders.length, waiters.length], holders: plain(holders), waiters: plain(waiters) },
      dead: [deadIn(holders), deadIn([...holders, ...waiters])],
    };
  });
}

/** What the value of an entry says of permits. */
interface Said {
  readonly permits?: number;
  readonly weighted?: { readonly permits: number; readonly weight: number };
  readonly priority?: { readonly level: number; readonly agingMs: number; readonly granted?: true };
  readonly downgraded?: true;
}
const ours = (said: Said = {}) =>
  JSON.stringify({ owner: "me", since: "2026-01-01T00:00:00Z", id: "x", ...said });
const weights = (permits: number, weight: number): Said => ({ weighted: { permits, weight } });
const SAID: readonly Said[] = [
  ...[{}, {}, {}, { permits: 1 }, { permits: 2 }, { permits: 3 }],
  ...([{ downgraded: true }, { downgraded: true }, { permits: 2, downgraded: true }] as const),
  ...[weights(1, 1), weights(3, 1), weights(3, 2), weights(5, 4)],
  ...[1, 2, 3].map((level) => ({ priority: { level, agingMs: 10 } })),
  { priority: { level: 1, agingMs: 10, granted: true } },
];

const folders = [
  "a",
  "a/b",
  "a/b/c",
  "a/b/c/d",
  "b",
  "a/read",
  "a/write",
  "a/b/read",
  "a/read/x",
  "a/read/read",
  "a/read/x/y",
];
const strays: readonly Bytes[] = [
  Buffer.from("a/\xff/k", "latin1"),
  "a//k",
  "a/b//c/k",
  Buffer.from("a/b/\xff\xfe/7", "latin1"),
];

const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("put" as const),
      folder: fc.constantFrom(...folders),
      n: fc.nat(6),
      said: fc.constantFrom(...SAID),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant("stray" as const), key: fc.constantFrom(...strays) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("delayed" as const),
      folder: fc.constantFrom(...folders),
      n: fc.nat(3),
    }),
  },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant("delete" as const), n: fc.nat(1000) }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("purge" as const), folder: fc.constantFrom(...folders) }),
  },
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

const lease = (n: number): bigint => 0x4000_0000_0000_0010n + BigInt(2 * n);

function run(world: World, step: Step): void {
  if (step.kind === "stray") world.put(step.key);
  else if (step.kind === "put")
    world.put(`${step.folder}/${(step.n + 1).toString(16)}`, ours(step.said), BigInt(step.n + 1));
  else if (step.kind === "delayed") {
    const key = `${step.folder}/${lease(step.n).toString(16)}`;
    if (world.keys.has(latin1(delayKeyOf(key)!)) || world.keys.has(latin1(key))) return;
    world.put(key, ours(), lease(step.n));
    world.put(delayKeyOf(key)!, ours(), lease(step.n) | 1n);
  } else if (step.kind === "purge") {
    for (const key of [...world.keys.keys()]) if (key.startsWith(`${step.folder}/`)) world.delete(key);
  } else {
    const keys = [...world.keys.keys()];
    if (keys.length > 0) world.delete(keys[step.n % keys.length]!);
  }
}

describe("the queues of a board", () => {
  test("equal what all keys show, after each revision of any keys", () => {
    const revisions = fc.array(fc.array(step, { minLength: 1, maxLength: 4 }), {
      minLength: 1,
      maxLength: 40,
    });
    fc.assert(
      fc.property(revisions, (all) => {
        const world = new World();
        let [held, grants] = [new Set<string>(), 0];
        for (const [n, steps] of all.entries()) {
          for (const each of steps) run(world, each);
          world.commit(n === 0 ? undefined : n);
          expect(shown(world)).toEqual(truth(world));
          const holding = [...world.queues.live.values()].flatMap(({ path, holders }) =>
            holders
              .filter((each) => !each.isDelay)
              .map((each) => `${path} ${each.createRevision} ${keyText(each.bytes)}`),
          );
          if (n > 0) grants += holding.filter((id) => !held.has(id)).length;
          held = new Set(holding);
          expect(world.queues.grants).toBe(grants);
        }
      }),
      RUNS,
    );
  });

  test("let the readers in that are behind a writer when its key shows that it has become a reader", () => {
    const world = new World();
    const keys = ["a/write/1", "a/read/2", "a/write/3", "a/read/4"];
    for (const [n, key] of keys.entries()) {
      world.put(key, ours(), BigInt(n + 1));
      world.commit(n);
    }
    world.put("a/write/1", ours({ downgraded: true }), 1n);
    world.commit(9);

    expect(world.queues.live.get("a")?.holders.map(({ key }) => key)).toEqual(["a/write/1", "a/read/2"]);
    expect(shown(world)).toEqual(truth(world));
    world.delete("a/write/1");
    world.delete("a/read/2");
    world.commit(10);
    expect(shown(world)).toEqual(truth(world));
  });

  /** A change of each of these keys: all in one read, or each in a revision of its own. */
  const costOf = (keys: readonly string[], inOneRead: boolean) => {
    const world = new World();
    for (const [n, key] of keys.entries()) {
      world.put(key);
      if (!inOneRead) world.commit(n);
    }
    if (inOneRead) world.commit(undefined);
    for (const [n, key] of keys.entries()) {
      world.delete(latin1(key));
      if (!inOneRead) world.commit(n);
    }
    if (inOneRead) world.commit(1, true);
    expect(world.queues.live.size).toBe(0);
    return world;
  };

  const upTo = (count: number, key: (n: number) => string) => Array.from({ length: count }, (_, n) => key(n));
  const DEPTH = 200;
  const SHAPES: Readonly<Record<string, (n: number) => string>> = {
    "under nested names": (n) =>
      `${Array(Math.min(n + 1, DEPTH))
        .fill("a")
        .join("/")}/${n}`,
    "in the folders of a name": (n) => `jobs/${n === 0 ? "x" : `${n % 50}/${n}`}`,
    "of readers": (n) => `jobs/read/${n}`,
    "that are no name's": (n) => `jobs/${n === 0 ? "x" : `/${n}`}`,
  };

  for (const [what, key] of Object.entries(SHAPES))
    for (const inOneRead of [true, false])
      test(`take twice the steps for twice the keys ${what}, ${inOneRead ? "in one read" : "one by one"}, and none at a time`, () => {
        const [one, two] = [1000, 2000].map((count) => costOf(upTo(count, key), inOneRead));
        expect(two!.steps / one!.steps).toBeLessThan(2.5);
        expect(two!.longest).toBeLessThan(Math.max(2 + DEPTH, inOneRead ? 2002 : 0));
      });
});

describe("one queue, of which the first ten of each are read after each change", () => {
  /** How often a place was looked at, while all of them have come and left, one by one. */
  function looksFor(
    count: number,
    key: (n: number) => string,
    orderOf: (count: number) => readonly number[],
    value = "",
  ) {
    let looks = 0;
    const queue = new LiveQueue({ name: "jobs", path: "jobs", parent: undefined }, new NameHistory());
    let wrong = 0;
    const read = () => {
      queue.settle(1);
      const { holderCount, waiterCount } = queue;
      if (queue.holdersUpTo(10).length !== Math.min(10, holderCount)) wrong++;
      if (queue.waitersUpTo(10).length !== Math.min(10, waiterCount)) wrong++;
    };
    const places = Array.from({ length: count }, (_, n): Place => {
      const revision = BigInt(n + 1);
      const kv = keyValue({ key: key(n), createRevision: revision, modRevision: revision, value });
      let isGone = false;
      return {
        ...{ entry: new SeenEntry(kv), text: key(n), home: queue, own: queue, isDelay: false },
        get isGone() {
          looks++;
          return isGone;
        },
        set isGone(is) {
          isGone = is;
        },
      };
    });
    for (const place of places) {
      queue.add(place);
      read();
    }
    for (const n of orderOf(count)) {
      places[n]!.isGone = true;
      queue.remove(places[n]!);
      read();
    }
    expect([queue.size, wrong]).toEqual([0, 0]);
    return looks;
  }

  const all = (count: number) => Array.from({ length: count }, (_, n) => n);
  const ORDERS: Readonly<Record<string, (count: number) => readonly number[]>> = {
    "in their order": all,
    "before the holder does": (count) => [...all(count).slice(1), 0],
    "but for the first five": (count) => [...all(count).slice(5), ...all(5)],
    "every other one first": (count) => all(count).sort((a, b) => (a % 2) - (b % 2) || a - b),
  };
  const KINDS: Readonly<Record<string, readonly [(n: number) => string, string?]>> = {
    "contenders for a mutex": [(n) => `jobs/${n}`],
    "contenders for five permits": [(n) => `jobs/${n}`, ours({ permits: 5 })],
    readers: [(n) => `jobs/read/${n}`],
    "readers and a few writers": [(n) => (n % 100 === 99 ? `jobs/write/${n}` : `jobs/read/${n}`)],
  };
  for (const [kind, [key, value]] of Object.entries(KINDS))
    for (const [order, orderOf] of Object.entries(ORDERS))
      test(`costs at most 6 times the looks for 4 times as many ${kind}, who leave ${order}`, () => {
        const [one, four] = [1000, 4000].map((count) => looksFor(count, key, orderOf, value));
        expect(four! / one!).toBeLessThan(6);
      });
});

describe("changes that arrive together", () => {
  const AT_ONCE = 3;

  /** What is told of so many changes, each of three keys. */
  function toldOf(count: number) {
    const turns: (() => void)[] = [];
    const clock = Object.assign(new FakeClock(), {
      afterPendingEvents: (run: () => void) => ({ cancel: () => {}, at: turns.push(run) }),
    });
    const queues = new Queues("jobs", "", "jobs");
    const told: { readonly size: number; readonly revision: bigint; readonly names: readonly string[] }[] =
      [];
    const intake = new Intake(queues, clock, (names, revision) =>
      told.push({ size: queues.live.get("jobs")!.size, revision, names: [...names] }),
    );
    const keys = new Map<string, SeenEntry>();
    for (let n = 1; n <= count; n++) {
      const before = new Map<string, undefined>();
      for (let i = 0; i < AT_ONCE; i++) {
        const key = `jobs/${n}.${i}`;
        before.set(key, undefined);
        keys.set(key, new SeenEntry(keyValue({ key, createRevision: BigInt(n), modRevision: BigInt(n) })));
      }
      intake.add({ keys, before, revision: BigInt(n), isRead: false });
    }
    let turnCount = 0;
    for (let turn = turns.shift(); turn; turn = turns.shift(), turnCount++) turn();
    return { told, turnCount };
  }

  test.each([1, 100, 8_000])("are told once in a turn, and none of %d in its middle", (count) => {
    const { told, turnCount } = toldOf(count);

    expect(told.length).toBeLessThanOrEqual(turnCount);
    expect(told.at(-1)).toEqual({ size: AT_ONCE * count, revision: BigInt(count), names: ["jobs"] });
    for (const { size, revision } of told) expect(BigInt(size)).toBe(3n * revision);
  });

  test("are reported from time to time while others keep arriving", () => {
    expect(toldOf(6_000).told.length).toBeGreaterThan(1);
  });
});
