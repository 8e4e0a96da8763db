// The key of a sticky lock stays with its session after a release. What the session believes is compared with etcd's queue, and with what
// another client gets.
import { inspect as text } from "node:util";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  connect,
  FenceGate,
  forceRelease,
  inspect,
  list,
  lockAll,
  Mutex,
  once,
  RwLock,
  Semaphore,
  Session,
  whileHeld,
} from "../../../src/index.js";
import {
  etcdOf,
  type Held,
  promises,
  slug,
  type Subject,
  SUBJECTS,
  titled,
} from "../../support/fixtures/subjects.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(600);
const { putKey, deleteKey, until, queued, revision } = etcdOf(two);
const STICKY = { sticky: true } as const;
const sticky = titled(SUBJECTS.filter((subject) => promises(subject, "sticky")));

const keysOf = async (name: string) => (await two.places(name)).map(({ key }) => key);

/** Two holds, one after the other: the first one is plain, and the key of the second one stays. */
async function keep(name: string, take = (): Promise<Held> => new Mutex(two.holder, name, STICKY).lock()) {
  await (await take()).release();
  await queued(name, 0);
  const hold = await take();
  await hold.release();
  expect(await two.places(name)).toHaveLength(1);
}

const locked = async (name: string) => new Mutex(two.holder, name, STICKY).lock();

/** So often would it be taken again within a second or two. */
const MANY = 500_000;

/** A try waits so long for another session to give a key back. */
const ASK_MS = 50;

test.each(["the same", "another"])(
  "a key that nobody has keeps no slot of %s session from running",
  async (whose) => {
    // etcd may execute the two requests of one session in either order.
    const names = Array.from({ length: 10 }, (_, n) => `slot/${whose}/${n}`);
    let ran = 0;
    for (const name of names) {
      await keep(name);
      const session = whose === "another" ? two.session : two.holder;
      const asked = performance.now();
      const result = await once(session, name, 1, () => "work", { ifHeld: "skip" });
      if (result.ran) ran++;
      // On a busy machine, the other session may need longer to give the key back.
      else expect(performance.now() - asked).toBeGreaterThan(ASK_MS);
      await queued(name, 0);
    }
    expect(ran).toBeGreaterThan(whose === "another" ? 0 : 9);
  },
);

test("a slot is skipped while a caller has the sticky lock", async () => {
  const name = "slot/held";
  await keep(name);
  const lock = await locked(name);

  const result = await once(two.session, name, 1, () => "work", { ifHeld: "skip" });

  expect(result).toEqual({ ran: false, reason: "held", run: undefined });
  await lock.release();
  await queued(name, 0);
});

test.each([1, 3])(
  "is passed on by a process with callers that take it again without a pause: %d",
  async (callers) => {
    const name = `no-pause/${callers}`;
    await keep(name);
    const others: Held[] = [];
    const asking = new Mutex(two.session, name).lock().then((lock) => {
      others.push(lock);
      return lock.release();
    });

    let times = 0;
    const hammer = async (): Promise<void> => {
      for (; others.length === 0 && times < MANY; times++) await (await locked(name)).release();
    };
    await Promise.all(Array.from({ length: callers }, hammer));

    expect(times).toBeLessThan(MANY);
    await asking;
  },
);

describe.each(sticky)("%s that is sticky", (what, subject: Subject) => {
  const nameOf = (of: string) => `${slug(what)}/${of}`;
  const take = (name: string) => subject.take(two.holder, name, undefined, STICKY);
  const kept = (name: string) => keep(name, () => take(name));

  test("is taken again with the key that has stayed", async () => {
    const name = nameOf("again");
    await kept(name);
    const [key] = await keysOf(name);

    const hold = await take(name);
    expect(hold.held).toBe(true);
    expect(await keysOf(name)).toEqual([key]);
    await hold.release();

    expect(hold.held).toBe(false);
    expect(await keysOf(name)).toEqual([key]);
  });

  test("goes to another session that asks while nobody has it", async () => {
    const name = nameOf("asked");
    await kept(name);
    const [key] = await keysOf(name);

    const hold = await subject.block(two.session, name);

    expect(await keysOf(name)).not.toContain(key);
    await hold.release();
  });

  test("goes with its release to another session that has asked meanwhile, before a later call of its own", async () => {
    const name = nameOf("first");
    await kept(name);
    const hold = await take(name);
    const order: string[] = [];
    const stranger = subject.block(two.session, name).then((got) => (order.push("stranger"), got));
    await queued(name, 2);
    await until(() => hold.wanted);
    const own = take(name).then((got) => (order.push("own"), got));

    await hold.release();
    await (await stranger).release();
    await (await own).release();

    expect(order).toEqual(["stranger", "own"]);
  });

  test("is lost in silence with a key that is deleted while nobody has it", async () => {
    const name = nameOf("deleted");
    await kept(name);
    const [key] = await keysOf(name);
    const revision = (await two.places(name))[0]!.revision;

    await deleteKey(key!);
    await queued(name, 0);
    const other = await subject.take(two.session, name);
    await other.release();
    await queued(name, 0);
    const hold = await take(name);

    expect(hold.revision).toBeGreaterThan(revision);
    expect((await two.places(name)).some((place) => place.revision === hold.revision)).toBe(true);
    await hold.release();
  });

  test("gives a key that nobody has back when its session closes, and takes no part in the drain", async () => {
    const name = nameOf("closed");
    const session = await Session.open(two.cluster, { ttlSeconds: 600 });
    await keep(name, () => subject.take(session, name, undefined, STICKY));
    const other = await subject.take(session, nameOf("still-held"));

    const closing = session.close({ drainMs: 60_000 });
    await queued(name, 0);
    await other.release();
    await closing;
  });
});

test("a call right before the close of its session is rejected, as one that waits is", async () => {
  const session = await Session.open(two.cluster, { ttlSeconds: 600 });
  const mutex = new Mutex(session, "closing", STICKY);
  await keep("closing", () => mutex.lock());
  await (await mutex.lock()).release();
  const call = reasonOf(mutex.lock());
  const closing = session.close({ drainMs: 0 });

  expect(await call).toMatchObject({ code: "SESSION_CLOSED" });
  await closing;
});

test("a call right before the abort of its signal is rejected, as one that waits is", async () => {
  const mutex = new Mutex(two.holder, "aborting", STICKY);
  await keep("aborting", () => mutex.lock());
  const caller = new AbortController();
  let ran = false;
  const call = reasonOf(mutex.withLock(() => (ran = true), { signal: caller.signal }));
  const reason = new Error("not needed any more");
  caller.abort(reason);

  expect([await call, ran]).toEqual([reason, false]);
  await (await mutex.lock()).release();
});

test("the first lock of a name is plain", async () => {
  await (await locked("plain")).release();
  await queued("plain", 0);
});

test("a hold by a key that has stayed has its fence, and the next turn", async () => {
  const name = "turns";
  await keep(name);
  const gate = new FenceGate();
  const first = await locked(name);
  gate.admit(first.fence, first.turn);
  await first.release();
  const second = await locked(name);
  gate.admit(second.fence, second.turn);

  expect([second.fence, second.turn]).toEqual([first.fence, first.turn + 1]);
  expect(() => gate.admit(first.fence, first.turn)).toThrow(/turn 2.*turn 3/);
  expect(JSON.parse(JSON.stringify(second))).toMatchObject({ fence: String(first.fence), turn: 3 });
  await second.release();
});

test("the key of a hold that guards a write leaves with the release", async () => {
  const name = "guards";
  await keep(name);
  const lock = await locked(name);
  whileHeld(lock);
  await lock.release();
  await queued(name, 0);
});

test("a condition on a hold that has ended is never true, also under the next hold by the same key", async () => {
  const name = "guards/ended";
  await keep(name);
  const first = await locked(name);
  await first.release();
  const isTrue = async () => {
    const [key, , , create_revision] = whileHeld(first);
    const condition = { key: Buffer.from(key).toString("base64"), target: "CREATE", result: "EQUAL" };
    const compare = [{ ...condition, create_revision }];
    const { succeeded = false } = (await two.etcd.member.gateway("/v3/kv/txn", { compare })) as {
      succeeded?: boolean;
    };
    return succeeded;
  };

  expect(await isTrue()).toBe(false);
  const second = await locked(name);
  expect(second.revision).toBe(first.revision);
  expect(await isTrue()).toBe(false);
  await second.release();
});

test("a foreign client that puts a key behind it gets the lock", async () => {
  const name = "foreign";
  await keep(name);
  await putKey(`${name}/31`, "");
  await until(async () => (await keysOf(name)).join() === `${name}/31`);
  await deleteKey(`${name}/31`);
});

test("callers of one process take it one after the other, without a request, in the order of their calls", async () => {
  const name = "line";
  await keep(name);
  const [key] = await keysOf(name);
  let inside = 0;
  const order: number[] = [];
  const mutex = new Mutex(two.holder, name, STICKY);
  const work = async (n: number) =>
    mutex.withLock(async (lock) => {
      expect([++inside, lock.key]).toEqual([1, key]);
      order.push(n);
      await new Promise(setImmediate);
      inside--;
    });
  await Promise.all(Array.from({ length: 50 }, (_, n) => work(n)));

  expect(order).toEqual(Array.from({ length: 50 }, (_, n) => n));
  expect(await keysOf(name)).toEqual([key]);
});

test("callers that wait in the process can give up, and the next one is served", async () => {
  const name = "gives-up";
  await keep(name);
  const lock = await locked(name);
  const mutex = new Mutex(two.holder, name, STICKY);
  const controller = new AbortController();
  const aborted = reasonOf(mutex.lock({ signal: controller.signal }));
  const late = reasonOf(mutex.lock({ timeoutMs: 1000 }));
  const last = mutex.lock();
  controller.abort(new Error("enough"));

  expect(await aborted).toMatchObject({ message: "enough" });
  expect(await late).toMatchObject({ code: "LOCK_TIMEOUT", holder: { key: lock.key } });
  await lock.release();
  expect((await last).key).toBe(lock.key);
  await (await last).release();
});

test("with `local`, callers of the process pass it on so often while another session waits", async () => {
  const name = "local";
  const mutex = new Mutex(two.holder, name, { sticky: true, local: { turns: 3, ms: 60_000 } });
  await keep(name, () => mutex.lock());
  const order: string[] = [];
  const lock = await mutex.lock();
  const stranger = new Mutex(two.session, name).withLock(() => void order.push("stranger"));
  await queued(name, 2);
  await until(() => lock.wanted);
  const own = Array.from({ length: 5 }, async () => mutex.withLock(() => void order.push("own")));
  await lock.release();
  await Promise.all([stranger, ...own]);

  expect(order).toEqual(["own", "own", "own", "stranger", "own", "own"]);
});

/** Two callers of another session always wait, and five of a process take it as often as they can: how often in a row, as long as the others go on. */
async function runsBeside(
  name: string,
  local: { readonly turns: number; readonly ms: number },
  holdMs: number,
) {
  const runs: number[] = [];
  const held = () => new Promise((resolve) => setTimeout(resolve, holdMs));
  let ends = 0;
  let isOver = false;
  const own = Array.from({ length: 5 }, async () => {
    const mutex = new Mutex(two.holder, name, { sticky: true, local });
    while (!isOver)
      await mutex.withLock(() => {
        runs[runs.length - 1]!++;
        return held();
      });
  });
  runs.push(0);
  const others = Array.from({ length: 2 }, async () => {
    while (ends < 12)
      await new Mutex(two.session, name).withLock(async () => {
        ends++;
        runs.push(0);
        await new Promise((resolve) => setTimeout(resolve, 20));
      });
  });
  await Promise.all(others);
  isOver = true;
  await Promise.all(own);
  // At first the others come one by one, and at the end they are gone.
  return runs.slice(3, -2).filter((run) => run > 0);
}

test.each([0, 20])(
  "with `local`, callers of the process pass it on so often while others wait all the time, by holds of %d ms",
  async (holdMs) => {
    const runs = await runsBeside(`local/all-the-time/${holdMs}`, { turns: 7, ms: 60_000 }, holdMs);

    expect(runs.length).toBeGreaterThan(2);
    expect(runs).toEqual(runs.map(() => 8));
  },
);

test("with `local`, one caller of the process waits in the queue, until another one comes that can't be passed the lock", async () => {
  const name = "local/one-key";
  const mutex = new Mutex(two.holder, name, { sticky: true, local: { turns: 3, ms: 60_000 } });
  await keep(name, () => mutex.lock());
  const stranger = await new Mutex(two.session, name).lock();
  const locals = Array.from({ length: 3 }, async () => mutex.withLock(() => undefined));
  await queued(name, 2);
  expect(await two.places(name)).toHaveLength(2);

  const plain = new Mutex(two.holder, name).withLock(() => undefined);
  await queued(name, 5);
  await stranger.release();
  await Promise.all([...locals, plain]);
});

test("with `local`, callers of the process pass it on for so long while others wait all the time", async () => {
  const runs = await runsBeside("local/for-long", { turns: 1000, ms: 100 }, 20);

  // From the grant on, five or six holds begin.
  for (const run of runs) expect(run).toBeLessThanOrEqual(6);
  expect(Math.max(...runs)).toBeGreaterThan(1);
});

describe("a call of the same session that can't use the key gets the lock:", () => {
  const SAME: readonly (readonly [
    string,
    (name: string) => Promise<{ release(): Promise<void> } | undefined>,
  ])[] = [
    ["a plain lock", (name) => new Mutex(two.holder, name).lock()],
    ["a plain tryLock", (name) => new Mutex(two.holder, name).tryLock()],
    ["a reader", (name) => new RwLock(two.holder, name, STICKY).readLock()],
    ["a call with priorities", (name) => new Mutex(two.holder, name, { priorities: true }).lock()],
    ["lockAll", (name) => lockAll(two.holder, [name, `${name}-2`])],
  ];
  test.each(SAME)("%s", async (what, take) => {
    const name = `same/${slug(what)}`;
    await keep(name);
    const lock = await take(name);
    expect(lock).toBeDefined();
    await lock?.release();
  });

  test("lockAll that waited behind a call for the lock", async () => {
    const name = "same/waited";
    await (await locked(name)).release();
    await queued(name, 0);
    const other = await new Mutex(two.session, name).lock();
    const lock = locked(name);
    await queued(name, 2);
    const all = lockAll(two.holder, [name, `${name}-2`]);
    await queued(name, 3);
    await other.release();
    await (await lock).release();
    await (await all).release();
  });

  test("lockAll that joined before the lock was taken again", async () => {
    const name = "same/joined";
    await keep(name);
    const lock = await locked(name);
    const all = lockAll(two.holder, [name, `${name}-2`]);
    await queued(name, 2);
    await lock.release();
    await (await all).release();
  });
});

test("tryLock takes the key that has stayed, and finds the lock taken while a caller has it", async () => {
  const name = "try";
  await keep(name);
  const mutex = new Mutex(two.holder, name, STICKY);
  // It waits until etcd has shown that nobody else is there.
  await (await mutex.lock()).release();
  const lock = await mutex.tryLock();

  expect(lock?.turn).toBe(3);
  expect(await mutex.tryLock()).toBeUndefined();
  await lock?.release();
  expect((await mutex.tryLock())?.turn).toBe(4);
});

describe("a try of another session", () => {
  type Take = (session: Session, name: string) => Promise<Held | undefined>;
  const TRIES: readonly (readonly [string, Take, Take])[] = [
    ["a mutex", (s, name) => new Mutex(s, name, STICKY).lock(), (s, name) => new Mutex(s, name).tryLock()],
    [
      "a writer",
      (s, name) => new RwLock(s, name, STICKY).writeLock(),
      (s, name) => new RwLock(s, name).tryReadLock(),
    ],
    [
      "a reader",
      (s, name) => new RwLock(s, name, STICKY).readLock(),
      (s, name) => new RwLock(s, name).tryWriteLock(),
    ],
    [
      "a permit",
      (s, name) => new Semaphore(s, name, 1, STICKY).acquire(),
      (s, name) => new Semaphore(s, name, 1).tryAcquire(),
    ],
  ];

  test.each(TRIES)(
    "gets the lock if nobody has the key that has stayed: of %s",
    async (what, take, tries) => {
      // A try waits for some round trips only. On a busy machine, the session that has the key may answer later: then another name is tried.
      for (let n = 0; ; n++) {
        const name = `tries/${slug(what)}-${n}`;
        await keep(name, () => take(two.holder, name) as Promise<Held>);
        const [key] = await keysOf(name);

        const hold = await tries(two.session, name);

        if (hold === undefined && n < 5) continue;
        expect(hold?.held).toBe(true);
        const there = await keysOf(name);
        expect(there).toHaveLength(1);
        expect(there).not.toContain(key);
        return;
      }
    },
  );

  test("takes a permit's key that has stayed for a lock of another kind, and leaves nothing", async () => {
    for (const [what, , tries] of TRIES.filter(([each]) => each !== "a permit")) {
      const name = `tries-other-kinds/${slug(what)}`;
      await keep(name, () => new Semaphore(two.holder, name, 1, STICKY).acquire());
      const before = await keysOf(name);

      expect(await tries(two.session, name)).toBeUndefined();

      // On a busy machine, its own session may see the try before that has left, and give the key back.
      const left = async () => (await keysOf(name)).filter((key) => !before.includes(key));
      await expect.poll(left).toEqual([]);
    }
  });

  test.each(TRIES)(
    "leaves nothing if somebody has it, and does not ask again at once: of %s",
    async (what, take, tries) => {
      const name = `tried/${slug(what)}`;
      await keep(name, () => take(two.holder, name) as Promise<Held>);
      const hold = (await take(two.holder, name)) as Held;
      const [key] = await keysOf(name);

      expect(await tries(two.session, name)).toBeUndefined();
      await queued(name, 1);
      const before = await revision();
      expect(await tries(two.session, name)).toBeUndefined();
      expect(await revision()).toBe(before);

      expect(await keysOf(name)).toEqual([key]);
      expect(hold.held).toBe(true);
      // It leaves with its hold.
      await hold.release();
      expect(await keysOf(name)).toEqual([]);
    },
  );

  test("that was not heard asks again, a second later", async () => {
    const name = "tried/not-heard";
    const deaf = `${name}/31`;
    await putKey(deaf, JSON.stringify({ owner: "deaf", sticky: true }));
    const mutex = new Mutex(two.session, name);
    expect(await mutex.tryLock()).toBeUndefined();
    await queued(name, 1);

    await new Promise((resolve) => setTimeout(resolve, 1000));
    const before = await revision();
    const answer = mutex.tryLock();
    await until(async () => (await revision()) > before);
    await deleteKey(deaf);

    await (await answer)?.release();
    await queued(name, 0);
  });
});

test("a permit beside others stays, and the calls of the session take those that have stayed", async () => {
  const name = "permits";
  const semaphore = new Semaphore(two.holder, name, 3, STICKY);
  await (await semaphore.acquire()).release();
  await queued(name, 0);
  const holds = await Promise.all([semaphore.acquire(), semaphore.acquire()]);
  await Promise.all(holds.map((hold) => hold.release()));
  const kept = await keysOf(name);
  expect(kept).toHaveLength(2);

  const again = await Promise.all([semaphore.acquire(), semaphore.acquire()]);
  expect(again.map(({ key }) => key).sort()).toEqual(kept.sort());
  const other = new Semaphore(two.session, name, 3);
  expect(await other.tryAcquire()).toBeDefined();
  expect(await other.tryAcquire()).toBeUndefined();
  for (const hold of again) await hold.release();
});

test("a call that would wait for its own async context is rejected, also if a key has stayed for it", async () => {
  const permits = new Semaphore(two.holder, "inside", 2, STICKY);
  const take = () => permits.acquire();
  await keep("inside", take);
  const holds = await Promise.all([take(), take()]);
  await Promise.all(holds.map((hold) => hold.release()));
  expect(await two.places("inside")).toHaveLength(2);

  const inside = await permits.withPermit(() => reasonOf(take()));

  expect(inside).toMatchObject({ code: "DEADLOCK" });
});

test("what shows the queue says that the key is held or kept, as etcd is told of neither, and a plain lock of it holds", async () => {
  const name = "shown/sticky";
  await keep(name);
  const plain = await new Mutex(two.holder, "shown/plain").lock();
  const sticky = await locked(name);
  const held = await inspect(two.cluster, name);
  await sticky.release();
  const kept = await inspect(two.cluster, name);
  const { locks } = await list(two.cluster, "shown/");
  const late = await reasonOf(new Mutex(two.holder, "shown/plain").lock({ timeoutMs: 1000 }));

  expect([held, kept].map(({ holders }) => [holders[0]?.state, holders[0]?.sticky])).toEqual([
    ["holding", true],
    ["holding", true],
  ]);
  for (const state of [held, kept])
    expect(text(state)).toMatch(/: 1 held or kept, 0 waiting\n {2}held or kept {2}the holder/);
  expect(locks.map((lock) => [lock.name, lock.holder?.sticky])).toEqual([
    ["shown/plain", false],
    [name, true],
  ]);
  // The call that gave up leaves in the background.
  await queued("shown/plain", 1);
  expect(text(await inspect(two.cluster, "shown/plain"))).toMatch(/: 1 holding, 0 waiting\n {2}holding/);
  expect(late).toMatchObject({ message: expect.stringContaining("held by the holder") as string });
  await plain.release();
});

test("forceRelease takes a key that has stayed, and the next call joins again", async () => {
  const name = "forced";
  await keep(name);
  const [holder] = (await inspect(two.cluster, name)).holders;
  await forceRelease(two.cluster, holder!);
  await queued(name, 0);
  const lock = await locked(name);
  expect(lock.fence).toBeGreaterThan(holder!.revision);
  await lock.release();
});

test("a session that is given up with `orphan` gives back what nobody has; what is held stays, with the last turn", async () => {
  const cluster = connect({ hosts: two.etcd.endpoints });
  onTestFinished(() => cluster.close({ drainMs: 0 }));
  const session = await Session.open(cluster, { ttlSeconds: 600 });
  const lock = (name: string) => new Mutex(session, name, STICKY).lock();
  await keep("orphaned/idle", () => lock("orphaned/idle"));
  await keep("orphaned/held", () => lock("orphaned/held"));
  const held = await lock("orphaned/held");

  const leaseId = await session.orphan();
  await queued("orphaned/idle", 0);
  const adopted = await Session.adopt(cluster, leaseId);
  const next = await new Mutex(adopted, "orphaned/held", STICKY).lock();

  expect([next.fence, next.turn]).toEqual([held.fence, Number.MAX_SAFE_INTEGER]);
  await next.release();
  await queued("orphaned/held", 0);
});

test.each([
  [{ sticky: "yes" }, "Expected sticky to be true or false"],
  [{ local: { turns: 2 } }, "Option local of Mutex needs sticky: true"],
  [{ sticky: true, local: {} }, "Expected local.turns to be"],
  [{ sticky: true, local: { turns: 0 } }, "Expected local.turns to be"],
  [{ sticky: true, local: { turns: 2, ms: -1 } }, "Expected local.ms to be"],
  [{ sticky: true, local: { turn: 2 } }, "Unknown option turn of local: did you mean turns"],
])("options %j are refused: %s", (options, message) => {
  expect(() => new Mutex(two.holder, "options", options as never)).toThrow(message);
});
