// Many members and many shards on a real etcd: balance, and how much a join and a leave move. Judged by what the works record.
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Cluster, connect, type Shard, type Shards, shards } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";

const PATIENCE = { timeout: 90_000, interval: 50 };

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd({ members: 3 })), 60_000);
afterAll(() => etcd.stop());

class Crowd {
  /** The member that works on each shard. */
  readonly owner = new Map<number, number>();
  runs = 0;
  overlaps = 0;
  readonly members = new Map<number, { readonly cluster: Cluster; readonly feeds: Shards }>();

  constructor(
    readonly group: string,
    readonly count: number,
  ) {}

  async start(n: number): Promise<void> {
    const cluster = connect({ hosts: etcd.endpoints });
    const feeds = await shards(cluster, this.group, { count: this.count, id: `member-${n}` }, (shard) =>
      this.#work(n, shard),
    );
    this.members.set(n, { cluster, feeds });
  }

  async stop(n: number): Promise<void> {
    const member = this.members.get(n);
    await member?.feeds.close();
    await member?.cluster.close();
    this.members.delete(n);
  }

  async #work(n: number, { id, signal }: Shard): Promise<void> {
    this.runs++;
    if (this.owner.has(id)) this.overlaps++;
    this.owner.set(id, n);
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
    this.owner.delete(id);
  }

  get spread(): number {
    const owners = [...this.owner.values()];
    const loads = [...this.members.keys()].map((n) => owners.filter((owner) => owner === n).length);
    return Math.max(...loads) - Math.min(...loads);
  }

  /** All shards are owned, as etcd has it, too, and the shares are equal. Returns how many have begun since the last time. */
  async balanced(): Promise<number> {
    await expect.poll(() => [this.owner.size, this.spread <= 1], PATIENCE).toEqual([this.count, true]);
    const places = await placesOf(etcd.member, `${this.group}/shard`);
    expect(places).toHaveLength(this.count);
    const { runs } = this;
    this.runs = 0;
    return runs;
  }
}

test.each([
  [2, 256],
  [8, 256],
  [8, 1024],
  [32, 1024],
])(
  "%d members share out %d shards evenly; one more, and one less, move a share at most, and no shard has two owners",
  async (members, count) => {
    const crowd = new Crowd(`crowd/${members}/${count}`, count);
    await Promise.all(Array.from({ length: members }, (_, n) => crowd.start(n)));
    expect(await crowd.balanced()).toBe(count);
    await crowd.start(members);
    const joined = await crowd.balanced();
    await crowd.stop(1);
    const left = await crowd.balanced();
    console.log(`${members} members, ${count} shards: a join moved ${joined}, a leave ${left}`);
    expect(joined).toBeLessThanOrEqual(Math.ceil(count / (members + 1)) + 1);
    expect(left).toBeLessThanOrEqual(Math.ceil(count / (members + 1)) + 1);
    await Promise.all([...crowd.members.keys()].map((n) => crowd.stop(n)));
    expect(crowd.overlaps).toBe(0);
    expect(await placesOf(etcd.member, crowd.group)).toEqual([]);
  },
  120_000,
);
