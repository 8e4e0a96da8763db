// An etcd in the process. What it has in common with a real one is in test/slow/testing/faults.test.ts; how its answers compare with those
// of etcd, in test/meta/fidelity.
import { createHook } from "node:async_hooks";
import { execFile } from "node:child_process";
import { once as nextEvent } from "node:events";
import { setImmediate as turn } from "node:timers/promises";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  Barrier,
  catchUp,
  type Cluster,
  connect,
  CountDownLatch,
  DoubleBarrier,
  Election,
  fromEnv,
  lead,
  Mutex,
  once,
  Session,
  shards,
} from "../../../src/index.js";
import { Random } from "../../../src/testing/memory/random.js";
import { type EtcdTime, RealTime, VirtualTime } from "../../../src/testing/memory/time.js";
import { History } from "../../../src/testing/history.js";
import { memoryEtcd, type MemoryEtcd, type MemoryEtcdOptions } from "../../../src/testing/start.js";

const NEVER = new AbortController().signal;
const opened: AsyncDisposable[] = [];

async function start(options: MemoryEtcdOptions = {}): Promise<MemoryEtcd> {
  const etcd = await memoryEtcd({ time: "virtual", ...options });
  opened.push(etcd);
  return etcd;
}

function client(etcd: MemoryEtcd, options: Partial<Parameters<typeof connect>[0]> = {}): Cluster {
  const cluster = connect({ hosts: etcd.hosts, ...options } as Parameters<typeof connect>[0]);
  opened.push(cluster);
  return cluster;
}

afterEach(async () => {
  for (const each of opened.splice(0).reverse()) await each[Symbol.asyncDispose]();
});

const lossOf = ({ signal }: { readonly signal: AbortSignal }): unknown =>
  (signal.reason as { loss?: string } | undefined)?.loss;

describe.each(["the timers of Node.js", "the fake timers of vitest"])("virtual time, with %s", (timers) => {
  beforeEach(() => {
    if (timers.startsWith("the fake")) vi.useFakeTimers({ toFake: FAKED, now: Date.UTC(2031, 0, 1, 23, 59) });
  });

  afterEach(() => {
    vi.useRealTimers();
  });

  it("a lock is held for hours, because it is renewed", async () => {
    const etcd = await start();
    const lock = await new Mutex(client(etcd), "jobs/nightly").lock();

    await etcd.advance(3 * 3_600_000);

    expect([lock.held, lock.remainingMs() > 5_000]).toEqual([true, true]);
  });

  it("a lock is lost when its session cannot be renewed, at 0.9 of the TTL, and no earlier", async () => {
    const etcd = await start();
    const lock = await new Mutex(client(etcd, { session: { ttlSeconds: 20 } }), "jobs/nightly").lock();

    await etcd.pause();
    await etcd.advance(17_999);
    expect(lock.held).toBe(true);
    await etcd.advance(1);

    expect([lock.held, lossOf(lock)]).toEqual([false, "expired"]);
  });

  it("the second contender gets the lock when the lease of the first one has expired", async () => {
    const etcd = await start();
    const first = await new Mutex(client(etcd), "import").lock();
    const waiting = new Mutex(client(etcd), "import").lock();

    await etcd.lose(first);

    expect((await waiting).fence).toBeGreaterThan(first.fence);
    expect(lossOf(first)).toBe("deleted");
  });

  it("two contenders get the lock one after the other", async () => {
    const etcd = await start();
    const order: string[] = [];
    const work = (name: string) => async (): Promise<void> => {
      order.push(`${name} begins`);
      await etcd.advance(60_000);
      order.push(`${name} ends`);
    };
    const calls = ["a", "b"].map((name) => new Mutex(client(etcd), "import").withLock(work(name)));

    await Promise.all(calls);
    expect(order).toEqual(["a begins", "a ends", "b begins", "b ends"]);
  });

  it("a holder is told of the first waiter at once, of later ones once a second, and lets go", async () => {
    const etcd = await start();
    const lock = await new Mutex(client(etcd), "import").lock();
    const told: (string | undefined)[] = [];
    lock.onWanted(({ reason }) => told.push(reason));
    const first = new Mutex(client(etcd), "import").lock({ reason: "deploy 4711" });
    await etcd.advance(500);
    const second = new Mutex(client(etcd), "import").lock({ reason: "backup" });
    await etcd.advance(200);
    const third = new Mutex(client(etcd), "import").lock({ reason: "report" });
    await etcd.advance(200);
    expect([told, lock.wanted]).toEqual([["deploy 4711"], true]);

    await etcd.advance(600);

    expect(told).toEqual(["deploy 4711", "report"]);
    await lock.release();
    for (const next of [first, second, third]) await (await next).release();
    expect(await etcd.keys("import")).toEqual([]);
  });

  it("a lock is held over the fail-over to another member", async () => {
    const etcd = await start({ members: 3 });
    const lock = await new Mutex(client(etcd), "jobs/nightly").lock();

    await etcd.kill(await etcd.leader());
    await etcd.advance(60_000);

    expect(lock.held).toBe(true);
    await lock.release();
    expect(await etcd.keys("jobs/")).toEqual([]);
  });

  it("another candidate leads when the leader has lost its session", async () => {
    const etcd = await start({ members: 3 });
    const [first, second] = [client(etcd), client(etcd)];
    const leader = await new Election(first, "reports").campaign("first");
    const next = new Election(second, "reports").campaign("second");

    await etcd.expire(await first.session());
    await etcd.advance(10_000);

    expect([lossOf(leader), (await new Election(second, "reports").leader())?.value]).toEqual([
      "revoked",
      "second",
    ]);
    await (await next).resign();
  });

  it("a tick of a schedule runs once on two replicas, on each side of midnight", async () => {
    const etcd = await start();
    const days: number[] = [];
    const replicas = [client(etcd), client(etcd)];
    for (const day of [1, 2, 2]) {
      const slot = Date.UTC(2031, 0, day);
      await Promise.all(replicas.map((each) => once(each, "report", slot, () => days.push(day))));
      await etcd.advance(3_600_000);
    }
    expect(days).toEqual([1, 2]);
  });

  it("a hold ends after maxHoldMs, and a wait after timeoutMs", async () => {
    const etcd = await start();
    const lock = await new Mutex(client(etcd), "import", { maxHoldMs: 60_000 }).lock();
    const waiting = new Mutex(client(etcd), "import")
      .lock({ timeoutMs: 30_000 })
      .catch((error: Error) => error.name);

    await etcd.advance(60_000);

    expect([await waiting, lossOf(lock)]).toEqual(["LockTimeoutError", "max_hold"]);
  });

  it("close() waits for no one who moves the time, though a lock is held and etcd is down", async () => {
    const etcd = await start();
    const cluster = client(etcd);
    const lock = await new Mutex(cluster, "import").lock();
    await etcd.kill();

    await cluster.close();

    expect(lossOf(lock)).toBe("closed");
  });

  it("lead() tells who leads", async () => {
    const etcd = await start();
    const stop = new AbortController();
    const leaders: (string | undefined)[] = [];
    const work = ({ signal }: AbortSignalled): Promise<unknown> => ended(signal, stop.signal);
    const onLeader = (leader: { readonly value: string } | undefined): number => leaders.push(leader?.value);
    const leading = lead(client(etcd), "reports", work, { signal: stop.signal, value: "first", onLeader });

    await etcd.advance(1_000);
    stop.abort();
    await leading;

    expect(leaders).toContain("first");
  });

  it("a latch opens with its last count, and tells of a counter whose session has ended", async () => {
    const etcd = await start({ members: 3 });
    const [first, second] = [client(etcd), client(etcd)];
    const latch = new CountDownLatch(first, "loaded", 2);
    const counter = await new CountDownLatch(second, "loaded", 2).enlist();
    const waits = [latch.wait(), latch.wait({ onCrash: "continue" })];
    const told = waits[0]?.catch((error: unknown) => error);
    await etcd.advance(1000);
    await etcd.expire(await second.session());
    await etcd.advance(1000);
    expect(await told).toMatchObject({ code: "LATCH_BROKEN", why: "crashed" });
    await latch.countDown();
    await etcd.kill(await etcd.leader());
    const last = latch.countDown();
    await etcd.advance(20_000);
    await Promise.all([last, waits[1]]);
    expect(counter.signal.aborted).toBe(true);
    await etcd.advance(8 * 24 * 3_600_000);
    expect(await latch.count()).toBe(2);
  });

  it("members of a double barrier enter and leave together, and are told of one that has died", async () => {
    const etcd = await start();
    const members = [1, 2, 3].map(() => new DoubleBarrier(client(etcd), "migration", 3));
    await Promise.all(members.map((member) => member.enter()));
    await Promise.all(members.map((member) => member.leave()));
    expect(await etcd.keys("migration/")).toEqual([]);
    const dying = client(etcd, { session: { owner: "dying" } });
    const gone = new DoubleBarrier(dying, "migration", 3).enter().catch((error: unknown) => error);
    const told = members[0]?.enter().catch((error: unknown) => error);
    await etcd.advance(1000);
    await etcd.expire(await dying.session());
    await etcd.advance(1000);
    expect(await told).toMatchObject({ code: "BARRIER_BROKEN", owners: ["dying"] });
    expect(await gone).toMatchObject({ code: "SESSION_LOST" });
  });

  it("a barrier stops those who come until it is released", async () => {
    const etcd = await start();
    const barrier = new Barrier(client(etcd), "maintenance");
    expect([await barrier.hold(), await new Barrier(client(etcd), "maintenance").hold()]).toEqual([
      true,
      false,
    ]);
    let passed = false;
    const waiting = barrier.wait().then(() => (passed = true));
    await etcd.advance(3_600_000);
    expect(passed).toBe(false);
    await barrier.release();
    await waiting;
  });

  it("shards are shared out, and move when a member has settled, and when it leaves", async () => {
    const etcd = await start();
    const owner = new Map<number, string>();
    const member = (id: string) =>
      shards(client(etcd), "feeds", { count: 16, id, ttlSeconds: 10 }, async ({ id: shard, signal }) => {
        owner.set(shard, id);
        await ended(signal);
        if (owner.get(shard) === id) owner.delete(shard);
      });
    const load = (id: string) => [...owner.values()].filter((each) => each === id).length;
    const a = await member("a");
    expect(load("a")).toBe(0);
    await etcd.advance(1_000);
    expect(load("a")).toBe(16);

    const b = await member("b");
    await etcd.advance(1_500);
    expect([load("a"), load("b")]).toEqual([8, 8]);

    await b.close();
    await etcd.advance(0);
    expect(load("a")).toBe(16);
    await a.close();
  });

  it("a result is kept for a day, and the ticks of a night are caught up in the morning", async () => {
    const etcd = await start();
    const cluster = client(etcd);
    let charges = 0;
    const pay = () => once(cluster, "payments", "key", () => ++charges, { result: "keep" });
    const evening = Date.now();
    const night = [1, 2, 3].map((hour) => evening + hour * 3_600_000);
    const ran: number[] = [];
    const report = () =>
      catchUp(cluster, "reports", night, ({ slot }) => void ran.push(slot), { missed: "last" });

    expect(await pay()).toMatchObject({ result: 1, replayed: false });
    expect(await report()).toEqual({ ran: [], missed: [] });
    await etcd.advance(8 * 3_600_000);
    expect(await pay()).toMatchObject({ result: 1, replayed: true });
    expect(await report()).toEqual({ ran: night.slice(-1), missed: night.slice(0, -1) });
    await etcd.advance(20 * 3_600_000);
    expect(await pay()).toMatchObject({ result: 2, replayed: false });
  });

  it("a crowd of 300 in one queue needs no move of the time", async () => {
    const etcd = await start();
    const clusters = [client(etcd), client(etcd), client(etcd)];
    let held = 0;
    const calls = Array.from({ length: 300 }, (_, n) =>
      new Mutex(clusters[n % 3]!, "crowd").withLock(() => ++held),
    );

    expect(await Promise.all(calls).then(() => held)).toBe(300);
  });
});

/** All that vitest can replace. */
const FAKED = [
  ...([
    "setTimeout",
    "clearTimeout",
    "setInterval",
    "clearInterval",
    "setImmediate",
    "clearImmediate",
  ] as const),
  ...(["Date", "performance", "queueMicrotask"] as const),
];

interface AbortSignalled {
  readonly signal: AbortSignal;
}

const ended = (...signals: AbortSignal[]): Promise<unknown> =>
  new Promise((end) => AbortSignal.any(signals).addEventListener("abort", end));

describe("memoryEtcd", () => {
  it("lets the caller's code go on between two events, also over turns of the event loop", async () => {
    const etcd = await start();
    const mutex = new Mutex(client(etcd), "a", { maxHoldMs: 10_000, maxHoldGraceMs: 0 });
    const fences: bigint[] = [];
    const again = async (): Promise<void> => {
      const lock = await mutex.lock();
      fences.push(lock.fence);
      await ended(lock.signal);
      await turn();
      return again();
    };
    again().catch(() => {});

    await etcd.advance(59_000);

    expect(fences).toHaveLength(6);
  });

  it("passes the same time to all who call advance() at once", async () => {
    const etcd = await start();
    const ends: string[] = [];
    const sleep = (ms: number, name: string): Promise<unknown> =>
      etcd.advance(ms).then(async () => {
        await turn();
        ends.push(name);
        if (name === "1 s") await sleep(1_500, "1 s and 1.5 s");
      });

    const [warned, onWarning] = [vi.fn(), (warning: Error): unknown => warned(warning.name)];
    process.on("warning", onWarning);
    const crowd = Array.from({ length: 20 }, () => etcd.advance(100));
    await Promise.all([
      sleep(3_000, "3 s"),
      sleep(1_000, "1 s"),
      sleep(2_000, "2 s"),
      sleep(2_000, "2 s"),
      ...crowd,
    ]);
    process.off("warning", onWarning);

    expect(ends).toEqual(["1 s", "2 s", "2 s", "1 s and 1.5 s", "3 s"]);
    expect(warned).not.toHaveBeenCalled();
  });

  it("passes time in the middle of a hold, while the test waits for longer", async () => {
    const etcd = await start();
    const cluster = client(etcd);
    const first = await new Mutex(cluster, "a", { maxHoldMs: 5_000, maxHoldGraceMs: 0 }).lock();
    const steps: string[] = [];
    const second = new Mutex(cluster, "a").withLock(async (lock) => {
      await etcd.advance(2_000);
      steps.push(`worked, held: ${lock.held}`);
    });

    await etcd.advance(10_000);
    steps.push("10 s have passed");
    await second;

    expect([lossOf(first), ...steps]).toEqual(["max_hold", "worked, held: true", "10 s have passed"]);
  });

  it("ends an advance() with stop()", async () => {
    const etcd = await start();
    await client(etcd).session();
    const moving = etcd.advance(300 * 86_400_000);

    await Promise.all([etcd.stop(), expect(moving).rejects.toThrow("This etcd was stopped")]);
  });

  it("ends an isQuiet() with stop()", async () => {
    const etcd = await start();
    await client(etcd).session();
    const waiting = expect(etcd.isQuiet({ timeoutMs: 1_000 })).rejects.toThrow("This etcd was stopped");

    await Promise.all([etcd.stop(), waiting]);
  });

  it("runs nothing in real time after stop()", async () => {
    const time = new RealTime();
    const run = vi.fn();
    time.after(5, run);
    time.stop();
    await new Promise((resolve) => setTimeout(resolve, 10));

    expect(run).not.toHaveBeenCalled();
  });

  describe.each([
    ["real", () => new RealTime(), () => Promise.resolve()],
    ["virtual", () => new VirtualTime(new Random("")), (time: EtcdTime) => time.advance(10, NEVER)],
  ] as const)("in %s time", (_, newTime, pass) => {
    it.each([0, 5])(
      "goes on after an event in %i ms that throws, which is an uncaught exception",
      async (ms) => {
        const runners = process.listeners("uncaughtException");
        process.removeAllListeners("uncaughtException");
        const time = newTime();
        try {
          const thrown = nextEvent(process, "uncaughtException");
          time.after(ms, () => {
            throw new Error("of a listener");
          });
          await pass(time);
          expect((await thrown)[0]).toMatchObject({ message: "of a listener" });
        } finally {
          for (const each of runners) process.on("uncaughtException", each);
        }
        const run = vi.fn(() => time.stop());
        time.after(ms, run);
        await pass(time);
        await expect.poll(() => run).toHaveBeenCalledOnce();
      },
    );
  });

  it("leaves no port open in the process after stop(), also if a cluster is closed later", async () => {
    const open = new Set<number>();
    const hook = createHook({
      init: (id, type) => type === "MESSAGEPORT" && open.add(id),
      destroy: (id) => open.delete(id),
    }).enable();
    const openedByOne = async (): Promise<number> => {
      const etcd = await start();
      const cluster = client(etcd);
      await cluster.session();
      const { size } = open;
      await etcd.stop();
      await cluster.close();
      return size;
    };

    // The etcd of the test before may still have a turn to run.
    await expect.poll(openedByOne).toBe(2);
    await expect.poll(() => open.size).toBe(0);
    hook.disable();
  });

  it("gives the same run for the same seed", async () => {
    const run = async (seed: number): Promise<unknown[]> => {
      const etcd = await start({ seed });
      const clusters = Array.from({ length: 4 }, () => client(etcd));
      const order: number[] = [];
      await Promise.all(clusters.map((each, n) => new Mutex(each, "a").withLock(() => order.push(n))));
      return [...order, (await clusters[0]!.session()).leaseId];
    };
    expect(await run(1)).toEqual(await run(1));
    const orders = await Promise.all(
      [1, 2, 3, 4, 5, 6].map(async (seed) => (await run(seed)).slice(0, 4).join()),
    );
    expect(new Set(orders).size).toBeGreaterThan(1);
  });

  it("loses the answer to a write: a lock whose join was executed twice has one key", async () => {
    const etcd = await start();
    const cluster = client(etcd);
    await cluster.session();
    await etcd.loseAnswer();
    const joining = new Mutex(cluster, "a").lock();
    await etcd.advance(1_000);
    const lock = await joining;
    expect(await etcd.keys("a/")).toEqual([lock.key]);
  });

  it("loses no answer to a read", async () => {
    const etcd = await start();
    const cluster = client(etcd);
    await cluster.session();
    const loses = () => etcd.history().includes("the answer to a write is lost");
    await etcd.loseAnswer();
    await new Election(cluster, "a").leader();
    expect(loses()).toBe(false);

    const joining = new Mutex(cluster, "a").lock();
    await etcd.advance(1_000);
    await joining;
    expect(loses()).toBe(true);
  });

  it("delivers nothing that a client has sent over a link cut silently, also when the link is healed", async () => {
    const etcd = await start();
    const cluster = client(etcd);
    await cluster.session();
    await etcd.cut();
    const joining = new Mutex(cluster, "a").lock();
    await etcd.advance(100);
    await etcd.heal();
    await etcd.advance(1_000);

    expect((await joining).held).toBe(true);
    expect(await etcd.keys("a/")).toHaveLength(1);
  });

  it("tells the last 1,000 lines of what has happened, and keeps no more of it than twice as much", () => {
    const history = new History(() => 0);
    const told = vi.fn(() => "line");
    for (let line = 0; line < 5_000; line++) history.add("m0", told);

    expect(history.toString().split("\n")).toHaveLength(1_000);
    expect(told.mock.calls.length).toBeLessThanOrEqual(2_000);
  });

  it("passes time after clusters were closed, with and without sessions", async () => {
    const etcd = await start();
    const [idle, one, two] = [client(etcd), client(etcd), client(etcd)];
    await one.session();
    const own = await Session.open(two);
    await two.session();
    await own.close();
    for (const cluster of [idle, one, two]) {
      await cluster.close({ drainMs: 0 });
      await cluster.close();
    }

    await etcd.advance(5_000);
    await etcd.advance(5_000);
  });

  it("refuses writes over the quota, until it is told to refuse nothing", async () => {
    const etcd = await start();
    const mutex = new Mutex(client(etcd), "a");
    await etcd.refuse("quota");
    await expect(mutex.lock()).rejects.toMatchObject({ code: "ETCD_REFUSED", reason: "quota" });
    await etcd.refuse("nothing");
    expect((await mutex.lock()).held).toBe(true);
  });

  it("tells what has happened", async () => {
    const etcd = await start({ members: 3 });
    const [first, second] = [client(etcd), client(etcd)];
    const lock = await new Mutex(first, "a").lock();
    const waiting = new Mutex(second, "a").lock();
    await etcd.advance(5_000);
    await etcd.lose(lock);
    await waiting;
    await etcd.kill(2);

    const lines = etcd.history().split("\n");
    const told = [
      `put ${lock.key}, read a/: done`,
      `test deletes ${lock.key}`,
      `sees delete of ${lock.key}`,
      "m2  is killed",
    ];
    expect(told.map((each) => lines.filter((line) => line.includes(each)).length > 0)).toEqual(
      told.map(() => true),
    );
    expect(lines.at(-1)).toMatch(/^ +5000 ms  m2 {2}is killed$/);
  });

  it.each([1, 3] as const)("tells, with %d members, that a lease has expired", async (members) => {
    const etcd = await start({ members });
    const { leaseId } = await client(etcd, { session: { ttlSeconds: 5 } }).session();
    await etcd.cut();
    await etcd.advance(20_000);

    expect(etcd.history()).toMatch(
      new RegExp(`^ +\\d+ ms {2}m\\d {2}lease ${leaseId.toString(16)} has expired$`, "m"),
    );
  });

  it("checks users and roles", async () => {
    const roles = { jobs: { readwrite: ["jobs/"] } };
    const etcd = await start({ auth: { users: { worker: { password: "secret", roles: ["jobs"] } }, roles } });
    const worker = client(etcd, { auth: { username: "worker", password: "secret" } });
    expect((await new Mutex(worker, "jobs/a").lock()).held).toBe(true);
    await expect(new Mutex(worker, "others/a").lock()).rejects.toMatchObject({ reason: "permission" });
    const wrong = client(etcd, { auth: { username: "worker", password: "?" } });
    await expect(wrong.session()).rejects.toMatchObject({ reason: "unauthenticated" });
  });

  it("is reached by the variables of etcdctl, in this process", async () => {
    const etcd = await start({ members: 3 });
    const cluster = connect(fromEnv({ ...etcd.env }));
    opened.push(cluster);
    expect(cluster.hosts).toEqual(etcd.hosts);
    expect((await new Mutex(cluster, "a").lock()).held).toBe(true);
  });

  it("is not reached in production, unless that is asked for twice", async () => {
    const etcd = await start();
    const twice = await start({ evenInProduction: true });
    vi.stubEnv("NODE_ENV", "production");
    try {
      expect(() => connect({ hosts: etcd.hosts })).toThrow(
        "Expected hosts to be those of an etcd that keeps its data, as NODE_ENV is production",
      );
      expect((await new Mutex(client(twice), "a").lock()).held).toBe(true);
    } finally {
      vi.unstubAllEnvs();
    }
  });

  it("is not reached after stop(), nor beside hosts of another etcd", async () => {
    const [etcd, other] = [await start(), await start()];
    const rule =
      "Expected hosts to be those of one memoryEtcd() that runs in this process and was not stopped";
    expect(() => connect({ hosts: [...etcd.hosts, ...other.hosts] })).toThrow(rule);
    expect(() => connect({ hosts: [...etcd.hosts, "http://127.0.0.1:2379"] })).toThrow(rule);
    await etcd.stop();
    expect(() => connect({ hosts: etcd.hosts })).toThrow(rule);
    await expect(etcd.advance(1)).rejects.toThrow("This etcd was stopped");
  });

  it.each([
    [{ transport: "etcd3" }, "Option transport cannot be used with the hosts of memoryEtcd()"],
    [{ transport: "http2" }, "Option transport cannot be used with the hosts of memoryEtcd()"],
    [
      { credentials: { rootCertificate: "" } },
      "Option credentials cannot be used with the hosts of memoryEtcd()",
    ],
  ] as const)("is reached by no transport and by no TLS: connect refuses %j", async (options, message) => {
    const { hosts } = await start({ members: 3 });

    expect(() => connect({ hosts, ...options })).toThrow(message);
  });

  it.each([
    [{ members: 5 }, "Expected members to be 1 or 3, got 5"],
    [{ time: "fast" }, 'Expected time to be real or virtual, got "fast"'],
    [{ version: "3.3" }, 'Expected version to be 3.4, 3.5, 3.6 or 3.7, got "3.3"'],
    [{ seed: {} }, "Expected seed to be a number or a string, got an object (Object)"],
    [
      { auth: { users: { a: { password: "b", roles: ["c"] } } } },
      "Expected auth.users.a.roles to be names of auth.roles",
    ],
    [{ evenInProduction: 1 }, "Expected evenInProduction to be"],
    [{ port: 2379 }, "Unknown option port of memoryEtcd"],
  ])("rejects %j", async (options, message) => {
    await expect(memoryEtcd(options as never)).rejects.toThrow(message);
  });

  it("does not let the process end while a call waits in real time", async () => {
    const entry = new URL("../../../src/testing/start.ts", import.meta.url).href;
    const code = `
      import { memoryEtcd } from ${JSON.stringify(entry)};
      const etcd = await memoryEtcd();
      await etcd.restart();
      await etcd.advance(100);
      console.log("done");
    `;
    const args = ["--import", "tsx", "--input-type=module", "--eval", code];
    const { stdout } = await promisify(execFile)(process.execPath, args);

    expect(stdout).toBe("done\n");
  });

  it("does not let the process end while a client watches a member that is paused", async () => {
    const urlOf = (file: string) => JSON.stringify(new URL(`../../../src/${file}`, import.meta.url).href);
    const code = `
      import { memoryEtcd } from ${urlOf("testing/start.ts")};
      import { connect, watchQueue } from ${urlOf("index.ts")};
      const etcd = await memoryEtcd();
      await etcd.pause();
      setTimeout(() => etcd.resume(), 500).unref();
      const cluster = connect({ hosts: etcd.hosts, connectTimeoutMs: 100 });
      const { value } = await watchQueue(cluster, "a").next();
      console.log(value.total.holders);
      await cluster.close();
    `;
    const args = ["--import", "tsx", "--input-type=module", "--eval", code];
    const { stdout } = await promisify(execFile)(process.execPath, args);

    expect(stdout).toBe("0\n");
  });

  it("waits in real time", async () => {
    const etcd = await start({ time: "real" });
    const since = performance.now();
    await etcd.advance(20);
    expect(performance.now() - since).toBeGreaterThanOrEqual(20);
  });

  it("moves no time backwards, nor by more than a year", async () => {
    const virtual = await start();
    for (const ms of [-1, NaN, 1e300])
      await expect(virtual.advance(ms)).rejects.toThrow(
        `Expected ms to be a number of milliseconds from 0 to 31622400000, got ${ms}`,
      );
    await expect(virtual.refuse("all" as never)).rejects.toThrow(
      'Expected what to be quota or nothing, got "all"',
    );
  });
});

describe("a fault of one client", () => {
  /** Two clients with a TTL of 10 s, of which the first one holds a lock, and the second one waits for it. */
  async function contenders(options?: MemoryEtcdOptions) {
    const etcd = await start(options);
    const [first, second] = [1, 2].map(() => client(etcd, { session: { ttlSeconds: 10 } })) as [
      Cluster,
      Cluster,
    ];
    const lock = await new Mutex(first, "import").lock();
    let heldThen: boolean | undefined;
    const next = new Mutex(second, "import").lock().then((granted) => {
      heldThen = lock.held;
      return granted;
    });
    next.catch(() => {});
    await etcd.advance(0);
    return { etcd, first, second, lock, next, heldThen: () => heldThen };
  }

  it.each([
    ["silent", 1],
    ["silent", 3],
    ["reset", 1],
    ["reset", 3],
  ] as const)(
    "cut (%s), with members: %d: its lock is lost at its deadline, and the other client gets it after the TTL",
    async (how, members) => {
      const { etcd, first, second, lock, next, heldThen } = await contenders({ members });
      const other = await new Mutex(second, "other").lock();

      await etcd.client(first).cut(undefined, { how });
      await etcd.advance(8_000);
      expect([lock.held, heldThen()]).toEqual([true, undefined]);
      await etcd.advance(1_000);
      expect([lock.held, lossOf(lock), heldThen()]).toEqual([false, "expired", undefined]);
      await etcd.advance(5_000);

      expect([heldThen(), (await next).held, other.held]).toEqual([false, true, true]);
    },
  );

  it("heal: the client continues with a new session", async () => {
    const { etcd, first, second, lock, next } = await contenders();
    const before = (await first.session()).leaseId;
    await etcd.client(first).cut();
    await etcd.advance(15_000);
    await etcd.client(first).heal();
    await etcd.advance(10_000);

    expect(lossOf(lock)).toBe("expired");
    await (await next).release();
    const again = await new Mutex(first, "import").lock();
    expect((await first.session()).leaseId).not.toBe(before);
    expect(again.fence).toBeGreaterThan((await next).fence);
    expect((await second.session()).state).toBe("live");
  });

  it.each(["silent", "reset"] as const)(
    "a short cut (%s) costs no lock, and what was sent meanwhile never reaches etcd",
    async (how) => {
      const { etcd, first, lock } = await contenders({ members: 3 });

      await etcd.client(first).cut(undefined, { how });
      const late = new Mutex(first, "late").tryLock({ timeoutMs: 500 }).catch((error: Error) => error.name);
      await etcd.advance(600);
      expect(await late).toBe("EtcdUnavailableError");
      await etcd.client(first).heal();
      await etcd.advance(60_000);

      expect(lock.held).toBe(true);
      expect(etcd.history()).not.toContain("put late/");
    },
  );

  it("cut off from one member of three, it fails over", async () => {
    const { etcd, first, lock } = await contenders({ members: 3 });

    for (const member of [0, 1]) await etcd.client(first).cut(member);
    await etcd.advance(60_000);
    expect(lock.held).toBe(true);
    await etcd.client(first).cut(2);
    await etcd.client(first).heal(0);
    await etcd.advance(60_000);

    expect(lock.held).toBe(true);
  });

  it("crash: the lock stays in etcd for the TTL, and then the other client gets it", async () => {
    const { etcd, first, second, lock, next, heldThen } = await contenders();
    const waiting = new Mutex(first, "b").lock();
    await (await waiting).release();
    const behind = new Mutex(second, "b").lock();
    await behind;
    const own = new Mutex(first, "b").lock();
    const refused = expect(own).rejects.toMatchObject({ code: "SESSION_CLOSED" });
    await etcd.advance(0);
    const keys = await etcd.keys("");
    const said = linesOf(etcd).length;
    // Both are under way.
    const joining = expect(new Mutex(first, "late").lock()).rejects.toMatchObject({ code: "SESSION_CLOSED" });
    const released = lock.release();

    await etcd.client(first).crash();

    await Promise.all([refused, joining, released.catch(() => {})]);
    expect(lock.held).toBe(false);
    await expect(new Mutex(first, "c").lock()).rejects.toMatchObject({ code: "SESSION_CLOSED" });
    await first.close();
    expect(await etcd.keys("")).toEqual(keys);
    // Nothing but the fault itself has happened, and no time has passed.
    expect(linesOf(etcd).slice(said)).toEqual(["        0 ms  c0  has crashed: m0"]);
    await etcd.advance(8_000);
    expect(heldThen()).toBeUndefined();
    await etcd.advance(5_000);
    expect([heldThen(), (await next).held]).toEqual([false, true]);
    expect(await etcd.keys("")).toHaveLength(2);
  });

  it("crash: etcd has no watch of it any more, and a lease that ends by itself", async () => {
    const { etcd, first, second, lock } = await contenders({ members: 3 });
    await second.close();
    await etcd.client(first).crash();
    await etcd.client(first).crash();
    expect(lossOf(lock)).toBe("closed");

    expect(await etcd.leftovers()).toMatchObject({ watches: 0, leases: [expect.any(BigInt)] });
    await etcd.advance(12_000);
    expect(await etcd.isQuiet()).toBe(true);
    await expect(etcd.client(first).heal()).rejects.toThrow("This client has crashed");
    await expect(etcd.client(first).cut()).rejects.toThrow("This client has crashed");
    await etcd.heal();
    await etcd.restart();
    expect(await etcd.isQuiet()).toBe(true);
  });

  it("crash: a session that is just being opened opens no more", async () => {
    const etcd = await start();
    const cluster = client(etcd);
    const opening = cluster.session();
    const refused = expect(opening).rejects.toMatchObject({ code: "SESSION_CLOSED" });

    await etcd.client(cluster).crash();

    await refused;
    expect((await etcd.leftovers()).leases).toEqual([]);
  });

  it("is undone neither by heal() of the etcd nor by a restart, and does not undo theirs", async () => {
    const { etcd, first, second, lock, next } = await contenders();
    await etcd.client(first).cut();
    await etcd.cut();
    await etcd.heal();
    await etcd.restart();
    await etcd.advance(20_000);
    expect([lock.held, (await next).held]).toEqual([false, true]);

    await etcd.cut();
    await etcd.client(first).heal();
    const waiting = first.session({ timeoutMs: 2_000 }).catch((error: { code: string }) => error.code);
    await etcd.advance(2_000);
    expect(await waiting).toBe("ETCD_UNAVAILABLE");
    await etcd.heal();
    await Promise.all([first.session(), second.session(), etcd.advance(5_000)]);
  });

  it("all clients notice a fault of the members, also one that has connected since", async () => {
    const { etcd, first, second } = await contenders();
    await etcd.cut();
    const third = client(etcd);
    const calls = [first, second, third].map((each) =>
      new Mutex(each, "d").tryLock({ timeoutMs: 1_000 }).catch((error: { code: string }) => error.code),
    );
    await etcd.advance(1_000);
    expect(await Promise.all(calls)).toEqual(Array(3).fill("ETCD_UNAVAILABLE"));
  });

  it("closed while it is cut off, it leaves a watch until the link is healed, as a process behind a firewall does", async () => {
    const { etcd, first, second } = await contenders();
    await etcd.client(second).cut();
    await second.close();
    await first.close();
    client(etcd);

    expect((await etcd.leftovers()).watches).toBeGreaterThan(0);
    await etcd.client(second).heal();
    await etcd.advance(20_000);
    expect(await etcd.isQuiet()).toBe(true);
  });

  it("is of a cluster of this etcd, and of no other", async () => {
    const [etcd, other] = [await start(), await start()];
    const cluster = client(other);
    for (const wrong of [cluster, undefined, "c0", {}, await cluster.session()])
      expect(() => etcd.client(wrong as Cluster)).toThrow(
        "Expected cluster to be a Cluster that connect() has made for the hosts of this etcd, got",
      );
    const one = other.client(cluster);
    await expect(one.cut(undefined, { how: "slow" as never })).rejects.toThrow(
      'Expected how to be "silent" or "reset", got "slow"',
    );
    await expect(one.cut(1)).rejects.toThrow("Expected member to be a member's index, from 0 to 0, got 1");
    await cluster.close();
    await other.stop();
    await expect(one.heal()).rejects.toThrow("This etcd was stopped");
  });
});

const linesOf = (etcd: MemoryEtcd): string[] => etcd.history().split("\n");
