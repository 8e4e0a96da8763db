import { expect, test } from "vitest";
import { connect, Mutex } from "../../../src/index.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { placesOf } from "../../support/clients/server-view.js";

/** Just below etcd's maximum request size. */
const LARGE = Buffer.alloc(1_500_000, "x").toString("base64");

test("other people's large values in a queue are no refusal: who waits behind them waits, and leaves nothing behind", async () => {
  await using etcd = await startEtcd();
  const cluster = connect({ hosts: etcd.endpoints, session: { ttlSeconds: 60 } });
  for (let n = 0; n < 3; n++) {
    const key = Buffer.from(`large/${n}`).toString("base64");
    await etcd.member.gateway("/v3/kv/put", { key, value: LARGE });
  }

  const waiting = new Mutex(cluster, "large").lock({ timeoutMs: 1500 });

  await expect(waiting).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
  await expect.poll(() => placesOf(etcd.member, "large"), { timeout: 10_000 }).toHaveLength(3);
  await cluster.close({ drainMs: 0 });
});
