// A member of a group whose puts etcd refuses.
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import { connect, ShardMovedError, shards } from "../../../src/index.js";
import { delayLeaseOf } from "../../../src/keys.js";
import { placesOf } from "../../support/clients/server-view.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { spaceAlarm } from "../../support/fixtures/space-alarm.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(20);
const PATIENCE = { timeout: 20_000 };
const COUNT = 4;
const TXN = "/etcdserverpb.KV/Txn";
const NO_SPACE = { code: 8, details: "etcdserver: mvcc: database space exceeded" };

test("a member that cannot tell the group tries again once a second, however much changes meanwhile", async () => {
  const name = "refused/put";
  const { member } = two.etcd;
  let tries = 0;
  const onRetry = (_error: unknown, _delayMs: number, shard?: number): void => {
    if (shard === undefined) tries++;
  };
  const options = { count: COUNT, settleMs: 0, ttlSeconds: 20, onRetry };
  const feeds = await shards(two.cluster, name, options, () => undefined);
  const places = () => placesOf(member, `${name}/shard`);
  await expect.poll(places, PATIENCE).toHaveLength(COUNT);
  const [own] = await placesOf(member, `${name}/members`);

  await spaceAlarm(member, "ACTIVATE");
  const begun = performance.now();
  for (const place of [own, ...(await places())]) await two.etcd.etcdctl(["del", place?.key ?? ""]);
  await expect.poll(() => tries, PATIENCE).toBeGreaterThan(0);
  await delay(4000);
  const elapsedMs = performance.now() - begun;
  expect(tries).toBeLessThanOrEqual(2 + elapsedMs / 1000);

  await spaceAlarm(member, "DEACTIVATE");
  await expect.poll(() => placesOf(member, `${name}/members`), PATIENCE).toHaveLength(1);
  await expect.poll(places, PATIENCE).toHaveLength(COUNT);
  await feeds.close();
});

test("a member that is alone leaves at once, though etcd refuses to store that it does", async () => {
  const name = "refused/leave";
  const { member } = two.etcd;
  const drainMs = 20_000;
  const options = { count: COUNT, settleMs: 0, ttlSeconds: 20, drainMs, onRetry: () => undefined };
  const feeds = await shards(two.cluster, name, options, ({ signal }) => once(signal, "abort"));
  await expect.poll(() => feeds.owned, PATIENCE).toHaveLength(COUNT);

  await spaceAlarm(member, "ACTIVATE");
  const begun = performance.now();
  await feeds.close();
  const tookMs = performance.now() - begun;
  await spaceAlarm(member, "DEACTIVATE");

  expect(tookMs).toBeLessThan(drainMs / 2);
  expect(await placesOf(member, name)).toEqual([]);
});

test("a member whose session can join no more queues hands its shards over, and goes on with another session", async () => {
  const name = "refused/join";
  const { endpoint } = two.etcd.member;
  await using cluster = connect({ hosts: endpoint });
  const options = {
    count: COUNT,
    settleMs: 0,
    ttlSeconds: 20,
    releaseDelayMs: 1000,
    onRetry: () => undefined,
  };
  await shards(cluster, name, options, () => undefined);
  const places = () => placesOf(two.etcd.member, `${name}/shard`);
  const leases = async () => [...new Set((await places()).map(({ leaseId }) => leaseId))];
  await expect.poll(places, PATIENCE).toHaveLength(2 * COUNT);
  const [first] = await placesOf(two.etcd.member, `${name}/members`);
  const lease = first?.leaseId ?? 0n;

  await two.etcd.etcdctl(["lease", "revoke", delayLeaseOf(lease).toString(16)]);
  const [own] = await places();
  await two.etcd.etcdctl(["del", own?.key ?? ""]);

  await expect.poll(places, PATIENCE).toHaveLength(2 * COUNT);
  expect(await leases()).not.toContain(lease);
});

test("a member that is to be replaced keeps its shards until the group knows, also after others have deleted its key", async () => {
  const name = "refused/drain";
  const { member } = two.etcd;
  await using proxy = await startGrpcProxy({ port: member.clientPort });
  await using cluster = connect({ hosts: proxy.endpoint });
  const [moved, refused]: [number[], (number | undefined)[]] = [[], []];
  const onRetry = (_error: unknown, _delayMs: number, shard?: number) => void refused.push(shard);
  const saysRefused = () => refused.filter((shard) => shard === undefined).length;
  const options = { count: COUNT, settleMs: 0, ttlSeconds: 10, releaseDelayMs: 1000, onRetry };
  await shards(cluster, name, options, async ({ id, signal }) => {
    await once(signal, "abort");
    if (signal.reason instanceof ShardMovedError) moved.push(id);
  });
  const places = () => placesOf(member, `${name}/shard`);
  await expect.poll(places, PATIENCE).toHaveLength(2 * COUNT);
  const [own] = await placesOf(member, `${name}/members`);
  const lease = own?.leaseId ?? 0n;

  // With a space alarm, etcd would accept it if it shared its request: the check doesn't look into nested transactions.
  const isOfMember = (request: Buffer) => request.includes(`${name}/members/`);
  const rule = proxy.rule({ path: TXN, act: "refuse", status: NO_SPACE, when: isOfMember });
  await two.etcd.etcdctl(["lease", "revoke", delayLeaseOf(lease).toString(16)]);
  const [first] = await places();
  await two.etcd.etcdctl(["del", first?.key ?? ""]);
  await expect.poll(saysRefused, PATIENCE).toBeGreaterThan(0);
  await two.etcd.etcdctl(["del", own?.key ?? ""]);
  const before = saysRefused();
  await expect.poll(saysRefused, PATIENCE).toBeGreaterThan(before + 1);
  expect(moved).toEqual([]);
  expect(await places()).toHaveLength(COUNT - 1);

  proxy.remove(rule);
  await expect.poll(places, PATIENCE).toHaveLength(2 * COUNT);
  // All but the one whose lock was deleted.
  const gone = Number(/shard\/(\d+)\//.exec(first?.key ?? "")?.[1]);
  expect(moved.toSorted()).toEqual([0, 1, 2, 3].filter((id) => id !== gone));
  expect((await places()).map(({ leaseId }) => leaseId)).not.toContain(lease);
});
