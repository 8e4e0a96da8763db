// The requirements of Curator's tests of its semaphore, on one server and on a cluster, and of kazoo's.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Hold, Semaphore } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type Client, openClient, queued } from "../../support/clients/session-client.js";

/** Much longer than a member is down. */
const TTL_SECONDS = 30;
const PERMITS = 3;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd({ members: 3 })), 60_000);
afterAll(() => etcd.stop());
beforeEach(() => async () => {
  for (const member of etcd.members) if (!member.running) await member.restart();
});

const permitOf = ({ session }: Client, name: string) => new Semaphore(session, name, PERMITS);

/** Records the maximum number of simultaneous workers. */
class Workers {
  #now = 0;
  most = 0;
  readonly work = async (): Promise<void> => {
    this.most = Math.max(this.most, ++this.#now);
    await new Promise((resolve) => setImmediate(resolve));
    this.#now--;
  };
}

describe("twenty who share three permits", () => {
  test("are all served, three at a time, though the leader was killed while they were queueing", async () => {
    const name = "leader";
    await using first = await openClient(etcd.endpoints, TTL_SECONDS);
    await using second = await openClient(etcd.endpoints, TTL_SECONDS);
    const held: Hold[] = [];
    for (let i = 0; i < PERMITS; i++) held.push(await permitOf(first, name).acquire());
    const workers = new Workers();
    const working = Array.from({ length: 20 }, (_, i) =>
      permitOf(i % 2 ? first : second, name).withPermit(workers.work),
    );
    await queued(etcd.member, name, PERMITS + 20);

    await (await etcd.leader()).kill();
    await Promise.all(held.map((hold) => hold.release()));
    await Promise.all(working);

    expect(workers.most).toBeLessThanOrEqual(PERMITS);
    expect(held.map((hold) => hold.held)).toEqual([false, false, false]);
  });

  test("are all served, three at a time, though the only member that they know was away", async () => {
    const name = "away";
    const [member] = etcd.members as [(typeof etcd.members)[0]];
    await using first = await openClient(member.endpoint, TTL_SECONDS);
    await using second = await openClient(member.endpoint, TTL_SECONDS);
    const workers = new Workers();
    const hold = await permitOf(first, name).acquire();
    const working = Array.from({ length: 20 }, (_, i) =>
      permitOf(i % 2 ? first : second, name).withPermit(workers.work),
    );

    await member.kill();
    await member.restart();
    await Promise.all(working);

    expect(workers.most).toBeLessThanOrEqual(PERMITS);
    expect(hold.held).toBe(true);
    await hold.release();
    await expect.poll(() => placesOf(etcd.members[1]!, name)).toEqual([]);
  });
});
