import { describe, expect, test } from "vitest";
import { connect, Mutex, Session } from "../../../src/index.js";
import { takesPlace } from "../../support/clients/request-shape.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";
import { threeMembers } from "../../support/fixtures/three-members.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { linkTo } from "../../support/proxies/member-links.js";

const TTL_SECONDS = 5;

describe("the death of the member in use", () => {
  const three = threeMembers();

  test("costs neither session nor turn: the lock changes hands within a TTL", async () => {
    const member = await three.follower();
    await using links = await linkTo(three.etcd.members, member);
    await using cluster = connect({ hosts: links.hosts, session: { ttlSeconds: TTL_SECONDS } });
    const [holder, waiter] = await Promise.all([Session.open(cluster), Session.open(cluster)]);
    const lock = await new Mutex(holder, "member").lock();
    expect(links.inUse).toEqual([member]);
    const next = new Mutex(waiter, "member").lock();

    await member.kill();
    const start = performance.now();
    await lock.release();
    const taken = await next;

    expect(performance.now() - start).toBeLessThan(TTL_SECONDS * 1000);
    expect(taken.fence).toBeGreaterThan(lock.fence);
    expect([holder.state, waiter.state]).not.toContain("lost");
    await taken.release();
  });

  test("costs a session of twice the TTL nothing when it was the leader", async () => {
    const leader = await three.etcd.leader();
    await using links = await linkTo(three.etcd.members, leader);
    await using cluster = connect({ hosts: links.hosts, session: { ttlSeconds: 2 * TTL_SECONDS } });
    const mutex = new Mutex(cluster, "leader-death");
    const lock = await mutex.lock();
    const session = await cluster.session();
    expect(links.inUse).toEqual([leader]);

    await leader.kill();

    await lock.release();
    const again = await mutex.lock();
    expect(again.fence).toBeGreaterThan(lock.fence);
    expect(session.state).not.toBe("lost");
    expect(await cluster.session()).toBe(session);
    await again.release();
  });

  test("between the grant of the lease and the first join costs a fresh cluster no lock, and leaves nothing", async () => {
    const { members } = three.etcd;
    const before = await leasesOf(members[0]!);
    const added = async () => [...(await leasesOf(living))].filter((id) => !before.has(id));
    const proxies = await Promise.all(members.map(({ clientPort }) => startGrpcProxy({ port: clientPort })));
    const joins = proxies.map((proxy) =>
      proxy.rule({ path: "/etcdserverpb.KV/Txn", act: "hold", when: takesPlace, times: 1 }),
    );
    const cluster = connect({ hosts: proxies.map(({ endpoint }) => endpoint) });
    const locking = new Mutex(cluster, "first").lock();
    const first = await Promise.race(joins.map((rule, n) => rule.hit().then(() => n)));
    const living = members.find((_, n) => n !== first)!;
    expect(await placesOf(living, "first")).toEqual([]);

    await members[first]!.kill();
    for (const rule of joins) rule.release();
    const lock = await locking;

    const { leaseId } = await cluster.session();
    expect(await placesOf(living, "first")).toEqual([{ key: lock.key, revision: lock.fence, leaseId }]);
    expect(await added()).toEqual([leaseId]);
    await cluster.close({ drainMs: 0 });
    expect(await placesOf(living, "first")).toEqual([]);
    expect(await added()).toEqual([]);
    await Promise.all(proxies.map((proxy) => proxy.stop()));
  });
});
