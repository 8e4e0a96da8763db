// The end of a member whose join etcd has not answered. Judged by etcd's own leases and keys.
import { expect, onTestFinished, test } from "vitest";
import { connect, shards } from "../../../src/index.js";
import { revoke } from "../../support/clients/lease-calls.js";
import { placesOf } from "../../support/clients/server-view.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";

const two = twoSessions(20);
const PATIENCE = { timeout: 20_000 };
const TTL_SECONDS = 20;
const OPTIONS = { count: 2, settleMs: 0, ttlSeconds: TTL_SECONDS, onRetry: () => undefined };

/** How many leases etcd has. */
async function leases(): Promise<number> {
  const { leases: all = [] } = (await two.etcd.member.gateway("/v3/lease/leases", {})) as {
    leases?: readonly unknown[];
  };
  return all.length;
}

/** A cluster, and a rule that leaves the puts of members of a group without an answer. */
async function unanswered(name: string) {
  const proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
  onTestFinished(() => proxy.stop());
  const cluster = connect({ hosts: proxy.endpoint });
  onTestFinished(() => cluster.close());
  const hold = (but = "none") =>
    proxy.rule({
      ...{ path: "/etcdserverpb.KV/Txn", act: "hold" },
      when: (request) => request.includes(`${name}/members/`) && !request.includes(but),
    });
  return { cluster, hold };
}

test("a member that is stopped while etcd does not answer its join is told at once, and keeps no session", async () => {
  const name = "ends/joining";
  const { cluster, hold } = await unanswered(name);
  const before = await leases();
  const held = hold();
  const stop = new AbortController();
  const joining = shards(cluster, name, { ...OPTIONS, signal: stop.signal }, () => undefined);
  await expect.poll(() => held.hits, PATIENCE).toBeGreaterThan(0);
  expect(await leases()).toBe(before + 1);

  const begun = performance.now();
  stop.abort(new Error("enough"));
  await expect(joining).rejects.toThrow("enough");
  expect(performance.now() - begun).toBeLessThan(3000);
  await expect.poll(leases, PATIENCE).toBe(before);
});

test("a member that closes while it joins again has closed its session, too, when it has closed", async () => {
  const name = "ends/rejoining";
  const { cluster, hold } = await unanswered(name);
  const before = await leases();
  const feeds = await shards(cluster, name, OPTIONS, () => undefined);
  await expect.poll(() => feeds.owned, PATIENCE).toHaveLength(2);
  const { leaseId = 0n, key } = feeds.members[0] ?? {};
  const held = hold(key);
  await revoke(two.etcd.member, leaseId);
  await expect.poll(() => held.hits, PATIENCE).toBeGreaterThan(0);

  await feeds.close();

  expect(await leases()).toBe(before);
  expect(await placesOf(two.etcd.member, name)).toEqual([]);
});
