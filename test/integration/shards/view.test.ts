// What those see who route by a group of shards, while their connection to etcd breaks. Judged by etcd's own keys.
import { expect, onTestFinished, test } from "vitest";
import { connect, list, shards, watchShards } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { ROOT, startWithUsers, WORKER } from "../../support/fixtures/users.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

const two = twoSessions(20);
const PATIENCE = { timeout: 20_000 };
const COUNT = 8;

test("a view sees each owner that leaves, also those that it had seen before etcd forgot what an outage hid", async () => {
  const name = "view/forgotten";
  const options = { count: COUNT, settleMs: 0, ttlSeconds: 20 };
  const feeds = await shards(two.cluster, name, { ...options, id: "a" }, () => undefined);
  const idle = await shards(two.cluster, name, { ...options, id: "b", capacity: 0 }, () => undefined);
  const places = () => placesOf(two.etcd.member, `${name}/shard`);
  await expect.poll(places, PATIENCE).toHaveLength(COUNT);
  await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
  await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 1000 });
  await using map = await watchShards(cluster, name);
  const owned = () => Array.from({ length: COUNT }, (_, shard) => map.owner(shard)).filter((owner) => owner);
  expect(owned()).toHaveLength(COUNT);

  await proxy.mode("refuse");
  const [first] = await places();
  await two.etcd.etcdctl(["del", first?.key ?? ""]);
  const { revision } = await two.etcd.member.status();
  await two.etcd.etcdctl(["compact", String(revision)]);
  await proxy.mode("pass");
  await list(cluster, "view/");
  const isNew = () =>
    (map.owner(Number(/shard.(\d+)/.exec(first?.key ?? "")?.[1]))?.fence ?? 0n) > (first?.revision ?? 0n);
  await expect.poll(isNew, PATIENCE).toBe(true);

  await feeds.close();
  await expect.poll(owned, PATIENCE).toEqual([]);
  await idle.close();
});

test("a view forgets whoever has left while etcd refused to show the group", async () => {
  const name = "jobs/refused";
  const users = await startWithUsers();
  onTestFinished(() => users.stop());
  await using proxy = await startTcpProxy({ port: users.etcd.member.clientPort });
  await using owners = connect({ hosts: users.endpoints, auth: ROOT });
  const options = { count: COUNT, settleMs: 0, ttlSeconds: 20 };
  const feeds = await shards(owners, name, { ...options, id: "a" }, () => undefined);
  await expect.poll(() => feeds.owned, PATIENCE).toHaveLength(COUNT);
  await using cluster = connect({ hosts: proxy.endpoint, auth: WORKER, requestTimeoutMs: 1000 });
  await using map = await watchShards(cluster, name);
  const owned = () => Array.from({ length: COUNT }, (_, shard) => map.owner(shard)?.id).filter((id) => id);
  expect(owned()).toHaveLength(COUNT);
  const before = map.owner(0)?.fence ?? 0n;

  const refused: string[] = [];
  const warned = ({ message }: Error) => void (message.includes(name) && refused.push(message));
  process.on("warning", warned);
  onTestFinished(() => void process.off("warning", warned));
  await users.root("role", "revoke-permission", "worker", "jobs/", "jobs0");
  await proxy.mode("refuse");
  await proxy.mode("pass");
  await expect.poll(() => refused, PATIENCE).not.toEqual([]);
  await feeds.close();
  await users.root("role", "grant-permission", "worker", "readwrite", "jobs/", "jobs0");
  await expect.poll(() => map.members, PATIENCE).toEqual([]);
  await using again = await shards(owners, name, { ...options, id: "b" }, () => undefined);
  await expect.poll(() => owned(), PATIENCE).toEqual(Array.from({ length: COUNT }, () => "b"));
  expect(map.owner(0)?.fence).toBeGreaterThan(before);
  await again.close();
  await expect.poll(() => map.members, PATIENCE).toEqual([]);
  expect(map.owner(0)).toBeUndefined();
}, 60_000);
