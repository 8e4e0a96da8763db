import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, type Lock, Mutex } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { givesBack, isBatch, takesPlace } from "../../support/clients/request-shape.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";

const TXN = "/etcdserverpb.KV/Txn";
const TTL_SECONDS = 20;
/** One that is sent first, and four full batches. */
const LOCKS = 1 + 4 * 96;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());

async function stage(name: string) {
  const proxy = await startGrpcProxy({ port: etcd.member.clientPort });
  const cluster = connect({
    hosts: proxy.endpoint,
    requestTimeoutMs: 1000,
    session: { ttlSeconds: TTL_SECONDS },
  });
  const session = await cluster.session();
  const lock = () =>
    Promise.all(Array.from({ length: LOCKS }, (_, n) => new Mutex(session, `${name}/${n}`).lock()));
  const stop = async () => {
    await cluster.close({ drainMs: 0 });
    await proxy.stop();
  };
  return { proxy, session, lock, [Symbol.asyncDispose]: stop };
}

const keysOf = async (name: string) =>
  new Map((await placesOf(etcd.member, name)).map(({ key, revision }) => [key, revision]));
const fencesOf = (locks: readonly Lock[]) => new Map(locks.map(({ key, fence }) => [key, fence]));
const givenBack = (locks: readonly Lock[]) => Promise.all(locks.map((lock) => lock.release()));
const sorted = (keys: ReadonlyMap<string, bigint>) => new Map([...keys].toSorted());

/**
 * How the requests fail, and at least how many requests show it: a broken connection takes others in flight with it.
 */
const FATES = [
  ["are done, and whose answers are lost", "drop-answer", 4],
  ["are done, and whose connection breaks", "cut-answer", 1],
  ["never get to etcd", "drop-request", 4],
] as const;

describe(`${LOCKS} locks in requests that`, { timeout: 120_000 }, () => {
  test.each(FATES)(
    "%s: each is held once, by the revision that etcd has, and given back",
    async (_, act, hits) => {
      const name = `taking/${act}`;
      await using scene = await stage(name);
      const rule = scene.proxy.rule({
        path: TXN,
        act,
        times: 4,
        when: (it) => isBatch(it) && takesPlace(it),
      });

      const locks = await scene.lock();

      expect(rule.hits).toBeGreaterThanOrEqual(hits);
      expect(locks.every(({ held }) => held)).toBe(true);
      expect(sorted(await keysOf(name))).toEqual(sorted(fencesOf(locks)));
      await givenBack(locks);
      expect(await keysOf(name)).toEqual(new Map());
    },
  );

  test.each(FATES)(
    "give them back, and %s: none is told of a loss, and none is left",
    async (_, act, hits) => {
      const name = `giving/${act}`;
      await using scene = await stage(name);
      const locks = await scene.lock();
      const rule = scene.proxy.rule({ path: TXN, act, times: 4, when: (it) => isBatch(it) && givesBack(it) });

      await givenBack(locks);

      expect(rule.hits).toBeGreaterThanOrEqual(hits);
      expect(await keysOf(name)).toEqual(new Map());
      expect(scene.session.state).toBe("live");
    },
  );

  test("come when they have been repeated, held and given back: no key of theirs stays", async () => {
    const name = "late";
    await using scene = await stage(name);
    const when = (it: Buffer) => isBatch(it) && takesPlace(it);
    const rule = scene.proxy.rule({ path: TXN, act: "hold", times: 4, when });
    const locks = await scene.lock();
    await givenBack(locks);

    rule.release();
    await rule.answered(4);

    // They are found after about as long again as the requests took, and the lease lives on.
    await expect.poll(() => keysOf(name), { timeout: 40_000 }).toEqual(new Map());
    const { leaseId } = scene.session;
    expect((await leasesOf(etcd.member)).has(leaseId)).toBe(true);
  });
});
