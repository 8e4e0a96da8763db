import { expect, test } from "vitest";
import { type Cluster, connect, Mutex } from "../../../src/index.js";
import { CHANNELS } from "../../../src/base/telemetry/channels.js";
import type { MemberMessage } from "../../../src/base/telemetry/messages.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { Messages } from "../../support/fixtures/messages.js";

const membersOf = (cluster: Cluster) =>
  new Messages<MemberMessage>(CHANNELS.member, ({ hosts }) => hosts === cluster.hosts);
const briefly = ({ all }: Messages<MemberMessage>) => all.map(({ state, host }) => `${state} ${host}`);

test("a fail-over is published as down of one member, then up of another, once each", async () => {
  await using etcd = await startEtcd({ members: 3 });
  await using cluster = connect({ hosts: etcd.endpoints, session: { ttlSeconds: 10 } });
  using members = membersOf(cluster);
  const work = () =>
    Promise.all([1, 2, 3, 4].map((n) => new Mutex(cluster, `member-${n}`).withLock(() => n)));
  await work();
  const { host: first } = members.all[0]!;
  expect(briefly(members)).toEqual([`up ${first}`]);

  await etcd.members.find(({ endpoint }) => endpoint === first)!.kill();
  await work();
  await work();

  const second = members.all.at(-1)!.host;
  expect(second).not.toBe(first);
  const states = briefly(members);
  expect(states.slice(0, 2)).toEqual([`up ${first}`, `down ${first}`]);
  // Before the members have elected a leader, another one may fail to answer, too.
  expect(states.slice(2, -1).filter((state) => !state.startsWith("down "))).toEqual([]);
  expect(states.at(-1)).toBe(`up ${second}`);
  expect(new Set(states).size).toBe(states.length);
  expect(members.all[1]?.error).toBeInstanceOf(Error);
}, 60_000);

test("an outage of a lone member is one episode, however many calls fail", async () => {
  await using etcd = await startEtcd();
  await using cluster = connect({ hosts: etcd.member.endpoint, session: { ttlSeconds: 20 } });
  using members = membersOf(cluster);
  const mutex = new Mutex(cluster, "member");
  await mutex.withLock(() => undefined);

  await etcd.member.kill();
  for (let n = 0; n < 3; n++)
    await expect(mutex.tryLock({ timeoutMs: 300 })).rejects.toMatchObject({ code: "ETCD_UNAVAILABLE" });
  await etcd.member.restart();
  await mutex.withLock(() => undefined);

  const { endpoint } = etcd.member;
  expect(briefly(members)).toEqual([`up ${endpoint}`, `down ${endpoint}`, `up ${endpoint}`]);
}, 60_000);

test("a member of another cluster is refused", async () => {
  await using etcd = await startEtcd();
  await using other = await startEtcd();
  const hosts = [etcd.member.endpoint, other.member.endpoint];
  await using cluster = connect({ hosts, session: { ttlSeconds: 20 } });
  using members = membersOf(cluster);
  const mutex = new Mutex(cluster, "member");
  await mutex.withLock(() => undefined);
  const { host: first } = members.all[0]!;

  const ours = first === etcd.member.endpoint ? etcd : other;
  const foreign = ours === etcd ? other : etcd;
  await ours.member.kill();
  await expect(mutex.tryLock({ timeoutMs: 2000 })).rejects.toThrow();
  await ours.member.restart();
  await mutex.withLock(() => undefined);

  const refused = members.all.filter(({ state }) => state === "refused");
  expect(refused.map(({ host }) => host)).toEqual([foreign.member.endpoint]);
  expect(refused[0]?.error?.message).toContain("belongs to the etcd cluster");
  expect(members.all.at(-1)).toMatchObject({ state: "up", host: first });
}, 60_000);

test("a second host of another cluster is refused soon after the first lock, before any fail-over", async () => {
  await using etcd = await startEtcd();
  await using other = await startEtcd();
  const lines: string[] = [];
  const hosts = [etcd.member.endpoint, other.member.endpoint];
  await using cluster = connect({
    hosts,
    log: ({ level, message }) => void lines.push(`${level} ${message}`),
  });
  using members = membersOf(cluster);
  const lock = await new Mutex(cluster, "member").lock();
  expect(members.all.map(({ state }) => state)).toEqual(["up"]);

  await expect.poll(() => members.all).toHaveLength(2);

  const [up, refused] = members.all;
  expect([up?.host, refused?.host].sort()).toEqual([...hosts].sort());
  expect(refused).toMatchObject({ state: "refused", error: { name: "MemberRefusedError" } });
  expect(lines).toContainEqual(
    expect.stringMatching(/^warn \S+ refused: it belongs to the etcd cluster .* members of one cluster/),
  );
  expect(cluster.health()).toMatchObject({ ok: true });
  expect(cluster.health().members.find(({ host }) => host === refused?.host)).toMatchObject({
    state: "failed",
    ok: false,
  });
  expect(lock.held).toBe(true);
  await lock.release();
});
