// Waiters with `rejoin` through an outage of all members that is longer than the TTL.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { connect, Mutex } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { startCli } from "../../support/programs/cli.js";
import { Crew } from "../../support/programs/workers.js";

const TTL_SECONDS = 3;

describe("with three members that all stand still for longer than the TTL", { timeout: 90_000 }, () => {
  let etcd: EtcdCluster;

  beforeAll(async () => void (etcd = await startEtcd({ members: 3 })), 60_000);
  afterAll(() => etcd.stop());
  beforeEach(() => () => resume());

  const pause = () => etcd.members.forEach((member) => member.pause());
  const resume = () => etcd.members.forEach((member) => member.resume());
  const places = (name: string) => placesOf(etcd.member, name);
  const open = (ttlSeconds = TTL_SECONDS) =>
    connect({ hosts: etcd.endpoints, session: { ttlSeconds }, requestTimeoutMs: 1000 });

  test("a waiter with rejoin is granted afterwards, and one without rejects", async () => {
    await using holders = open(600);
    await using cluster = open();
    const holder = await new Mutex(holders, "one").lock();
    const waits = new Mutex(cluster, "one").lock({ rejoin: true });
    const rejects = reasonOf(new Mutex(cluster, "one").lock());
    await expect.poll(() => places("one")).toHaveLength(3);
    const session = await cluster.session();

    pause();
    expect(await rejects).toBe(session.signal.reason);
    // A session can be opened for 10 s: this is the error that a call without a place in a queue gets.
    expect(await reasonOf(cluster.session({ timeoutMs: 11_000 }))).toMatchObject({
      code: "ETCD_UNAVAILABLE",
    });
    resume();
    await expect.poll(() => places("one").catch(() => []), { timeout: 20_000 }).toHaveLength(2);
    await holder.release();

    const lock = await waits;
    expect(lock.fence).toBeGreaterThan(holder.fence);
    expect(lock.key).not.toContain(session.leaseId.toString(16));
    await lock.release();
    expect(await places("one")).toEqual([]);
  });

  test("leasehold run reports it, backing off, and runs its command afterwards", async () => {
    await using holders = open(600);
    const holder = await new Mutex(holders, "program").lock();
    const words = ["run", "program", "--ttl", "3s", "--", "true"];
    const program = startCli(words, { endpoints: etcd.endpoints.join(",") });
    await expect.poll(() => places("program")).toHaveLength(2);

    pause();
    await program.says(/etcd did not answer.*; next attempt in \d+ (?:ms|s)\n/);
    resume();
    await holder.release();

    expect((await program.ended).code).toBe(0);
  });

  test("a waiter with rejoin whose time limit ends meanwhile rejects with EtcdUnavailableError", async () => {
    await using holders = open(600);
    await using cluster = open();
    const holder = await new Mutex(holders, "limited").lock();
    const waits = reasonOf(new Mutex(cluster, "limited").lock({ rejoin: true, timeoutMs: 8000 }));
    await expect.poll(() => places("limited")).toHaveLength(2);

    pause();
    expect(await waits).toMatchObject({ code: "ETCD_UNAVAILABLE" });
    resume();
    await holder.release();
    await expect.poll(() => places("limited").catch(() => ["unknown"]), { timeout: 20_000 }).toEqual([]);
  });

  test("a waiter with rejoin ends with SessionClosedError when its cluster is closed meanwhile", async () => {
    await using holders = open(600);
    const cluster = open();
    const holder = await new Mutex(holders, "closed").lock();
    const waits = reasonOf(new Mutex(cluster, "closed").lock({ rejoin: true }));
    await expect.poll(() => places("closed")).toHaveLength(2);
    const session = await cluster.session();

    pause();
    await new Promise((resolve) => session.signal.addEventListener("abort", resolve));
    await cluster.close({ drainMs: 0 });

    expect(await waits).toMatchObject({ code: "SESSION_CLOSED" });
    resume();
    await holder.release();
  });

  test("20 waiters of 3 processes with rejoin are each served once, in the order of their new joins", async () => {
    await using crew = new Crew();
    await using holders = open(600);
    const holder = await new Mutex(holders, "crew").lock();
    const workers = await Promise.all(["a", "b", "c"].map((name) => crew.start(name)));
    const options = { hosts: etcd.endpoints, session: { ttlSeconds: TTL_SECONDS } };
    await Promise.all(workers.map((worker) => worker.connect(options)));
    const served: { fence: bigint; key: string }[] = [];
    const waits = Array.from({ length: 20 }, async (_, n) => {
      const worker = workers[n % 3]!;
      const taken = await worker.lock("crew", { as: `${n}`, rejoin: true });
      served.push(taken);
      await worker.release(`${n}`);
      return taken.fence;
    });
    await expect.poll(() => places("crew")).toHaveLength(21);
    const before = new Set((await places("crew")).map(({ leaseId }) => leaseId));

    const ends = workers.map((worker) => worker.standingEnd());
    pause();
    await Promise.all(ends);
    resume();
    const isNew = ({ leaseId }: { leaseId: bigint }) => !before.has(leaseId);
    await expect
      .poll(
        () =>
          places("crew")
            .then((all) => all.filter(isNew))
            .catch(() => []),
        { timeout: 40_000 },
      )
      .toHaveLength(20);
    const queue = (await places("crew")).filter(isNew).map(({ key }) => key);
    await holder.release();
    const fences = await Promise.all(waits);

    expect(new Set(fences).size).toBe(20);
    expect(served.map(({ key }) => key)).toEqual(queue);
    await expect.poll(() => places("crew")).toEqual([]);
  });
});
