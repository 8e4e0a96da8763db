// The requirements of Curator's tests of its leader latch and selector, and of kazoo's tests of its election, for
// `lead` and Election.
import { describe, expect, test } from "vitest";
import { connect, Election, lead, type Leadership } from "../../../src/index.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { freePorts } from "../../support/servers/ports.js";
import { takesPlace } from "../../support/clients/request-shape.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { abortOf, openClient, queued as joined, settledYet } from "../../support/clients/session-client.js";
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

  test("whose session was interrupted leads no more when the next one does, and follows it", async () => {
    const name = "leaders/interrupted";
    await using client = await openClient(two.etcd.endpoints, TTL_SECONDS);
    const first = await new Election(client.cluster, name).campaign("first");
    const waiting = new Election(two.session, name).campaign("second");
    await queued(name, 2);

    await revoke(two.etcd.member, (await client.cluster.session()).leaseId);
    const second = await waiting;
    await abortOf(first.signal);
    const again = new Election(client.cluster, name).campaign("first again");
    const leads = settledYet(again);
    await queued(name, 2);
    expect([first.held, second.held, leads()]).toEqual([false, true, false]);
    await second.resign();

    expect((await again).fence).toBeGreaterThan(second.fence);
  });

  test("that resigns late, when another one leads already, does not touch its key", async () => {
    const name = "leaders/late";
    const election = new Election(two.session, name);
    const first = await election.campaign("first");
    await two.etcd.etcdctl(["del", first.key]);
    const second = await new Election(two.holder, name).campaign("second");

    await reasonOf(first.resign());

    expect((await election.leader())?.fence).toBe(second.fence);
    await second.resign();
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

/** The IDs of all leases of the cluster. */
async function leasesOf(): Promise<string[]> {
  const { leases = [] } = (await two.etcd.member.gateway("/v3/lease/leases", {})) as {
    leases?: { ID: string }[];
  };
  return leases.map(({ ID }) => ID);
}
