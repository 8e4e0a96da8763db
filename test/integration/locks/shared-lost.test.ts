import { afterAll, beforeAll, describe, test } from "vitest";
import { type Hold, lockAll, Mutex, RwLock } from "../../../src/index.js";
import { behindProxy } from "../../support/proxies/behind-proxy.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { takesPlace } from "../../support/clients/request-shape.js";

const TXN = "/etcdserverpb.KV/Txn";

describe.concurrent("readers, with answers that are lost", { timeout: 40_000 }, () => {
  let etcd: EtcdCluster;
  beforeAll(async () => void (etcd = await startEtcd()), 60_000);
  afterAll(() => etcd.stop());

  const stage = (name: string) => behindProxy(etcd, name, 5);

  test.for([
    ["answer is dropped", "drop-answer"],
    ["connection breaks in place of the answer", "cut-answer"],
  ] as const)("tryReadLock finds its own place again when the %s", async ([, act], { expect }) => {
    const name = `try-${act}`;
    await using scene = await stage(name);
    const rule = scene.proxy.rule({ path: TXN, when: takesPlace, act, times: 1 });

    const hold = await new RwLock(scene.session, name).tryReadLock();
    const [place] = await scene.places();

    expect(rule.hits).toBe(1);
    expect(hold?.revision).toBe(place?.revision);
    await hold?.release();
    expect(await scene.places()).toEqual([]);
  });

  test("a reader does not hold beside a writer because it learns late who else is before it", async ({
    expect,
  }) => {
    await using scene = await stage("late");
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
});
