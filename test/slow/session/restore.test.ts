// etcd is restored to an older state while its clients are running: what they have deleted since then exists again.
import { cp, rm } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Cluster, connect, Mutex, RwLock, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { placesOf } from "../../support/clients/server-view.js";

/** Longer than two outages of etcd. */
const TTL_SECONDS = 30;

let etcd: EtcdCluster;
let cluster: Cluster;
let session: Session;

beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
  session = await Session.open(cluster, { ttlSeconds: TTL_SECONDS });
}, 60_000);
afterAll(async () => {
  await cluster.close({ drainMs: 0 });
  await etcd.stop();
});

const places = (name: string) => placesOf(etcd.member, name);

/** The effect of a restore from a snapshot: the data of one moment, and the same address. */
async function snapshot(): Promise<() => Promise<void>> {
  const { dataDir } = etcd.member;
  const saved = `${dataDir}.saved`;
  await etcd.member.kill();
  await cp(dataDir, saved, { recursive: true });
  await etcd.member.restart();
  return async () => {
    await etcd.member.kill();
    await rm(dataDir, { recursive: true });
    await cp(saved, dataDir, { recursive: true });
    await etcd.member.restart();
  };
}

test("places that were given up after the snapshot are removed when they come back, and what is held stays", async () => {
  await using rivals = connect({ hosts: etcd.endpoints, session: { ttlSeconds: TTL_SECONDS } });
  const held = await new Mutex(session, "held").lock();
  const released = await new Mutex(session, "released").lock();
  const shared = await new RwLock(session, "shared").readLock();
  const before = await new Mutex(rivals, "waited-for").lock();
  const abort = new AbortController();
  const waiting = new Mutex(session, "waited-for").lock({ signal: abort.signal });
  await expect.poll(() => places("waited-for")).toHaveLength(2);

  const restore = await snapshot();
  await Promise.all([released.release(), shared.release()]);
  abort.abort(new Error("no longer wanted"));
  await expect(waiting).rejects.toThrow("no longer wanted");
  await expect.poll(() => places("waited-for"), { timeout: 10_000 }).toHaveLength(1);
  const revision = (await etcd.member.status()).revision;
  await restore();

  expect((await etcd.member.status()).revision).toBeLessThan(revision);
  const wait = { timeoutMs: 500 * TTL_SECONDS };
  for (const name of ["released", "shared"]) await (await new Mutex(rivals, name).lock(wait)).release();
  await expect
    .poll(() => places("waited-for"), { timeout: 500 * TTL_SECONDS })
    .toMatchObject([{ key: before.key, revision: before.revision }]);
  expect(await places("held")).toMatchObject([{ key: held.key, revision: held.revision }]);
  expect([held.held, session.state]).toEqual([true, "live"]);
}, 90_000);
