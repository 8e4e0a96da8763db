// Other clients than leasehold, on `startDevEtcd`: Go's package concurrency and etcdctl in one queue with it, and etcd3's own primitives.
import { spawn } from "node:child_process";
import { Etcd3, EtcdLockFailedError } from "etcd3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { goContender } from "../../../bench/peers/go.js";
import { connect, Election, Mutex, type Cluster } from "../../../src/index.js";
import { startDevEtcd, type TestEtcd } from "../../../src/testing/start.js";
import { findEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { EtcdctlElect } from "../../support/clients/etcdctl-elect.js";
import { EtcdctlLock } from "../../support/clients/etcdctl-lock.js";
import { owned } from "../../support/programs/owned.js";
import { BUILD_MS } from "../../support/programs/go-program.js";
import { Said } from "../../support/programs/said.js";

/** It may be the first one that needs the program. */
const LONG = { timeout: BUILD_MS + 30_000 };

describe.each([1, 3] as const)("on %s members", (members) => {
  let etcd: TestEtcd;
  let cluster: Cluster;
  beforeAll(async () => {
    etcd = await startDevEtcd({ port: 0, members });
    cluster = connect({ hosts: etcd.hosts });
  });
  afterAll(async () => {
    await cluster.close();
    await etcd.stop();
  });

  /** What the helpers for etcdctl need of a cluster. */
  const forEtcdctl = async () => {
    const { etcdctl } = await findEtcd();
    const env = { ...process.env, ETCDCTL_API: "3" };
    const command = { program: etcdctl, args: [`--endpoints=${etcd.hosts.join(",")}`], env };
    return { etcdctlCommand: () => command } as unknown as EtcdCluster;
  };
  const placesOf = (name: string, count: number) =>
    expect.poll(() => etcd.keys(`${name}/`)).toHaveLength(count);

  test("leasehold and etcdctl lock are served in the order in which they came", async () => {
    const cli = await forEtcdctl();
    const mutex = new Mutex(cluster, "queue");
    const first = await mutex.lock();
    await using second = new EtcdctlLock(cli, "queue");
    await placesOf("queue", 2);
    const third = mutex.lock();
    await placesOf("queue", 3);

    await first.release();
    const key = await second.held;
    expect(key).toMatch(/^queue\/[0-9a-f]+$/);
    expect(await mutex.tryLock()).toBeUndefined();
    await second.release();

    const lock = await third;
    expect(await etcd.keys("queue/")).toEqual([lock.key]);
    await lock.release();
  });

  test("leasehold and etcdctl elect take the lead one after the other", async () => {
    const cli = await forEtcdctl();
    const election = new Election(cluster, "leader");
    const mine = await election.campaign("leasehold");
    await using other = new EtcdctlElect(cli, "leader", "etcdctl");
    await placesOf("leader", 2);
    expect(other.leads).toBe(false);

    await mine.release();

    expect((await other.leader()).value).toBe("etcdctl");
    expect((await election.leader())?.value).toBe("etcdctl");
  });

  test(
    "Go's concurrency and leasehold in one queue: every contender gets its turns, and never two at once",
    LONG,
    async () => {
      const program = await goContender().catch((error: Error) => console.log(`not run: ${error.message}`));
      if (!program) return;
      const go = owned(spawn(program.path, [], { stdio: "pipe" }));
      const said = new Said(go);
      const answer = async () => JSON.parse(await said.next()) as { ok?: unknown };
      const say = (order: object) => {
        go.stdin.write(`${JSON.stringify(order)}\n`);
        return answer();
      };
      await answer();
      const connection = { addresses: etcd.hosts, ttlSeconds: 5, sessions: 2 };
      expect(await say({ do: "open", connection })).toEqual({ ok: true });
      const mutex = new Mutex(cluster, "go");
      const first = await mutex.lock();
      await say({ do: "start", task: { kind: "lock", name: "go", contenders: 2, holdMs: 1, cycles: 10 } });
      await placesOf("go", 3);
      await first.release();
      const fences: bigint[] = [];
      for (let n = 0; n < 10; n++) {
        const lock = await mutex.lock();
        fences.push(lock.fence);
        expect((await etcd.keys("go/")).length).toBeGreaterThan(0);
        await lock.release();
      }
      await placesOf("go", 0);
      const { ok } = (await say({ do: "stop" })) as { ok: { journal: number[] } };
      go.stdin.end();
      const turns = Array.from({ length: ok.journal.length / 4 }, (_, n) =>
        ok.journal.slice(n * 4, n * 4 + 4),
      );
      turns.sort(([, , a = 0], [, , b = 0]) => a - b);

      expect(turns).toHaveLength(20);
      expect(fences).toEqual([...fences].sort((a, b) => Number(a - b)));
      for (const [n, [, , granted = 0]] of turns.entries())
        if (n > 0) expect(granted).toBeGreaterThanOrEqual(turns[n - 1]![3]!);
    },
  );

  test("etcd3 locks, elects, watches and runs transactions", async () => {
    const client = new Etcd3({ hosts: etcd.hosts.map((host) => `http://${host}`) });
    const lock = await client.lock("e3").acquire();
    await expect(client.lock("e3").acquire()).rejects.toBeInstanceOf(EtcdLockFailedError);
    await lock.release();

    const events: string[] = [];
    const watcher = await client.watch().prefix("w/").withPreviousKV().create();
    watcher.on("put", (kv, before) =>
      events.push(`put ${String(kv.value)} version ${kv.version}, before ${String(before?.value)}`),
    );
    watcher.on("delete", (_, before) => events.push(`delete ${String(before?.value)}`));
    await client.put("w/a").value("1");
    await client.put("w/a").value("2");
    await client.delete().prefix("w/");
    await expect.poll(() => events).toHaveLength(3);
    await watcher.cancel();
    expect(events).toEqual(["put 1 version 1, before undefined", "put 2 version 2, before 1", "delete 2"]);

    const campaign = client.election("e3-leader").campaign("me");
    await new Promise((resolve, reject) => {
      campaign.on("elected", () => resolve(undefined));
      campaign.on("error", reject);
    });
    expect(await client.election("e3-leader").leader()).toBe("me");
    await campaign.resign();

    await client.put("counter").value("1");
    const add = client.stm().transact(async (tx) => {
      await tx.put("counter").value(Number(await tx.get("counter").string()) + 1);
    });
    await add;
    expect(await client.get("counter").number()).toBe(2);
    const swapped = await client
      .if("counter", "Version", ">", 1)
      .then(client.put("counter").value("9"))
      .else(client.get("counter"))
      .commit();
    expect(swapped.succeeded).toBe(true);
    client.close();
  });
});
