// The requirements of Curator's tests of its leader latch and selector, and of kazoo's and etcd's of elections, for `lead`
// and Election.
import { describe, expect, test } from "vitest";
import { connect, Election, lead, type Leadership } from "../../../src/index.js";
import { nextLeader } from "../../support/fixtures/next-leader.js";
import { startWithUsers, WORKER } from "../../support/fixtures/users.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { freePorts } from "../../support/servers/ports.js";
import { takesPlace } from "../../support/clients/request-shape.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { abortOf, openClient, queued as joined } from "../../support/clients/session-client.js";
import { revoke } from "../../support/clients/lease-calls.js";

const TTL_SECONDS = 3;

const two = twoSessions(20);
/** Next to other tests, what takes a process milliseconds alone may take seconds. */
const PATIENCE = { timeout: 10_000 };
/** Waits until etcd has this many places under the name. */
const queued = (name: string, count: number) => joined(two.etcd.member, name, count);

/** Works until its leadership ends, or the service is stopped. */
const untilEnd =
  (stop: AbortSignal, onTerm: (leadership: Leadership) => void) => async (leadership: Leadership) => {
    onTerm(leadership);
    await abortOf(AbortSignal.any([stop, leadership.signal]));
  };

const valuesOf = async (name: string, count: number): Promise<(string | undefined)[]> => {
  const values = [];
  for await (const leader of new Election(two.cluster, name).observe()) {
    if (leader) values.push(leader.value);
    if (values.length === count) break;
  }
  return values;
};

describe("a leader", () => {
  test("whose connection breaks again and again, but comes back each time, leads on", async () => {
    const name = "leaders/breaks";
    await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
    await using client = await openClient(proxy.endpoint, TTL_SECONDS);
    const leadership = await new Election(client.session, name).campaign("0");

    for (let n = 1; n <= 4; n++) {
      await proxy.mode("refuse");
      await proxy.mode("pass");
      await leadership.proclaim(String(n));
    }

    expect(leadership.held).toBe(true);
    expect(await new Election(two.session, name).leader()).toMatchObject({
      value: "4",
      fence: leadership.fence,
    });
    await leadership.resign();
  });
});

describe("a service", () => {
  test("that starts before its etcd leads once etcd is there, in one term", async () => {
    const [port = 0] = await freePorts(1);
    const cluster = connect({ hosts: `http://127.0.0.1:${port}`, requestTimeoutMs: 300 });
    const stop = new AbortController();
    const terms: Leadership[] = [];
    const work = untilEnd(stop.signal, (leadership) => terms.push(leadership));
    const done = lead(cluster, "leaders/early", work, { signal: stop.signal });
    await reasonOf(new Election(cluster, "leaders/early").leader({ timeoutMs: 300 }));

    const proxied = await startTcpProxy({ port: two.etcd.member.clientPort }, { port });

    await expect.poll(() => terms.length, PATIENCE).toBe(1);
    stop.abort();
    await done;
    await cluster.close();
    await proxied.stop();
    expect(terms).toHaveLength(1);
  });

  test("that is cut off from its etcd stops leading by its deadline, and leads again afterwards", async () => {
    const name = "leaders/away";
    await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 500 });
    const stop = new AbortController();
    const terms: Leadership[] = [];
    const work = untilEnd(stop.signal, (leadership) => terms.push(leadership));
    const done = lead(cluster, name, work, { signal: stop.signal, ttlSeconds: 2 });
    await expect.poll(() => terms.length, PATIENCE).toBe(1);

    await proxy.mode("refuse");
    expect(await abortOf(terms[0]!.signal)).toMatchObject({ code: "LOCK_LOST", loss: "expired" });
    await proxy.mode("pass");

    await expect.poll(() => terms.length, PATIENCE).toBe(2);
    stop.abort();
    await done;
  });

  test("whose lease ends while its place is on its way begins no work for it", async () => {
    const name = "leaders/race";
    await using proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint });
    const stop = new AbortController();
    const fences: bigint[] = [];
    const join = proxy.rule({ path: "/etcdserverpb.KV/Txn", act: "hold", when: takesPlace, times: 1 });
    const leases = new Set<string>();
    const before = new Set(await leasesOf());
    const work = untilEnd(stop.signal, ({ fence }) => fences.push(fence));
    const done = lead(cluster, name, work, { signal: stop.signal });
    await join.hit();
    for (const id of await leasesOf()) if (!before.has(id)) leases.add(id);

    for (const id of leases) await revoke(two.etcd.member, BigInt(id));
    join.release();
    await expect.poll(() => fences.length, PATIENCE).toBe(1);

    expect((await new Election(two.session, name).leader())?.fence).toBe(fences[0]);
    stop.abort();
    await done;
  });

  test("that ends its work by turns leads once in each round", async () => {
    const name = "leaders/turns";
    const rival = await new Election(two.session, name).campaign("rival");
    const stop = new AbortController();
    const led: number[] = [];
    const services = [0, 1, 2].map((id) =>
      lead(two.cluster, name, () => void led.push(id), { signal: stop.signal }),
    );
    await queued(name, 4);

    await rival.resign();
    await expect.poll(() => led.length, PATIENCE).toBe(6);

    stop.abort();
    await Promise.all(services);
    expect([led.slice(0, 3), led.slice(3)].map((round) => round.sort())).toEqual([
      [0, 1, 2],
      [0, 1, 2],
    ]);
  });
});

describe("an observer", () => {
  test("finds a leader who was elected before etcd's last compaction", async () => {
    const name = "etcd/compacted";
    const leadership = await new Election(two.session, name).campaign("old");
    await two.etcd.etcdctl(["put", "etcd/later", "x"]);
    const { revision } = await two.etcd.member.status();
    await two.etcd.etcdctl(["compact", String(revision)]);

    expect(await valuesOf(name, 1)).toEqual(["old"]);

    await leadership.resign();
  });
});

describe("with a password", () => {
  test("a role that covers the election's prefix is enough to campaign, proclaim and observe, and less is refused", async () => {
    const users = await startWithUsers();
    const cluster = connect({ hosts: users.endpoints, auth: WORKER });
    const election = new Election(cluster, "jobs/leader");
    const observer = election.observe();
    expect(await nextLeader(observer)).toBeUndefined();

    const leadership = await election.campaign("a");
    await leadership.proclaim("b");

    expect([(await nextLeader(observer))?.value, (await nextLeader(observer))?.value]).toEqual(["a", "b"]);
    const other = new Election(cluster, "others/leader");
    const refused = { code: "ETCD_REFUSED", reason: "permission" };
    await expect(other.campaign("a")).rejects.toMatchObject(refused);
    await expect(other.leader()).rejects.toMatchObject(refused);
    await expect(other.observe().next()).rejects.toMatchObject(refused);
    await leadership.resign();
    await cluster.close();
    await users.stop();
  });
});

/** The IDs of all leases of the cluster. */
async function leasesOf(): Promise<string[]> {
  const { leases = [] } = (await two.etcd.member.gateway("/v3/lease/leases", {})) as {
    leases?: { ID: string }[];
  };
  return leases.map(({ ID }) => ID);
}
