// Ten thousand idempotency keys: what they leave in etcd, and when.
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect, once } from "../../../src/index.js";
import { keysAt } from "../../support/clients/keys-at.js";
import { leasesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";

const KEYS = 10_000;
const AT_ONCE = 200;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());

const never = (): never => {
  throw new Error("this work must not run");
};

test("10,000 keys share leases, each gives its result to a later call, and nothing of them stays", async () => {
  const cluster = connect({ hosts: etcd.endpoints });
  const options = { result: "keep", keep: { ms: 60_000 } } as const;
  const inTurn = async (run: (n: number) => Promise<unknown>) => {
    let next = 0;
    const line = async (): Promise<void> => {
      while (next < KEYS) await run(next++);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, line));
  };
  await inTurn((n) => once(cluster, "payments", `key ${n}`, () => ({ n }), options));
  await inTurn(async (n) =>
    expect(await once(cluster, "payments", `key ${n}`, never, options)).toMatchObject({ result: { n } }),
  );
  const keys = await keysAt(etcd.member)("/leasehold/once/payments//");
  await cluster.close();
  const leases = await leasesOf(etcd.member);

  expect(keys).toHaveLength(KEYS);
  // One for each thousand, of those that begin and of those that end, and the next ones.
  expect(leases.size).toBeLessThanOrEqual(2 * (KEYS / 1000) + 4);
  await expect.poll(() => keysAt(etcd.member)(""), { timeout: 120_000, interval: 500 }).toEqual([]);
  // Those of runs that begin end later, without a key.
  await expect
    .poll(async () => (await leasesOf(etcd.member)).size, { timeout: 20_000 })
    .toBeLessThanOrEqual(KEYS / 1000 + 2);
}, 240_000);

test("results of the greatest size are kept, however many calls end together", async () => {
  const cluster = connect({ hosts: etcd.endpoints });
  const result = "x".repeat(65_000);
  const options = { result: "keep", keep: { ms: 1000 } } as const;
  let ready = 0;
  let go!: () => void;
  const all = new Promise<void>((resolve) => (go = resolve));
  const work = async () => {
    if (++ready === 100) go();
    await all;
    return result;
  };
  const replies = await Promise.all(
    Array.from({ length: 100 }, (_, n) => once(cluster, "large", `${n}`, work, options)),
  );

  expect(replies.every((reply) => reply.status === "done" && reply.result === result)).toBe(true);
  await cluster.close();
}, 60_000);
