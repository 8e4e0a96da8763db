// A standing session that was opened for an earlier call and has ended without any notification: the next call uses another.
import { afterAll, beforeAll, describe, test } from "vitest";
import { type Cluster, connect, Mutex } from "../../../src/index.js";
import { type LeaseSource, leaseSourceOf } from "../../../src/lock/session/cluster.js";
import type { Lease } from "../../../src/lock/session/lease.js";
import { askGateway } from "../../support/clients/etcd-http.js";
import { isBatch, takesPlace } from "../../support/clients/request-shape.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { TAKING_CALLS } from "../../support/fixtures/taking-calls.js";
import { Crew } from "../../support/programs/workers.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";

/** No renewal falls into a test: only a call can detect a revoked lease. */
const TTL_SECONDS = 600;
const SHORT_TTL_SECONDS = 2;
const ROUNDS = 20;

let etcd: EtcdCluster;

beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());

const open = (hosts: string | readonly string[] = etcd.endpoints, ttlSeconds = TTL_SECONDS) =>
  connect({ hosts, session: { ttlSeconds } });

/** The lease may be gone already. */
async function revoke({ leaseId }: { readonly leaseId: bigint }): Promise<void> {
  await askGateway(etcd.member, "/v3/lease/revoke", { ID: `${leaseId}` }).catch((error: unknown) => {
    if (!`${error as Error}`.includes("not found")) throw error;
  });
}

/** Runs `each` with every lease that the calls of `cluster` get, before they use it. */
function intercept(cluster: Cluster, each: (lease: Lease, n: number) => Promise<void>): bigint[] {
  const source = leaseSourceOf(cluster) as { lease: LeaseSource["lease"] };
  const ask = source.lease;
  const leases: bigint[] = [];
  source.lease = async (wait) => {
    const lease = await ask(wait);
    if (!leases.includes(lease.leaseId)) {
      leases.push(lease.leaseId);
      await each(lease, leases.length);
    }
    return lease;
  };
  return leases;
}

/** Stops this process's event loop, as SIGSTOP stops the process. */
const stall = (ms: number) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

const slug = (what: string) => what.replaceAll(" ", "-");

describe.concurrent.each(TAKING_CALLS)(
  "%s is done with another session when the standing one",
  (what, call) => {
    test("was revoked before the call", async ({ expect }) => {
      await using cluster = open();
      await revoke(await cluster.session());

      expect(await call(cluster, `before/${slug(what)}`)).toBe(true);
    });

    test("was revoked, and so were the next two, each before it was used", async ({ expect }) => {
      await using cluster = open();
      const leases = intercept(cluster, async (lease, n) => {
        if (n <= 3) await revoke(lease);
      });

      expect(await call(cluster, `thrice/${slug(what)}`)).toBe(true);
      expect(leases).toHaveLength(4);
    });

    test("is revoked in the same moment, again and again", { timeout: 60_000 }, async ({ expect }) => {
      await using cluster = open();
      const name = `moment/${slug(what)}`;
      for (let round = 0; round < ROUNDS; round++) {
        const session = await cluster.session();
        const revoked = revoke(session);
        // The request of the revocation opens a connection, so the call is delayed by turns of the event loop in some rounds.
        for (let turn = 0; turn < round % 10; turn++) await new Promise((resolve) => setImmediate(resolve));
        await expect(call(cluster, name)).resolves.toBeTypeOf("boolean");
        await revoked;
      }
      expect(await placesOf(etcd.member, name)).toEqual([]);
    });

    test("has ended after etcd has joined the call, before the answer came", async ({ expect }) => {
      await using proxy = await startGrpcProxy({ port: etcd.member.clientPort });
      await using cluster = open(proxy.endpoint);
      const name = `answer/${slug(what)}`;
      const session = await cluster.session();
      const rule = proxy.rule({
        path: "/etcdserverpb.KV/Txn",
        when: takesPlace,
        act: "drop-answer",
        times: 1,
      });

      const taking = call(cluster, name);
      await expect.poll(() => rule.hits).toBe(1);
      await revoke(session);

      expect(await taking).toBe(true);
      await expect.poll(() => placesOf(etcd.member, name)).toEqual([]);
    });
  },
);

describe.concurrent("calls that share one request to etcd", () => {
  test("are all done with another session when the standing one was revoked", async ({ expect }) => {
    await using proxy = await startGrpcProxy({ port: etcd.member.clientPort });
    await using cluster = open(proxy.endpoint);
    await using others = open(proxy.endpoint);
    const [session] = await Promise.all([cluster.session(), others.session()]);
    const batches = proxy.rule({ path: "/etcdserverpb.KV/Txn", when: isBatch, act: "delay", ms: 0 });
    await revoke(session);

    const kinds = Array.from({ length: 4 }, (_, n) =>
      TAKING_CALLS.map(([what, call]) => call(cluster, `batch/${n}/${slug(what)}`)),
    ).flat();
    const unhurt = Array.from({ length: 8 }, (_, n) => new Mutex(others, `unhurt/${n}`).withLock(() => true));

    expect(new Set(await Promise.all([...kinds, ...unhurt]))).toEqual(new Set([true]));
    expect(batches.hits).toBeGreaterThan(0);
  });
});

describe("every call is done with another session", () => {
  /** A cluster for each call, with an open standing session; and `begin`, which makes the calls. */
  async function everyCall(name: string) {
    const clusters = TAKING_CALLS.map(() => open(etcd.endpoints, SHORT_TTL_SECONDS));
    await Promise.all(clusters.map((cluster) => cluster.session()));
    const begin = () =>
      Promise.all(
        TAKING_CALLS.map(([what, call], n) => call(clusters[n] as Cluster, `${name}/${slug(what)}`)),
      );
    const close = async () => {
      await Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 })));
    };
    return { begin, [Symbol.asyncDispose]: close };
  }

  test("when the standing one has expired while the event loop stood still", async ({ expect }) => {
    await using calls = await everyCall("stalled");
    stall(SHORT_TTL_SECONDS * 1000 + 200);

    expect(new Set(await calls.begin())).toEqual(new Set([true]));
  });

  test("when it expires while the event loop stands still after the request was sent", async ({ expect }) => {
    await using calls = await everyCall("under-way");
    for (let turns = 1; turns <= 3; turns++) {
      const done = calls.begin();
      for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve));
      stall(SHORT_TTL_SECONDS * 1000 + 200);

      for (const held of await done) expect(held).toBeTypeOf("boolean");
    }
  });

  test("when it has expired while SIGSTOP stopped the process", async ({ expect }) => {
    await using crew = new Crew();
    const worker = await crew.start("worker");
    await worker.connect({ hosts: etcd.endpoints, session: { ttlSeconds: SHORT_TTL_SECONDS } });
    const before = await worker.lock("stopped", { as: "before" });
    await worker.release("before");
    const leaseId = BigInt(`0x${before.key.slice("stopped/".length)}`);

    worker.pause();
    await expect.poll(() => leasesOf(etcd.member), { timeout: 20_000 }).not.toContain(leaseId);
    const [lock, tried] = [
      worker.lock("stopped", { as: "after" }),
      worker.tryLock("stopped-too", { as: "tried" }),
    ];
    worker.resume();

    expect((await lock).fence).toBeGreaterThan(before.fence);
    expect((await tried)?.key).toContain("stopped-too/");
  });
});
