// Joins and releases that are lost, late, or repeated by a proxy, as one with a retry policy does: etcd executes those twice.
import { afterAll, beforeAll, describe, test } from "vitest";
import { type Hold, lockAll, Mutex, RwLock } from "../../../src/index.js";
import { givesBack, takesPlace } from "../../support/clients/request-shape.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { meter } from "../../support/fixtures/spent.js";
import { type Held, slug, SUBJECTS, tried } from "../../support/fixtures/subjects.js";
import { behindProxy } from "../../support/proxies/behind-proxy.js";
import type { Act, Rule } from "../../support/proxies/grpc-proxy.js";

const TXN = "/etcdserverpb.KV/Txn";
const TTL_SECONDS = 10;
const FEW_TTLS = { timeoutMs: 4000 * TTL_SECONDS };

const CALLS = [
  ...SUBJECTS.map(({ what, take }) => ({ call: slug(what), take })),
  ...tried.map(({ what, tryTake }) => ({
    call: `trying-${slug(what)}`,
    take: async (...args: Parameters<typeof tryTake>) => (await tryTake(...args))!,
  })),
];

const FATES = [
  ["is executed twice", "repeat"],
  ["is executed, but its answer is dropped", "drop-answer"],
  ["is executed, but its connection breaks in place of the answer", "cut-answer"],
  ["is dropped", "drop-request"],
] as const;

const keysOf = ({ key, keys = [key!] }: Held & { key?: string; keys?: readonly string[] }) => keys;
const inOrder = (keys: readonly (readonly [string, bigint])[]) =>
  keys.toSorted(([a], [b]) => (a < b ? -1 : 1));

describe.concurrent("for every call that takes a lock,", { timeout: 60_000 }, () => {
  let etcd: EtcdCluster;
  beforeAll(async () => void (etcd = await startEtcd()), 60_000);
  afterAll(() => etcd.stop());

  /** A rule for the first request of each call. */
  async function stage(scene: string, act: Act, kind: (request: Buffer) => boolean) {
    const behind = await behindProxy(etcd, scene, TTL_SECONDS);
    const names = new Set(CALLS.map(({ call }) => `${scene}/${call}/`));
    const when = (request: Buffer) =>
      kind(request) && [...names].filter((name) => request.includes(name) && names.delete(name)).length > 0;
    const rule: Rule = behind.proxy.rule({ path: TXN, act, when });
    const takeAll = (source = behind.session as Parameters<(typeof CALLS)[0]["take"]>[0], calls = CALLS) =>
      Promise.all(calls.map(({ call, take }) => take(source, `${scene}/${call}`, FEW_TTLS)));
    return { ...behind, rule, takeAll, unmet: names };
  }
  const releaseAll = (holds: readonly Held[]) => Promise.all(holds.map((hold) => hold.release()));

  test.for(FATES)("a join that %s takes it once, under one key", async ([, act], { expect }) => {
    await using scene = await stage(`join-${act}`, act, takesPlace);

    const holds = await scene.takeAll();

    const places = await scene.places();
    expect([...scene.unmet]).toEqual([]);
    expect(holds.every(({ held }) => held)).toBe(true);
    expect(inOrder(places.map(({ key, revision }) => [key, revision]))).toEqual(
      inOrder(holds.flatMap((hold) => keysOf(hold).map((key) => [key, hold.revision] as const))),
    );
    // The retry found the first attempt's place: another one would have a different number.
    const id = scene.session.leaseId.toString(16);
    expect(places.filter(({ key }) => !key.endsWith(`/${id}`))).toEqual([]);
    await releaseAll(holds);
    expect(await scene.places()).toEqual([]);
  });

  test.for(FATES)("a release that %s is done, and no loss", async ([, act], { expect }) => {
    await using scene = await stage(`release-${act}`, act, givesBack);
    // From a join that was repeated, the session knows that a key that is missing may have been deleted by a repetition.
    if (act === "repeat") scene.proxy.rule({ path: TXN, act, when: takesPlace, times: 1 });
    const holds = await scene.takeAll();

    await releaseAll(holds);

    expect([...scene.unmet]).toEqual([]);
    for (const { signal } of holds) expect(signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
    expect(await scene.places()).toEqual([]);
    expect(scene.session.state).toBe("live");
  });

  test.for([
    ["is executed only", "hold"],
    ["is executed again", "repeat-late"],
  ] as const)("a join that %s after the release blocks nobody", async ([, act], { expect }) => {
    await using scene = await stage(`late-${act}`, act, takesPlace);
    await releaseAll(await scene.takeAll());

    scene.rule.release();
    await scene.rule.answered();

    // A try does not wait until the late key is gone.
    const waiting = CALLS.slice(0, SUBJECTS.length);
    await releaseAll(await scene.takeAll(scene.rivals, waiting));
    await expect.poll(() => scene.places()).toEqual([]);
    expect(scene.session.state).toBe("live");
  });

  test("transactions that are all executed twice do not need more and more keys", async ({ expect }) => {
    const own = await startEtcd();
    await using scene = await behindProxy(own, "every", TTL_SECONDS);
    scene.proxy.rule({ path: TXN, act: "repeat" });
    const counted = await meter(own.member);

    await (await new Mutex(scene.session, "every").lock(FEW_TTLS)).release();

    // One put and one delete: the repeated requests change nothing.
    expect(await counted.read()).toMatchObject({ revisions: 2 });
    await scene[Symbol.asyncDispose]();
    await own.stop();
  });

  test("a lockAll behind a holder finds its own places when the answer to its join is lost", async ({
    expect,
  }) => {
    await using scene = await behindProxy(etcd, "behind", TTL_SECONDS);
    const names = ["behind/a", "behind/b"];
    const held = await new Mutex(scene.rivals, "behind/b").lock();
    // The first one only checks whether the queue is empty, and is answered.
    let asked = 0;
    const join = (request: Buffer) => takesPlace(request) && ++asked > 1;
    const rule = scene.proxy.rule({ path: TXN, when: join, act: "drop-answer", times: 1 });

    const waiting = lockAll(scene.session, names);
    await expect.poll(async () => (await scene.places()).length).toBe(3);
    await expect.poll(() => rule.hits).toBe(1);
    await held.release();
    const lock = await waiting;

    expect((await scene.places()).map(({ revision }) => revision)).toEqual([lock.revision, lock.revision]);
    expect(lock.keys).toEqual(names.map((name) => `${name}/${scene.session.leaseId.toString(16)}`));
    await lock.release();
    expect(await scene.places()).toEqual([]);
  });

  test("a reader does not hold beside a writer because it learns late who else is before it", async ({
    expect,
  }) => {
    await using scene = await behindProxy(etcd, "late", TTL_SECONDS);
    const name = "late/shared";
    const rwlock = new RwLock(scene.session, name);
    const foreign = await new Mutex(scene.rivals, name).lock();
    const order: string[] = [];
    const leave = new AbortController();
    const holding = async (who: string, held: Promise<Pick<Hold, "release">>, until?: AbortSignal) => {
      const hold = await held;
      order.push(`${who} holds`);
      if (until) await expect.poll(() => until.aborted).toBe(true);
      order.push(`${who} leaves`);
      await hold.release();
    };
    const writer = holding("the writer", rwlock.writeLock(), leave.signal);
    await expect.poll(scene.places).toHaveLength(2);
    // The first one only checks whether the queue is empty, and is answered.
    let asked = 0;
    const join = (request: Buffer) => takesPlace(request) && ++asked === 2;
    const lost = scene.proxy.rule({ path: TXN, when: join, act: "drop-answer" });
    const all = holding("lockAll", lockAll(scene.session, [name, "late/other"]));
    await expect.poll(scene.places).toHaveLength(4);
    const reader = holding("the reader", rwlock.readLock());
    await expect.poll(scene.places).toHaveLength(5);
    // The two of lockAll, the reader's, and lockAll's second attempt, which is answered together with what follows.
    await expect.poll(() => asked, { timeout: 10_000 }).toBe(4);
    const after = await new Mutex(scene.session, "after").lock();
    await after.release();
    expect(lost.hits).toBe(1);
    await foreign.release();
    await expect.poll(() => order).toContain("the writer holds");
    leave.abort();
    await Promise.all([writer, all, reader]);

    expect(order).toEqual(
      ["the writer", "lockAll", "the reader"].flatMap((who) => [`${who} holds`, `${who} leaves`]),
    );
  });

  test("the release of a lock whose lease was revoked unseen is a loss", async ({ expect }) => {
    await using scene = await behindProxy(etcd, "revoked", TTL_SECONDS);
    const lock = await new Mutex(scene.session, "revoked").lock();
    await etcd.member.gateway("/v3/lease/revoke", { ID: scene.session.leaseId.toString() });

    const released = lock.release();

    await expect(released).rejects.toMatchObject({ code: "LOCK_LOST", loss: "revoked" });
    expect(scene.session.state).toBe("lost");
  });
});
