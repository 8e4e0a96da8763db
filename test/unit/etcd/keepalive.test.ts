import { describe, expect, test } from "vitest";
import type { LeaseListener } from "../../../src/etcd/keepalive.js";
import { EtcdRefusedError } from "../../../src/errors.js";
import { TokenExpiredError, UnansweredError } from "../../../src/etcd/port.js";
import { FakeCluster, HEADER, LEASE_ID } from "../../support/fakes/fake-connection.js";
import { settle } from "../../support/fakes/fake-clock.js";
import type { FakeKeepalive } from "../../support/fakes/fake-member.js";

const PATIENCE_MS = 1000;

/** A lease that the test renews, with the send times of its accepted renewals. */
function renewer(leaseId = LEASE_ID, patienceMs = PATIENCE_MS) {
  const accepted: number[] = [];
  const gone: boolean[] = [];
  const self: LeaseListener = {
    leaseId,
    patienceMs,
    renewed: (sent) => void accepted.push(sent.monotonic),
    leaseNotFound: () => void gone.push(true),
  };
  return { self, accepted, gone };
}

function renewing() {
  const cluster = new FakeCluster();
  const { self, accepted, gone } = renewer();
  cluster.services.keepalive.renew(self);
  return { cluster, clock: cluster.clock, keepalive: cluster.services.keepalive, self, accepted, gone };
}

/** The stream opened last. */
const streamOf = (cluster: FakeCluster) => cluster.member.keepalives.at(-1)!;

describe("the keepalive stream", () => {
  test("matches answers to renewals of the same lease in the order they were sent", () => {
    const { cluster, clock, keepalive, self, accepted } = renewing();
    const first = clock.now().monotonic;
    const other = renewer(0x88n);

    clock.advance(100);
    keepalive.renew(other.self);
    clock.advance(100);
    keepalive.renew(self);
    streamOf(cluster).answer(LEASE_ID, 10);
    streamOf(cluster).answer(LEASE_ID, 10);
    streamOf(cluster).answer(0x88n, 10);

    expect(accepted).toEqual([first, first + 200]);
    expect(other.accepted).toEqual([first + 100]);
  });

  test("counts an answer from the renewal that it answers, also after its lease was detached and attached again", () => {
    const { cluster, clock, keepalive, self, accepted } = renewing();
    const first = clock.now().monotonic;
    // Another lease keeps the stream open.
    keepalive.renew(renewer(0x88n).self);
    keepalive.detach(self);
    clock.advance(100);
    keepalive.renew(self);

    streamOf(cluster).answer(LEASE_ID, 10);
    streamOf(cluster).answer(LEASE_ID, 10);

    expect(accepted).toEqual([first, first + 100]);
  });

  test("has one timer for the answers to all renewals, and is left for the one that has waited longest", () => {
    const { cluster, clock, keepalive } = renewing();
    for (let n = 1n; n <= 50n; n++) keepalive.renew(renewer(n).self);
    expect(clock.timers).toBe(1);
    clock.advance(PATIENCE_MS / 2);
    const impatient = renewer(0x99n, PATIENCE_MS / 4);
    keepalive.renew(impatient.self);
    streamOf(cluster).answer(LEASE_ID, 10);
    for (let n = 2n; n <= 50n; n++) streamOf(cluster).answer(n, 10);

    clock.advance(PATIENCE_MS / 4 - 1);
    expect(cluster.connected).toHaveLength(1);
    streamOf(cluster).answer(0x99n, 10);
    clock.advance(PATIENCE_MS / 4);
    expect(cluster.connected).toHaveLength(1);
    clock.advance(1);
    expect(streamOf(cluster).closed || cluster.connected.length > 1).toBe(true);
  });

  test("is one for all leases", () => {
    const { cluster, keepalive } = renewing();

    keepalive.renew(renewer(0x88n).self);

    expect(cluster.connected).toHaveLength(1);
    expect(cluster.member.keepalives).toHaveLength(1);
    expect(streamOf(cluster).renewals).toEqual([LEASE_ID, 0x88n]);
  });

  test("that is ended for the first lease that is not answered goes on with the others, until that one is renewed", () => {
    const { cluster, clock, keepalive, self, accepted } = renewing();
    const [forbidden, last] = [renewer(0x88n), renewer(0x99n)];
    keepalive.renew(forbidden.self);
    keepalive.renew(last.self);
    const first = streamOf(cluster);
    first.answer(LEASE_ID, 10);

    first.end(new EtcdRefusedError("permission", "a:1", "permission denied"));

    expect(streamOf(cluster)).not.toBe(first);
    expect(cluster.connected).toHaveLength(1);
    expect(streamOf(cluster).renewals).toEqual([LEASE_ID, 0x99n]);
    streamOf(cluster).answer(LEASE_ID, 10);
    streamOf(cluster).answer(0x99n, 10);
    expect([accepted.length, forbidden.accepted.length, last.accepted.length]).toEqual([2, 0, 1]);
    keepalive.renew(forbidden.self);
    streamOf(cluster).answer(0x88n, 10);
    expect(forbidden.accepted).toHaveLength(1);
    for (const each of [self, forbidden.self, last.self]) keepalive.detach(each);
    clock.advance(PATIENCE_MS);
    expect(clock.timers).toBe(0);
  });

  test("that is ended for a lease tells that one why, and none whose renewal came later", () => {
    const { cluster, keepalive, self } = renewing();
    const refused: [bigint, EtcdRefusedError][] = [];
    const told = (leaseId: bigint) => ({
      ...renewer(leaseId).self,
      refused: (error: EtcdRefusedError) => void refused.push([leaseId, error]),
    });
    const [gone, forbidden, last] = [told(0x88n), told(0x99n), told(0xaan)];
    for (const each of [gone, forbidden, last]) keepalive.renew(each);
    // Nobody waits for its renewal any longer, but etcd has it.
    keepalive.detach(gone);
    streamOf(cluster).answer(LEASE_ID, 10);

    streamOf(cluster).end(new EtcdRefusedError("permission", "a:1", "permission denied"));
    expect(refused).toEqual([]);
    expect(streamOf(cluster).renewals).toEqual([LEASE_ID, 0x99n, 0xaan]);
    streamOf(cluster).answer(LEASE_ID, 10);
    streamOf(cluster).end(new EtcdRefusedError("permission", "a:1", "permission denied"));

    expect(refused.map(([leaseId]) => leaseId)).toEqual([0x99n]);
    expect(refused[0]![1]).toMatchObject({ reason: "permission", host: "a:1" });
    expect(streamOf(cluster).renewals).toEqual([LEASE_ID, 0xaan]);
    for (const each of [self, last]) keepalive.detach(each);
  });

  test("tells leases that it is another one, but not those that it is their first one", async () => {
    const cluster = new FakeCluster();
    const told: string[] = [];
    const tells = (leaseId: bigint) => ({
      ...renewer(leaseId).self,
      reconnected: () => void told.push(String(leaseId)),
    });
    cluster.services.keepalive.renew(tells(1n));
    cluster.services.keepalive.renew(tells(2n));
    expect(told).toEqual([]);

    streamOf(cluster).answer(1n, 10);
    streamOf(cluster).end();
    await cluster.clock.pass(1000);

    expect(told).toEqual(["1", "2"]);
  });

  test("counts as another one for a lease that is renewed first after a member has failed", () => {
    const cluster = new FakeCluster();
    let told = 0;
    cluster.services.client.pool.fail(cluster.services.client.pool.current, new UnansweredError("gone"));

    cluster.services.keepalive.renew({ ...renewer().self, reconnected: () => void told++ });

    expect(told).toBe(1);
  });

  test("that is ended for its token is opened again with a fresh one, on the same member", async () => {
    const auth = { username: "worker", password: "secret" };
    const cluster = new FakeCluster({ auth });
    cluster.onCall = (call) => call.answer("token");
    const { self, accepted } = renewer();

    cluster.services.keepalive.renew(self);
    await cluster.clock.pass(1000);
    const first = streamOf(cluster);
    first.end(new TokenExpiredError("invalid auth token"));
    await cluster.clock.pass(1000);
    streamOf(cluster).answer(LEASE_ID, 10);

    expect(cluster.connected).toHaveLength(1);
    expect(streamOf(cluster)).not.toBe(first);
    expect(cluster.member.of("authenticate")).toHaveLength(2);
    expect(accepted).toHaveLength(1);
  });

  test("is opened as soon as its token is there: a pause after that could make the token too old again", async () => {
    const cluster = new FakeCluster({ auth: { username: "worker", password: "secret" } });
    cluster.onCall = (call) => call.answer("token");
    cluster.services.keepalive.renew(renewer().self);
    await cluster.clock.pass(1000);
    const first = streamOf(cluster);
    let answer = (): void => expect.fail("no token was requested");
    cluster.onCall = (call) => (answer = () => call.answer("token"));

    first.end(new TokenExpiredError("invalid auth token"));
    await cluster.clock.pass(1000);
    expect(streamOf(cluster)).toBe(first);
    answer();
    await settle();

    expect(streamOf(cluster)).not.toBe(first);
  });

  test("ignores an answer that nothing was sent for", () => {
    const { cluster, accepted } = renewing();

    streamOf(cluster).answer(LEASE_ID, 10);
    streamOf(cluster).answer(LEASE_ID, 10);

    expect(accepted).toHaveLength(1);
  });

  test("moves to a new connection on the next member when a renewal stays unanswered, and renews all there", () => {
    const { cluster, clock, keepalive, accepted } = renewing();
    const old = streamOf(cluster);
    keepalive.renew(renewer(0x88n).self);

    clock.advance(PATIENCE_MS - 1);
    expect(old.closed).toBe(false);
    clock.advance(100);

    expect(cluster.connected.map(({ host }) => host)).toEqual(["a:1", "b:1"]);
    expect(old.closed).toBe(true);
    expect(streamOf(cluster).renewals).toEqual([LEASE_ID, 0x88n]);
    old.answer(LEASE_ID, 10);
    expect(accepted).toEqual([]);
  });

  test("says that a renewal was not sent if the member allows no more streams", () => {
    const { cluster, clock } = renewing();
    streamOf(cluster).holdUp = "the member allows no more streams";
    const { member } = cluster;

    clock.advance(PATIENCE_MS + 1);

    expect(cluster.client.hosts.silentHosts.get(member.host)?.error.message).toBe(
      "the renewal of a lease was not sent: the member allows no more streams",
    );
  });

  test("has the patience of the least patient lease", () => {
    const { cluster, clock, keepalive } = renewing();

    keepalive.renew(renewer(0x88n, PATIENCE_MS / 5).self);
    clock.advance(PATIENCE_MS / 4);

    expect(cluster.connected).toHaveLength(2);
  });

  test("waits for the oldest renewal, not for the latest one", () => {
    const { cluster, clock, keepalive, self } = renewing();

    clock.advance(0.9 * PATIENCE_MS);
    keepalive.renew(self);
    streamOf(cluster).answer(LEASE_ID, 10);
    clock.advance(0.9 * PATIENCE_MS);
    expect(cluster.connected).toHaveLength(1);
    clock.advance(0.2 * PATIENCE_MS);

    expect(cluster.connected).toHaveLength(2);
  });

  test("is kept when the answer was waiting in the socket while the process stood still", () => {
    const { cluster, clock, accepted } = renewing();
    const stream = streamOf(cluster);
    clock.pendingEvents = () => stream.answer(LEASE_ID, 10);

    clock.freeze(10 * PATIENCE_MS);
    clock.advance(1);

    expect(accepted).toHaveLength(1);
    expect([stream.closed, cluster.connected.length]).toEqual([false, 1]);
  });

  test("that breaks again and again is not opened in a hot loop", () => {
    const { cluster, clock } = renewing();

    for (let i = 0; i < 10_000 / 10; i++) {
      if (!streamOf(cluster).closed) streamOf(cluster).end();
      clock.advance(10);
    }

    expect(cluster.connected.length).toBeGreaterThan(5);
    expect(cluster.connected.length).toBeLessThan(100);
  });

  test("ends, with all its timers, when no lease is left", () => {
    const { cluster, clock, keepalive, self } = renewing();

    keepalive.detach(self);

    expect(streamOf(cluster).closed).toBe(true);
    expect(clock.timers).toBe(0);
  });
});

describe("a connection that has not been used before", () => {
  /** The test answers for the first host whether it is etcd itself. */
  function unknown() {
    const cluster = new FakeCluster();
    cluster.unknown = ["a:1"];
    const { self, accepted } = renewer();
    cluster.services.keepalive.renew(self);
    return { cluster, self, accepted, stream: streamOf(cluster) };
  }

  test("is asked first to renew no lease, which etcd answers with TTL 0: then its answers count", () => {
    const { stream, accepted } = unknown();

    stream.answer(0n, 0);
    stream.answer(LEASE_ID, 10);

    expect(stream.renewals).toEqual([0n, LEASE_ID]);
    expect(accepted).toHaveLength(1);
  });

  test.each([
    ["answers that with TTL -1", 0n, -1],
    ["answers a later renewal first", LEASE_ID, 10],
  ])("and %s is an etcd grpc-proxy: its answers never count, and the stream moves on", (_, leaseId, ttl) => {
    const { cluster, stream, accepted } = unknown();

    stream.answer(leaseId, ttl);
    stream.answer(LEASE_ID, 10);
    cluster.clock.advance(200);

    expect(accepted).toEqual([]);
    expect(stream.closed).toBe(true);
    expect(cluster.member.host).toBe("b:1");
    expect(cluster.client.hosts.whyUnanswered().get("a:1")?.message).toContain("etcd grpc-proxy");
  });

  test("is asked again on each new stream, which may reach another server: until then its answers do not count", () => {
    const cluster = new FakeCluster({ hosts: "a:1" });
    cluster.unknown = ["a:1"];
    const { self, accepted } = renewer();
    cluster.services.keepalive.renew(self);
    streamOf(cluster).answer(0n, 0);
    streamOf(cluster).end();
    cluster.clock.advance(200);

    const stream = streamOf(cluster);
    expect(cluster.connected).toHaveLength(2);
    expect(stream.renewals).toEqual([0n, LEASE_ID]);
    stream.answer(LEASE_ID, 10);

    expect(accepted).toEqual([]);
    expect(stream.closed).toBe(true);
    expect(cluster.client.hosts.whyUnanswered().get("a:1")?.message).toContain("etcd grpc-proxy");
  });

  test("is asked before a lease is granted on a new connection, once for each", async () => {
    const cluster = new FakeCluster({ hosts: "a:1" });
    const { keepalive } = cluster.services;
    const ask = () => keepalive.assertDirect(cluster.client.pool.current, { timeoutMs: PATIENCE_MS });
    await ask();
    await ask();
    expect(cluster.member.keepalives).toHaveLength(1);

    cluster.client.pool.fail(cluster.member);
    cluster.unknown = ["a:1"];
    const asked = ask();
    streamOf(cluster).answer(0n, -1);

    await expect(asked).rejects.toThrow("etcd grpc-proxy");
  });

  test.each([
    ["answers", (stream: FakeKeepalive) => stream.answer(0n, 0), undefined],
    ["refuses", (stream: FakeKeepalive) => stream.answer(0n, -1), "etcd grpc-proxy"],
    ["is cut off", (stream: FakeKeepalive) => stream.end(), "ended the stream"],
    ["stays silent", () => {}, "no answer in time"],
  ])("is waited for before a lease is granted there: it %s", async (_, happens, reason) => {
    const { cluster } = unknown();
    const { member, clock } = cluster;
    const asked = cluster.services.keepalive.assertDirect(member, { timeoutMs: PATIENCE_MS / 2 });
    const told = asked.then(
      () => undefined,
      (error: Error) => error.message,
    );

    happens(streamOf(cluster));
    clock.advance(PATIENCE_MS / 2);

    expect((await told)?.includes(reason ?? "")).toBe(reason && true);
    expect(streamOf(cluster).closed).toBe(true);
  });

  test("is asked once for all sessions that open at the same time", async () => {
    const { cluster } = unknown();
    const { keepalive } = cluster.services;
    const streams = cluster.member.keepalives.length;
    const options = { timeoutMs: PATIENCE_MS };

    const asked = [1, 2, 3].map(() => keepalive.assertDirect(cluster.member, options));
    streamOf(cluster).answer(0n, 0);
    await Promise.all(asked);

    expect(cluster.member.keepalives).toHaveLength(streams + 1);
  });

  test("keeps no caller who leaves waiting, nor the cluster that is closed", async () => {
    const { cluster } = unknown();
    const { keepalive } = cluster.services;
    const options = { timeoutMs: PATIENCE_MS };
    const caller = new AbortController();
    const left = keepalive.assertDirect(cluster.member, { ...options, signal: caller.signal });
    const stayed = keepalive.assertDirect(cluster.member, options);

    caller.abort();
    await expect(left).rejects.toMatchObject({ kind: "cancelled", inDoubt: false });
    keepalive.close();

    await expect(stayed).rejects.toThrow("closed");
    expect(cluster.clock.timers).toBe(0);
  });
});

describe("an answer of an older raft term than a quorum has shown", () => {
  async function deposed(lowerTerm: bigint) {
    const all = renewing();
    const { cluster, clock, keepalive, self } = all;
    const read = cluster.client.range({ key: "k" }, { what: "a read" });
    await settle();
    cluster.member
      .of("range")[0]!
      .answer({ header: { ...HEADER, raftTerm: 7n }, kvs: [], more: false, count: 0 });
    await read;
    const old = streamOf(cluster);
    old.answer(LEASE_ID, 10, { raftTerm: lowerTerm });
    clock.advance(100);
    await settle();
    return { ...all, old, keepalive, self };
  }

  test("does not count, and moves the stream to the next member", async () => {
    const { cluster, accepted, old } = await deposed(6n);

    expect(accepted).toEqual([]);
    expect(old.closed).toBe(true);
    expect(cluster.member.host).toBe("b:1");
    expect(streamOf(cluster).renewals).toContain(LEASE_ID);
  });

  test("asks a quorum, whose term is the new measure even when it is lower", async () => {
    const { cluster, accepted } = await deposed(6n);
    const [read] = cluster.member.of("range");
    expect(read?.request).not.toHaveProperty("serializable");

    read!.answer({ header: { ...HEADER, raftTerm: 5n }, kvs: [], more: false, count: 0 });
    await settle();
    streamOf(cluster).answer(LEASE_ID, 10, { raftTerm: 5n });

    expect(accepted).toHaveLength(1);
  });

  test("does not count if its term is lower; the same term counts", async () => {
    const { accepted, old } = await deposed(7n);

    expect(accepted).toHaveLength(1);
    expect(old.closed).toBe(false);
  });

  test("is not measured by what a keepalive, a watch or a serializable read has shown", async () => {
    const { cluster, keepalive, self, accepted } = renewing();
    const { watches } = cluster.services;

    streamOf(cluster).answer(LEASE_ID, 10, { raftTerm: 99n });
    const listener = { created: () => {}, events: () => {}, interrupted: () => {}, refused: () => {} };
    watches.watch({ key: "k", events: "DELETE" }, listener);
    cluster.clock.advance(0);
    const [watch] = cluster.member.watches;
    watch!.answer({ created: true, watchId: 1, header: { ...HEADER, raftTerm: 99n } });
    const read = watches.read([{ key: "k" }], 1000);
    await settle();
    cluster.member
      .of("range")[0]!
      .answer({ header: { ...HEADER, raftTerm: 99n }, kvs: [], more: false, count: 0 });
    await read;
    keepalive.renew(self);
    streamOf(cluster).answer(LEASE_ID, 10, { raftTerm: HEADER.raftTerm });

    expect(accepted).toHaveLength(2);
  });
});
