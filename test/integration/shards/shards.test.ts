// Shards on a real etcd. Who owns what is judged by the queues in etcd, and by what the works record, never by what a member says of itself.
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  type Cluster,
  connect,
  type Shard,
  ShardCountError,
  shards,
  type Shards,
  type ShardsOptions,
  watchShards,
} from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());

const COUNT = 24;
const PATIENCE = { timeout: 20_000 };

interface Run {
  readonly member: string;
  readonly shard: Shard;
  readonly fence: bigint;
  ended: boolean;
}

/** Members of one group, each with a cluster of its own, and what their works record. */
class Group implements AsyncDisposable {
  readonly runs: Run[] = [];
  /** Shards on which two works have run at a time. */
  readonly overlaps: number[] = [];
  readonly #clusters: Cluster[] = [];

  constructor(
    readonly name: string,
    readonly options: Partial<ShardsOptions> = {},
  ) {}

  async start(
    id: string,
    more: Partial<ShardsOptions> = {},
    work?: (shard: Shard) => unknown,
  ): Promise<Shards> {
    const cluster = connect({ hosts: etcd.endpoints });
    this.#clusters.push(cluster);
    const options = {
      count: COUNT,
      id,
      value: `http://${id}`,
      settleMs: 0,
      ttlSeconds: 3,
      ...this.options,
      ...more,
    };
    return shards(cluster, this.name, options, async (shard) => {
      const run: Run = { member: id, shard, fence: shard.fence, ended: false };
      if (this.running(shard.id).length > 0) this.overlaps.push(shard.id);
      this.runs.push(run);
      try {
        await (work?.(shard) ?? untilAborted(shard.signal));
      } finally {
        run.ended = true;
      }
    });
  }

  cluster(): Cluster {
    const cluster = connect({ hosts: etcd.endpoints });
    this.#clusters.push(cluster);
    return cluster;
  }

  running(shard: number): Run[] {
    return this.runs.filter((run) => run.shard.id === shard && !run.ended);
  }

  /** How many shards each member works on. */
  loads(): Record<string, number> {
    const loads: Record<string, number> = {};
    for (const { member, ended } of this.runs) if (!ended) loads[member] = (loads[member] ?? 0) + 1;
    return loads;
  }

  /** Waits until each member works on so many, and etcd has one entry in each queue. */
  async balanced(loads: Record<string, number>): Promise<void> {
    await expect.poll(() => this.loads(), PATIENCE).toEqual(loads);
    const count = Object.values(loads).reduce((sum, each) => sum + each, 0);
    await expect.poll(() => this.entries(), PATIENCE).toBe(count);
  }

  async entries(): Promise<number> {
    return (await placesOf(etcd.member, `${this.name}/shard`)).length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#clusters.map((cluster) => cluster.close({ drainMs: 0 })));
  }
}

const untilAborted = (signal: AbortSignal) =>
  new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));

test("shards are shared out, move to a new member while it stands in the queue, and back when it leaves", async () => {
  await using group = new Group("feeds");
  const a = await group.start("a");
  await group.balanced({ a: 24 });
  const b = await group.start("b");
  await group.balanced({ a: 12, b: 12 });
  const c = await group.start("c");
  await group.balanced({ a: 8, b: 8, c: 8 });

  await b.close();
  await group.balanced({ a: 12, c: 12 });
  expect(a.owned).toHaveLength(12);
  expect(group.overlaps).toEqual([]);
  // Each run of a shard has a higher fence than the one before it.
  for (let shard = 0; shard < COUNT; shard++) {
    const fences = group.runs.filter((run) => run.shard.id === shard).map(({ fence }) => fence);
    expect(fences).toEqual([...new Set(fences)].sort((x, y) => (x < y ? -1 : 1)));
  }
  await Promise.all([a.close(), c.close()]);
  expect(await group.entries()).toBe(0);
});
