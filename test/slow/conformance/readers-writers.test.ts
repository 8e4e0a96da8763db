// The requirements of the tests of etcd's RWMutex, Curator's ReadWriteLock and kazoo's rw_lock.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Hold, RwLock } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type Client, openClient, queued, settledYet } from "../../support/clients/session-client.js";

const TTL_SECONDS = 20;
const CLIENTS = 6;

let etcd: EtcdCluster;
let clients: readonly Client[];
beforeAll(async () => {
  etcd = await startEtcd({ members: 3 });
  // Each starts at a different member.
  const hosts = (i: number) => etcd.endpoints.slice(i % 3).concat(etcd.endpoints.slice(0, i % 3));
  clients = await Promise.all(Array.from({ length: CLIENTS }, (_, i) => openClient(hosts(i), TTL_SECONDS)));
}, 60_000);
afterAll(async () => {
  await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()));
  await etcd.stop();
});

const lockOf = (client: Client, name: string) => new RwLock(client.session, name);

describe("clients at several members", () => {
  test("that read and write again and again never see a writer beside them, and all are served", async () => {
    const name = "again";
    let readers = 0;
    let writers = 0;
    const seen: string[] = [];
    const read = async () => {
      readers++;
      if (writers > 0) seen.push("a reader beside a writer");
      await Promise.resolve();
      readers--;
    };
    const write = async () => {
      writers++;
      if (writers > 1 || readers > 0) seen.push("a writer that is not alone");
      await Promise.resolve();
      writers--;
    };

    await Promise.all(
      clients.flatMap((client, i) =>
        Array.from({ length: 8 }, (_, round) => {
          const lock = lockOf(client, name);
          return (i + round) % 3 === 0 ? lock.withWriteLock(write) : lock.withReadLock(read);
        }),
      ),
    );

    expect(seen).toEqual([]);
    expect(await placesOf(etcd.member, name)).toEqual([]);
  });

  test("that read keep a writer out to the last of them, whichever ends first", async () => {
    const name = "last-reader";
    const [writer, ...others] = clients as [Client, ...Client[]];
    const readers: Hold[] = await Promise.all(others.map((client) => lockOf(client, name).readLock()));
    const writing = lockOf(writer, name).writeLock();
    await queued(etcd.member, name, readers.length + 1);
    const granted = settledYet(writing);

    // From the middle: neither the first nor the last key is deleted.
    for (const reader of [readers[2]!, readers[4]!, readers[0]!, readers[3]!]) {
      await reader.release();
      expect(granted()).toBe(false);
    }
    await readers[1]!.release();

    await (await writing).release();
  });

  test("that close while they read let the writer in at once, long before their leases would have run out", async () => {
    const name = "closing";
    const leaving = await openClient(etcd.endpoints, 3600);
    await lockOf(leaving, name).readLock();
    const writing = lockOf(clients[0]!, name).writeLock();
    await queued(etcd.member, name, 2);

    await leaving.cluster.close({ drainMs: 0 });

    await (await writing).release();
  });
});
