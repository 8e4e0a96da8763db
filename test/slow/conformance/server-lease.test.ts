// Promises of leasehold that depend on etcd's own leases, in the situations that etcd's tests of leases cover.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, type Lock, type LockTimeoutError, Session } from "../../../src/index.js";
import type { EtcdMember } from "../../support/etcd/etcd.js";
import { linkTo } from "../../support/proxies/member-links.js";
import { observe } from "../../support/clients/observer.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import {
  abortOf,
  type Client,
  deadlineOf,
  openClient,
  queued,
} from "../../support/clients/session-client.js";
import { threeMembers } from "../../support/fixtures/three-members.js";

const TTL_SECONDS = 6;
const TTL_MS = TTL_SECONDS * 1000;

const three = threeMembers();

/** From any member that still has a quorum. */
const places = (name: string) => Promise.any(three.etcd.members.map((member) => placesOf(member, name)));

/** A renewal that was sent after this moment has been accepted, and nothing was lost in the meantime. */
async function expectRenewed({ session, states }: Client, lock: Lock): Promise<void> {
  const since = performance.now();
  await expect
    .poll(() => deadlineOf(session), { timeout: TTL_MS })
    .toBeGreaterThan(since + 0.9 * session.ttlSeconds * 1000);
  expect(states).not.toContain("lost");
  expect(lock.held).toBe(true);
  expect((await places(lock.name)).map(({ revision }) => revision)).toEqual([lock.fence]);
}

describe("a session", () => {
  test("is known to every member, with its lock, when it was opened at one of them", async () => {
    await using client = await openClient((await three.follower()).endpoint, TTL_SECONDS);
    const lock = await client.mutex("known").lock();

    for (const member of three.etcd.members) {
      await expect.poll(() => leasesOf(member)).toContain(client.session.leaseId);
      expect(await placesOf(member, "known")).toEqual([
        { key: lock.key, revision: lock.fence, leaseId: client.session.leaseId },
      ]);
    }
    await lock.release();
  });

  test("can be renewed, given away and adopted at any member as soon as it is open", async () => {
    const clusters = three.etcd.endpoints.map((hosts) => connect({ hosts }));
    const passOn = async (index: number) => {
      const [here, there] = [clusters[index % 3]!, clusters[(index + 1) % 3]!];
      const session = await Session.open(here, { ttlSeconds: TTL_SECONDS });
      const heir = await Session.adopt(there, await session.orphan());
      return [heir.state, heir.leaseId === session.leaseId, heir.ttlSeconds];
    };

    const heirs = await Promise.all(Array.from({ length: 30 }, (_, index) => passOn(index)));

    expect(heirs).toEqual(Array(30).fill(["live", true, TTL_SECONDS]));
    await Promise.all(clusters.map((cluster) => cluster.close()));
  });

  test("that was closed cannot be adopted at any member", async () => {
    await using client = await openClient(three.etcd.endpoints, TTL_SECONDS);
    const { leaseId } = client.session;
    await client.session.close();

    for (const hosts of three.etcd.endpoints) {
      await using cluster = connect({ hosts });
      const reason = await reasonOf(Session.adopt(cluster, leaseId));
      expect(reason).toMatchObject({ code: "SESSION_LOST", loss: "revoked", leaseId });
    }
  });

  const faults: [string, "leader" | "follower", (leader: EtcdMember, used: EtcdMember) => unknown][] = [
    [
      "the leader stands still, to which its own member forwards the renewals",
      "follower",
      (leader) => leader.pause(),
    ],
    [
      "its own member, a follower, loses its peers",
      "follower",
      (_, used) => three.network.cutOff(three.etcd.members, used),
    ],
    [
      "its own member, the leader, loses its peers",
      "leader",
      (leader) => three.network.cutOff(three.etcd.members, leader),
    ],
  ];

  test.each(faults)(
    "is renewed and keeps its lock when %s",
    async (what, role, fault) => {
      const leader = await three.etcd.leader();
      const used = role === "leader" ? leader : await three.follower();
      const others = three.etcd.members.filter((member) => member !== leader && member !== used);
      await using links = await linkTo([used, ...others], used);
      await using client = await openClient(links.hosts, TTL_SECONDS);
      const lock = await client.mutex(`fault/${what}`).lock();
      expect(links.inUse).toEqual([used]);

      await fault(leader, used);

      // The first call that needs the other members is answered by those that have a leader.
      await client.mutex("after the fault").withLock(() => undefined);
      await expectRenewed(client, lock);
    },
    40_000,
  );
});

describe("an idle session", () => {
  test("is renewed through another member when its own one stands still: nothing but renewals finds that out", async () => {
    const used = await three.follower();
    await using links = await linkTo(three.etcd.members, used);
    await using client = await openClient(links.hosts, TTL_SECONDS);
    const lock = await client.mutex("idle").lock();
    await lock.release();

    used.pause();
    const since = performance.now();

    await expect
      .poll(() => deadlineOf(client.session), { timeout: TTL_MS })
      .toBeGreaterThan(since + 0.9 * TTL_MS);
    expect(links.inUse.filter((member) => member !== used)).toHaveLength(1);
    expect(client.states).not.toContain("lost");
  });
});

describe("the loss of the quorum for less than a TTL", () => {
  const ttlSeconds = 10;
  let during: {
    tried: unknown;
    opened: { session: Session | undefined; reason: unknown }[];
    after: Session[];
  };
  let client: Client;
  let lock: Lock;

  const open = (count: number) =>
    Promise.all(
      Array.from({ length: count }, async () => {
        try {
          const session = await Session.open(client.cluster, { ttlSeconds, timeoutMs: 1500 });
          return { session, reason: undefined };
        } catch (reason) {
          return { session: undefined, reason };
        }
      }),
    );

  beforeAll(async () => {
    await three.heal();
    const [stays, ...others] = three.etcd.members as [EtcdMember, EtcdMember, EtcdMember];
    client = await openClient(stays.endpoint, ttlSeconds);
    lock = await client.mutex("quorum/held").lock();

    const before = open(5);
    await Promise.all(others.map((member) => member.kill()));
    const trying = reasonOf(client.mutex("quorum/tried").tryLock({ timeoutMs: 1500 }));
    const opening = open(5);
    const tried = await trying;
    const opened = [...(await before), ...(await opening)];
    await Promise.all(others.map((member) => member.restart()));
    const after = await Promise.all(
      Array.from({ length: 5 }, () => Session.open(client.cluster, { ttlSeconds })),
    );
    during = { tried, opened, after };
  }, 60_000);
  afterAll(() => client.cluster.close({ drainMs: 0 }));

  test("costs a session and its lock nothing", async () => {
    await expectRenewed(client, lock);
  });

  test("fails a tryLock, whose place does not outlive it", async () => {
    expect(during.tried).toMatchObject({ code: "ETCD_UNAVAILABLE" });
    await queued(three.etcd.member, "quorum/tried", 0);
  });

  test("fails the sessions that are opened in it, or serves them, and hangs none", () => {
    for (const { session, reason } of during.opened) {
      if (session) expect(session.ttlSeconds).toBe(ttlSeconds);
      else expect(reason).toMatchObject({ code: "ETCD_UNAVAILABLE" });
    }
    expect(during.opened.slice(5).map(({ session }) => session)).toEqual(Array(5).fill(undefined));
    expect(during.after.map(({ state }) => state)).toEqual(Array(5).fill("live"));
  });

  test("leaves no lease of a session that failed to open", async () => {
    await client.cluster.close({ drainMs: 0 });

    await expect.poll(() => leasesOf(three.etcd.member), { timeout: 10_000 }).toEqual(new Set());
  });
});

describe("a holder that dies together with the leader", () => {
  test("delays the next one by a whole TTL of the new leader, and no second holder comes in between", async () => {
    const name = "failover";
    const ttlMs = 2000;
    const used = await three.follower();
    await using proxy = await startTcpProxy({ port: used.clientPort });
    await using holder = await openClient(proxy.endpoint, ttlMs / 1000);
    const leader = await three.etcd.leader();
    const others = three.etcd.members.filter((member) => member !== leader);
    await using waiter = await openClient(
      others.map((member) => member.endpoint),
      10,
    );
    using server = await observe(used.endpoint, `${name}/`);
    const lock = await holder.mutex(name).lock();
    const waiting = waiter.mutex(name).lock();
    await queued(used, name, 2);

    await Promise.all([proxy.mode("blackhole"), leader.kill()]);
    const loss = abortOf(lock.signal).then((reason) => ({ reason, at: process.hrtime.bigint() }));
    await three.etcd.leader();
    const elected = process.hrtime.bigint();
    const late = await reasonOf(waiter.mutex(name).lock({ timeoutMs: 1000 }));
    const told = await loss;
    const deletion = await server.deleted(lock.key, lock.fence);
    const next = await waiting;

    expect(told.reason).toMatchObject({ code: "LOCK_LOST", loss: "expired" });
    expect(told.at).toBeLessThan(deletion.at);
    expect(deletion.at - elected).toBeGreaterThan(BigInt(ttlMs) * 1_000_000n);
    const { holder: place, ahead } = late as LockTimeoutError;
    expect([ahead, place?.leaseId]).toEqual([2, holder.session.leaseId]);
    expect(place?.ttlRemainingMs).toBeGreaterThan(0);
    expect(next.fence).toBeGreaterThan(lock.fence);
    await next.release();
    await proxy.mode("pass");
  }, 40_000);
});
