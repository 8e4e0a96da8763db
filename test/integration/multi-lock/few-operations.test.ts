// An etcd that permits fewer operations in a transaction than by default.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, lockAll, Mutex } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd({ args: ["--max-txn-ops=20"] })));
afterAll(() => etcd.stop());

const names = (count: number, of: string) => Array.from({ length: count }, (_, n) => `${of}/${n}`);

describe("with --max-txn-ops=20", () => {
  test("lockAll of more names than that says the flag, and how many operations they need", async () => {
    await using cluster = connect({ hosts: etcd.endpoints });

    const lock = lockAll(cluster, names(30, "many"));

    await expect(lock).rejects.toMatchObject({ code: "ETCD_REFUSED", reason: "other" });
    await expect(lock).rejects.toThrow(
      /too many operations in txn request; 30 names need 30 operations: raise etcd's --max-txn-ops \(default: 128\), or take fewer/,
    );
    await (await lockAll(cluster, names(20, "some"))).release();
  });

  test("locks that are taken at once are all granted, and stop to share requests that are too large", async () => {
    await using cluster = connect({ hosts: etcd.endpoints });
    for (let n = 0; n < 5; n++) {
      const locks = await Promise.all(names(60, "crowd").map((name) => new Mutex(cluster, name).lock()));
      await Promise.all(locks.map((lock) => lock.release()));
    }
    const before = await txns();
    const locks = await Promise.all(names(60, "crowd").map((name) => new Mutex(cluster, name).lock()));
    expect((await txns()) - before).toBeLessThan(30);
    await Promise.all(locks.map((lock) => lock.release()));
  });
});

/** How many requests with transactions etcd has got. */
async function txns(): Promise<number> {
  const metrics = [...(await etcd.member.metrics())];
  return metrics
    .filter(([key]) => key.startsWith("grpc_server_started_total") && key.includes('"Txn"'))
    .reduce((sum, [, count]) => sum + count, 0);
}
