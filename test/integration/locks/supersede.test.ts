// Newest wins: a call with `supersede` takes the place of the older ones that wait, and of nobody else.
import { describe, expect, onTestFinished, test } from "vitest";
import {
  type Cluster,
  connect,
  httpStatusOf,
  inspect,
  type Lock,
  lockAll,
  Mutex,
  RwLock,
  Semaphore,
  Session,
  type SessionSource,
} from "../../../src/index.js";
import { etcdOf } from "../../support/fixtures/subjects.js";
import { meter } from "../../support/fixtures/spent.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { behindProxy } from "../../support/proxies/behind-proxy.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";

/** No renewal falls into a test. */
const two = twoSessions(600);
const { places, queued } = two;
const { deleteKey, revision, revoke, until } = etcdOf(two);

const NEWEST = { supersede: true } as const;

const superseded = (lockName: string, by: string | undefined): unknown =>
  expect.objectContaining({ code: "SUPERSEDED", lockName, by });

const newest = (source: SessionSource, name: string): Promise<Lock> => new Mutex(source, name).lock(NEWEST);

/** Sessions of five processes, each with a name of its own. */
async function five() {
  const clusters = Array.from({ length: 5 }, () => connect({ hosts: two.etcd.endpoints }));
  const open = (cluster: Cluster, n: number) =>
    Session.open(cluster, { ttlSeconds: 600, owner: `process ${n}` });
  const sessions = await Promise.all(clusters.map(open));
  const stop = async () => void (await Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 }))));
  return { sessions, [Symbol.asyncDispose]: stop };
}

/** Waits until the last place of the queue is that of another entry. */
async function joined(name: string, after: bigint): Promise<bigint> {
  await until(async () => ((await places(name)).at(-1)?.revision ?? 0n) > after);
  return (await places(name)).at(-1)!.revision;
}

const written = (spent: Record<string, number>) => ({ Txn: spent["Txn"], revisions: spent["revisions"] });

/** The second one puts the entry: the first has found the lock taken. */
const second = (name: string) => (request: Buffer, n: number) => n === 2 && request.includes(`${name}/`);

const TXN = "/etcdserverpb.KV/Txn";

/** What the call rejects with whose entry etcd puts without an answer. */
function lostJoin(
  { proxy, session }: Awaited<ReturnType<typeof behindProxy>>,
  name: string,
): Promise<unknown> {
  proxy.rule({ path: TXN, act: "drop-answer", when: second(name), times: 1 });
  return reasonOf(newest(session, name));
}

describe("a call with supersede", () => {
  test("gets a free lock in one request, as without the option", async () => {
    const counted = await meter(two.etcd.member);
    const lock = await newest(two.session, "newest/free");
    expect(written(await counted.read())).toEqual({ Txn: 1, revisions: 1 });
    await lock.release();
  });

  test("of five processes waits alone, and the others are told who has come", async () => {
    const name = "newest/five";
    await using lock = await new Mutex(two.holder, name).lock();
    await using processes = await five();
    let last = lock.fence;
    const calls: Promise<unknown>[] = [];
    for (const session of processes.sessions) {
      calls.push(newest(session, name).catch((error: unknown) => error));
      last = await joined(name, last);
    }
    for (const [n, call] of calls.slice(0, -1).entries())
      expect(await call).toEqual(superseded(name, `process ${n + 1}`));
    expect((await places(name)).map(({ leaseId }) => leaseId)).toEqual([
      two.holder.leaseId,
      processes.sessions[4]!.leaseId,
    ]);

    await lock.release();
    const granted = (await calls[4]) as Lock;
    expect(granted.fence).toBe(last);
    await granted.release();
    expect(await places(name)).toEqual([]);
  });

  test("takes a place in the queue with two requests, whatever it overtakes", async () => {
    const name = "newest/requests";
    await using lock = await new Mutex(two.holder, name).lock();
    const older = reasonOf(newest(two.holder, name));
    await queued(name, 2);

    const counted = await meter(two.etcd.member);
    const call = newest(two.session, name);
    expect(await older).toEqual(superseded(name, two.session.owner));
    expect(written(await counted.read())).toEqual({ Txn: 2, revisions: 1 });
    await lock.release();
    await (await call).release();
  });

  test("stands behind the callers without the option, which keep their places", async () => {
    const name = "newest/plain";
    await using lock = await new Mutex(two.holder, name).lock();
    const order: string[] = [];
    const held = (what: string) => () => void order.push(what);
    const calls: Promise<unknown>[] = [];
    const call = async (source: SessionSource, what: string, options?: { supersede: true }) => {
      const after = (await places(name)).at(-1)!.revision;
      calls.push(new Mutex(source, name).withLock(held(what), options).catch(() => held(`no ${what}`)()));
      await joined(name, after);
    };
    await call(two.session, "plain 1");
    await call(two.session, "older", NEWEST);
    await call(two.holder, "plain 2");
    await call(two.session, "plain 3");
    await call(two.holder, "newest", NEWEST);
    await until(() => order.length === 1);
    expect(await places(name)).toHaveLength(5);
    await lock.release();
    await Promise.all(calls);
    expect(order).toEqual(["no older", "plain 1", "plain 2", "plain 3", "newest"]);
  });

  test("asks the holder to leave, and leaves it the lock", async () => {
    const name = "newest/holder";
    const stopped: unknown[] = [];
    const holding = new Mutex(two.holder, name).withLock(async (lock) => {
      const stop = new AbortController();
      lock.onWanted(({ owner, reason }) => stop.abort({ owner, reason }));
      await new Promise((resolve) => stop.signal.addEventListener("abort", resolve));
      stopped.push(stop.signal.reason);
      lock.assertHeld();
    }, NEWEST);
    await queued(name, 1);
    const reason = "deploy 4712";
    const lock = await new Mutex(two.session, name).lock({ ...NEWEST, reason });
    expect(stopped).toEqual([{ owner: two.session.owner, reason }]);
    await holding;
    await lock.release();
  });

  test("of one session ends the older ones of that session, in the queue and before it", async () => {
    const name = "newest/own";
    await using lock = await new Mutex(two.session, name).lock();
    const first = reasonOf(newest(two.session, name));
    await queued(name, 2);
    // At once: most of them have not been sent.
    const calls = Array.from({ length: 50 }, () => newest(two.session, name));
    const ended = await Promise.all([first, ...calls.slice(0, -1).map(reasonOf)]);
    expect(ended).toEqual(ended.map(() => superseded(name, two.session.owner)));
    await queued(name, 2);
    await lock.release();
    await (await calls.at(-1)!).release();
    expect(await places(name)).toEqual([]);
  });

  test("that is aborted leaves the place to nobody, and those it has overtaken stay away", async () => {
    const name = "newest/aborted";
    await using lock = await new Mutex(two.holder, name).lock();
    const older = reasonOf(newest(two.session, name));
    const last = await joined(name, lock.fence);
    const caller = new AbortController();
    const call = reasonOf(new Mutex(two.holder, name).lock({ ...NEWEST, signal: caller.signal }));
    await joined(name, last);
    caller.abort("no longer");
    expect(await call).toBe("no longer");
    expect(await older).toEqual(superseded(name, "the holder"));
    await queued(name, 1);
    await lock.release();
    expect(await places(name)).toEqual([]);
  });

  test("that has held and left by the time that an older one hears of it is named by etcd's history", async () => {
    const name = "newest/gone";
    await using behind = await behindProxy(two.etcd, name, 600);
    const lock = await new Mutex(two.holder, name).lock();
    const older = reasonOf(newest(behind.session, name));
    const last = await joined(name, lock.fence);
    const asked = behind.proxy.rule({ path: "/etcdserverpb.KV/Range", act: "hold" });
    const call = newest(two.session, name);
    await joined(name, last);
    await asked.hit();
    await lock.release();
    await (await call).release();
    expect(await places(name)).toEqual([]);
    asked.release();
    expect(await older).toEqual(superseded(name, two.session.owner));
    expect(await places(name)).toEqual([]);
  });

  test.each([
    ["far from their turn", 6],
    ["behind a hold of their own session", 0],
  ])("is heard of by a watch of those that wait %s", async (what, plain) => {
    const name = `newest/watch-${plain}`;
    await using behind = await behindProxy(two.etcd, name, 600);
    // Without the list of the session's keys.
    behind.proxy.rule({ path: "/etcdserverpb.Lease/LeaseTimeToLive", act: "drop-request" });
    const lock = await new Mutex(plain > 0 ? two.holder : behind.session, name).lock();
    const others = Array.from({ length: plain }, () => new Mutex(two.holder, name).withLock(() => what));
    await queued(name, 1 + plain);
    const older = reasonOf(newest(behind.session, name));
    await queued(name, 2 + plain);
    const call = newest(two.session, name);
    expect(await older).toEqual(superseded(name, two.session.owner));
    await lock.release();
    await Promise.all(others);
    await (await call).release();
  });

  test("of a process that has crashed is followed by the plain callers, when its lease ends", async () => {
    const name = "newest/crashed";
    await using processes = await five();
    const [crashes] = processes.sessions as [Session];
    await using lock = await new Mutex(two.holder, name).lock();
    const older = reasonOf(newest(two.session, name));
    await queued(name, 2);
    const call = reasonOf(newest(crashes, name));
    expect(await older).toEqual(superseded(name, "process 0"));
    const plain = new Mutex(two.session, name).lock();
    await queued(name, 3);
    await revoke(crashes);
    await lock.release();
    await (await plain).release();
    expect(await call).toMatchObject({ code: "SESSION_LOST" });
  });

  test("whose key an administrator deletes joins again, and overtakes nobody newer", async () => {
    const name = "newest/admin";
    await using lock = await new Mutex(two.holder, name).lock();
    const call = newest(two.session, name);
    const last = await joined(name, lock.fence);
    await deleteKey((await places(name))[1]!.key);
    const again = await joined(name, last);
    expect(await places(name)).toHaveLength(2);
    await lock.release();
    const granted = await call;
    expect(granted.fence).toBe(again);
    await granted.release();
  });

  test("whose key an administrator deletes gives way to a newer one that has come meanwhile", async () => {
    const name = "newest/admin-late";
    await using behind = await behindProxy(two.etcd, name, 600);
    await using lock = await new Mutex(two.holder, name).lock();
    const older = reasonOf(newest(behind.session, name));
    await queued(name, 2);
    const asked = behind.proxy.rule({ path: "/etcdserverpb.KV/Range", act: "hold" });
    await deleteKey((await places(name))[1]!.key);
    await asked.hit();
    const call = newest(two.session, name);
    await queued(name, 2);
    asked.release();
    expect(await older).toEqual(superseded(name, two.session.owner));
    await lock.release();
    await (await call).release();
  });

  test("whose key an administrator deletes ends, if a newer one has held and left before it joins again", async () => {
    const name = "newest/admin-left";
    await using behind = await behindProxy(two.etcd, name, 600);
    const lock = await new Mutex(two.holder, name).lock();
    const older = reasonOf(newest(behind.session, name));
    await queued(name, 2);
    const asked = behind.proxy.rule({ path: "/etcdserverpb.KV/Range", act: "hold" });
    await deleteKey((await places(name))[1]!.key);
    await asked.hit();
    const call = newest(two.session, name);
    await queued(name, 2);
    await lock.release();
    await (await call).release();
    asked.release();
    expect(await older).toEqual(superseded(name, two.session.owner));
    await queued(name, 0);
  });

  test("that joins again after the loss of its session gives way to a newer one", async () => {
    const name = "newest/rejoin";
    await using lock = await new Mutex(two.holder, name).lock();
    await using cluster = connect({ hosts: two.etcd.endpoints, session: { ttlSeconds: 600 } });
    const again = { ...NEWEST, rejoin: true };
    const alone = new Mutex(cluster, name).lock(again);
    const last = await joined(name, lock.fence);
    await revoke(await cluster.session());
    await joined(name, last);

    await using other = connect({ hosts: two.etcd.endpoints, session: { ttlSeconds: 600 } });
    const older = reasonOf(alone);
    const call = new Mutex(other, name).lock(again);
    expect(await older).toEqual(superseded(name, (await other.session()).owner));
    await lock.release();
    await (await call).release();
  });

  test("that joins again after the loss of its session ends, if a newer one has held and left by then", async () => {
    const name = "newest/rejoin-left";
    const lock = await new Mutex(two.holder, name).lock();
    const target = { port: two.etcd.member.clientPort };
    const proxy = await startGrpcProxy(target);
    await using cluster = connect({ hosts: proxy.endpoint, session: { ttlSeconds: 2 } });
    const older = reasonOf(new Mutex(cluster, name).lock({ ...NEWEST, rejoin: true }));
    await joined(name, lock.fence);
    const session = await cluster.session();
    await proxy.stop();
    const call = newest(two.session, name);
    await until(async () => (await places(name)).at(-1)!.leaseId === two.session.leaseId);
    await lock.release();
    await (await call).release();
    await until(() => session.signal.aborted);

    const again = await startGrpcProxy(target, { port: proxy.port });
    onTestFinished(() => again.stop());

    expect(await older).toEqual(superseded(name, two.session.owner));
    await queued(name, 0);
  });

  test("that was called before another one of its cluster never overtakes it, whichever joins the next session first", async () => {
    const name = "newest/older";
    await using lock = await new Mutex(two.holder, name).lock();
    await using cluster = connect({ hosts: two.etcd.endpoints, session: { ttlSeconds: 600 } });
    const mutex = new Mutex(cluster, name);
    const again = { ...NEWEST, rejoin: true };
    const opening = [reasonOf(mutex.lock(again)), mutex.lock(again)] as const;
    const session = await cluster.session();
    expect(await opening[0]).toEqual(superseded(name, session.owner));
    await queued(name, 2);

    const last = new Promise<Lock>((resolve, reject) => {
      session.signal.addEventListener("abort", () => void mutex.lock(again).then(resolve, reject));
    });
    await revoke(session);
    expect(await reasonOf(opening[1])).toEqual(superseded(name, session.owner));
    await queued(name, 2);
    await lock.release();
    await (await last).release();
  });

  test.each(["drop-answer", "repeat", "cut-answer"] as const)(
    "whose requests have the fate %s joins once, and overtakes the older one",
    async (act) => {
      const name = `newest/${act}`;
      await using behind = await behindProxy(two.etcd, name, 5);
      const lock = await new Mutex(two.holder, name).lock();
      const older = reasonOf(newest(two.holder, name));
      await queued(name, 2);
      const joins = { path: "/etcdserverpb.KV/Txn", act, when: (m: Buffer) => m.includes(`${name}/`) };
      const rule = behind.proxy.rule({ ...joins, times: 2 });
      const call = newest(behind.session, name);
      await rule.hit(2);
      expect(await older).toEqual(superseded(name, behind.session.owner));
      await queued(name, 2);
      await lock.release();
      await (await call).release();
      expect(await places(name)).toEqual([]);
    },
  );

  test("that joined without an answer, and was overtaken, does not overtake the newer one when it asks again", async () => {
    const name = "newest/unanswered";
    await using behind = await behindProxy(two.etcd, name, 600);
    await using lock = await new Mutex(two.holder, name).lock();
    // The first one finds the lock taken.
    const second = (request: Buffer, n: number) => n === 2 && request.includes(`${name}/`);
    behind.proxy.rule({ path: "/etcdserverpb.KV/Txn", act: "drop-answer", when: second, times: 1 });
    const older = reasonOf(newest(behind.session, name));
    const last = await joined(name, lock.fence);
    const call = newest(two.session, name);
    const mine = await joined(name, last);
    expect(await older).toEqual(superseded(name, two.session.owner));
    await lock.release();
    const granted = await call;
    expect(granted.fence).toBe(mine);
    await granted.release();
  });

  test.each([
    ["has held and left", { overtakes: false, aborted: false }],
    ["has held and left, after it has overtaken another one", { overtakes: true, aborted: false }],
    ["was aborted", { overtakes: false, aborted: true }],
  ])("that joined without an answer ends, if the newer one %s by then", async (_, { overtakes, aborted }) => {
    const name = `newest/unanswered-${overtakes}-${aborted}`;
    await using behind = await behindProxy(two.etcd, name, 600);
    const lock = await new Mutex(two.holder, name).lock();
    const oldest = overtakes ? reasonOf(newest(two.session, name)) : undefined;
    await queued(name, overtakes ? 2 : 1);
    const last = (await places(name)).at(-1)!.revision;
    const older = lostJoin(behind, name);
    await joined(name, last);
    expect(await oldest).toEqual(oldest && superseded(name, behind.session.owner));
    const caller = new AbortController();
    const call = new Mutex(two.session, name).lock({ ...NEWEST, signal: caller.signal });
    await until(async () => (await places(name)).at(-1)!.leaseId === two.session.leaseId);
    if (aborted) {
      caller.abort("no longer");
      expect(await reasonOf(call)).toBe("no longer");
    } else {
      await lock.release();
      await (await call).release();
    }
    expect(await older).toEqual(superseded(name, two.session.owner));
    await lock.release();
    await queued(name, 0);
  });

  test("that joined without an answer ends, if etcd has compacted what has come since", async () => {
    const name = "newest/unanswered-compacted";
    await using behind = await behindProxy(two.etcd, name, 600);
    const lock = await new Mutex(two.holder, name).lock();
    const older = lostJoin(behind, name);
    const last = await joined(name, lock.fence);
    const call = newest(two.session, name);
    await joined(name, last);
    await lock.release();
    await (await call).release();
    await two.etcd.member.gateway("/v3/kv/compaction", { revision: String(await revision()) });
    expect(await older).toEqual(superseded(name, undefined));
    await queued(name, 0);
  });

  test.each([
    ["nobody", false],
    ["an older one", true],
  ])(
    "whose request never arrived is not taken for superseded when the holder leaves, and overtakes %s",
    async (who, overtakes) => {
      const name = `newest/not-arrived-${overtakes}`;
      await using behind = await behindProxy(two.etcd, name, 600);
      const lock = await new Mutex(two.holder, name).lock();
      const other = overtakes ? newest(two.session, name) : undefined;
      await queued(name, overtakes ? 2 : 1);
      const lost = behind.proxy.rule({ path: TXN, act: "drop-request", when: second(name), times: 1 });
      const call = newest(behind.session, name);
      await lost.hit();
      await lock.release();
      await (await other)?.release();
      await (await call).release();
      expect(who).toBeDefined();
    },
  );

  test("that joined without an answer joins again if an administrator has deleted its key", async () => {
    const name = "newest/unanswered-admin";
    await using behind = await behindProxy(two.etcd, name, 600);
    const lock = await new Mutex(two.holder, name).lock();
    const call = lostJoin(behind, name);
    const last = await joined(name, lock.fence);
    await deleteKey((await places(name)).at(-1)!.key);
    await joined(name, last);
    await lock.release();
    expect(await call).toBeUndefined();
    await queued(name, 1);
  });

  test("deletes the delay keys of those that it overtakes, and not that of the holder", async () => {
    const name = "newest/delay";
    await using cluster = connect({ hosts: two.etcd.endpoints });
    const slow = await Session.open(cluster, { ttlSeconds: 600, releaseDelayMs: 60_000 });
    await using lock = await newest(slow, name);
    const older = reasonOf(newest(slow, name));
    await queued(name, 4);
    const call = reasonOf(newest(two.session, name));
    expect(await older).toEqual(superseded(name, two.session.owner));
    const left = await places(name);
    expect(left.map(({ revision }) => revision)).toEqual([lock.fence, lock.fence, left.at(-1)!.revision]);
    // The numbers of their keys are free again.
    const another = reasonOf(newest(slow, name));
    await joined(name, left.at(-1)!.revision);
    expect(await call).toEqual(superseded(name, slow.owner));
    expect(await places(name)).toHaveLength(4);
    const last = newest(two.session, name);
    expect(await another).toEqual(superseded(name, two.session.owner));
    await lock.release();
    await (await last).release();
    expect(await places(name)).toEqual([]);
  });

  test("waits behind locks of other modes, and is waited for by them", async () => {
    const name = "newest/modes";
    const reading = await new RwLock(two.holder, name).readLock();
    const older = reasonOf(newest(two.session, name));
    await queued(name, 2);
    const all = lockAll(two.holder, [`${name}-2`, name]);
    await queued(name, 3);
    const call = newest(two.session, name);
    expect(await older).toEqual(superseded(name, two.session.owner));
    await queued(name, 3);
    await reading.release();
    await (await all).release();
    await (await call).release();
  });

  test("of 16 sessions never ends a hold, and waits alone, by etcd's history", async () => {
    const name = "newest/crowd";
    const clusters = Array.from({ length: 16 }, () => connect({ hosts: two.etcd.endpoints }));
    const start = await revision();
    const fences: bigint[] = [];
    let [inside, most, over] = [0, 0, 0];
    await Promise.all(
      clusters.map(async (cluster, n) => {
        const mutex = new Mutex(cluster, name);
        for (let turn = 0; turn < 4; turn++)
          await mutex
            .withLock(
              async (lock) => {
                most = Math.max(most, ++inside);
                fences.push(lock.fence);
                // Others come meanwhile.
                await revision();
                inside--;
              },
              n % 5 === 0 ? {} : NEWEST,
            )
            .catch((error: unknown) => {
              expect(error).toMatchObject({ code: "SUPERSEDED" });
              over++;
            });
      }),
    );
    await Promise.all(clusters.map((cluster) => cluster.close()));
    expect(most).toBe(1);
    expect(fences.length + over).toBe(64);
    expect(over).toBeGreaterThan(10);
    expect(fences).toEqual([...fences].sort((a, b) => Number(a - b)));
    expect(await judged(name, start, new Set(fences))).toBeGreaterThan(10);
  });

  test.each([
    [{ supersede: "yes" }, "Expected supersede to be true or false"],
    [{ supersede: true, maxWaiting: 3 }, "Option supersede of lock excludes maxWaiting"],
  ])("rejects %j", async (options, message) => {
    const reason = await reasonOf(new Mutex(two.session, "newest/bad").lock(options as never));
    expect(reason).toBeInstanceOf(TypeError);
    expect((reason as Error).message).toContain(message);
  });

  test("is refused by a sticky Mutex, and by everything that is no Mutex", async () => {
    const [name, source] = ["newest/bad", two.session];
    const sticky = new Mutex(source, name, { sticky: true });
    const calls = [
      sticky.lock(NEWEST),
      sticky.withLock(() => "never", NEWEST),
      sticky.tryLock(NEWEST as never),
      new RwLock(source, name).writeLock(NEWEST as never),
      new Semaphore(source, name, 2).acquire(NEWEST as never),
      lockAll(source, [name], NEWEST as never),
    ];
    for (const call of calls) expect(await reasonOf(call)).toBeInstanceOf(TypeError);
    expect(await places(name)).toEqual([]);
  });

  test("has the stack of its own call in the error, which is a conflict in HTTP", async () => {
    const name = "newest/stack";
    await using lock = await new Mutex(two.holder, name).lock();
    const older = reasonOf(newest(two.session, name));
    await queued(name, 2);
    const call = newest(two.holder, name);
    const error = (await older) as Error;
    expect(error.message).toBe(`Superseded by a newer call for "${name}" of "the holder"`);
    expect(error.stack).toContain("supersede.test.ts");
    expect(httpStatusOf(error)).toBe(409);
    await lock.release();
    await (await call).release();
  });

  test("is a mutex for those who look at the queue", async () => {
    const name = "newest/shown";
    await using lock = await newest(two.session, name);
    expect(await inspect(two.cluster, name)).toMatchObject({ kind: "mutex", holders: [{ key: lock.key }] });
  });
});

interface Key {
  readonly key: string;
  readonly created: bigint;
  readonly supersedes: boolean;
}

async function keysAt(name: string, at: bigint): Promise<Key[]> {
  const [key, range_end] = [`${name}/`, `${name}0`].map((text) => Buffer.from(text).toString("base64"));
  const body = { key, range_end, revision: at.toString(), sort_target: "CREATE", sort_order: "ASCEND" };
  const { kvs = [] } = (await two.etcd.member.gateway("/v3/kv/range", body)) as {
    kvs?: { key: string; value: string; create_revision: string }[];
  };
  return kvs.map((kv) => ({
    key: kv.key,
    created: BigInt(kv.create_revision),
    supersedes: Buffer.from(kv.value, "base64").toString().includes(`"supersede":true`),
  }));
}

/** Goes through each revision of the queue. Returns how many entries were deleted by newer ones. */
async function judged(name: string, start: bigint, held: ReadonlySet<bigint>): Promise<number> {
  let overtaken = 0;
  let before = await keysAt(name, start);
  for (let at = start + 1n, end = await revision(); at <= end; at++) {
    const keys = await keysAt(name, at);
    const newer = keys.find(({ created, supersedes }) => created === at && supersedes);
    const deleted = before.filter(({ created }) => !keys.some((key) => key.created === created));
    if (newer && before.length > 0) {
      // The first one may hold. Nobody else does.
      expect(deleted.map(({ created }) => created)).not.toContain(before[0]!.created);
      for (const { created, supersedes } of deleted) {
        expect(supersedes).toBe(true);
        expect(held.has(created)).toBe(false);
      }
      expect(keys.slice(1).filter(({ supersedes }) => supersedes)).toEqual([newer]);
      overtaken += deleted.length;
    }
    before = keys;
  }
  return overtaken;
}
