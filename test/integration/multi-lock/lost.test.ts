import { afterAll, beforeAll, describe, test } from "vitest";
import { lockAll, Mutex } from "../../../src/index.js";
import { behindProxy } from "../../support/proxies/behind-proxy.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { givesBack, takesPlace } from "../../support/clients/request-shape.js";

const TTL_SECONDS = 3;
const TXN = "/etcdserverpb.KV/Txn";

describe.concurrent("lockAll with a lost or late request", { timeout: 40_000 }, () => {
  let etcd: EtcdCluster;
  beforeAll(async () => void (etcd = await startEtcd()), 60_000);
  afterAll(() => etcd.stop());

  /** With two names under `name`. */
  const stage = async (name: string) => ({
    ...(await behindProxy(etcd, name, TTL_SECONDS)),
    names: [`${name}/a`, `${name}/b`],
  });

  test.for([
    ["answer is dropped", "drop-answer"],
    ["connection breaks in place of the answer", "cut-answer"],
    ["request is dropped", "drop-request"],
  ] as const)("finds its own places again when the join's %s", async ([, act], { expect }) => {
    await using scene = await stage(`all-${act}`);
    const rule = scene.proxy.rule({ path: TXN, when: takesPlace, act, times: 1 });

    const lock = await lockAll(scene.session, scene.names);
    const keys = await scene.places();

    expect(rule.hits).toBe(1);
    expect(keys.map(({ key, revision }) => [key, revision])).toEqual(
      lock.keys.map((key) => [key, lock.revision]),
    );
    expect(keys).toHaveLength(2);
    await lock.release();
    expect(await scene.places()).toEqual([]);
  });

  test("finds them behind somebody else, too", async ({ expect }) => {
    await using scene = await stage("all-behind");
    const [, b = ""] = scene.names;
    const held = await new Mutex(scene.rivals, b).lock();
    // The first one only checks whether the queue is empty, and is answered.
    let asked = 0;
    const join = (request: Buffer) => takesPlace(request) && ++asked > 1;
    const rule = scene.proxy.rule({ path: TXN, when: join, act: "drop-answer", times: 1 });

    const waiting = lockAll(scene.session, scene.names);
    await expect.poll(async () => (await scene.places()).length).toBe(3);
    await expect.poll(() => rule.hits).toBe(1);
    await held.release();
    const lock = await waiting;

    expect((await scene.places()).map(({ revision }) => revision)).toEqual([lock.revision, lock.revision]);
    // The retry found the first attempt's places: other places would have a different number.
    expect(lock.keys).toEqual(scene.names.map((name) => `${name}/${scene.session.leaseId.toString(16)}`));
    await lock.release();
    expect(await scene.places()).toEqual([]);
  });

  test("leaves no place behind when a join arrives after all was given back", async ({ expect }) => {
    await using scene = await stage("all-late");
    const late = scene.proxy.rule({ path: TXN, when: takesPlace, act: "hold", times: 1 });

    const lock = await lockAll(scene.session, scene.names);
    await lock.release();
    expect(await scene.places()).toEqual([]);
    late.release();
    await late.answered(1);

    await expect.poll(() => scene.places()).toEqual([]);
    const again = await lockAll(scene.rivals, scene.names);
    await again.release();
  });

  test("gives all back though each deletion's first answer is lost", async ({ expect }) => {
    await using scene = await stage("all-release");
    const lock = await lockAll(scene.session, scene.names);
    const rule = scene.proxy.rule({ path: TXN, when: givesBack, act: "drop-answer", times: 2 });

    await lock.release();

    expect(rule.hits).toBe(2);
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
    expect(await scene.places()).toEqual([]);
  });
});
