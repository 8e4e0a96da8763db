// Members that are killed, and a rolling restart under load. Judged by etcd's own deletions, by fences, and by what the works record.
import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import {
  connect,
  FenceGate,
  members,
  type Shard,
  type ShardMap,
  shards,
  type Shards,
  StaleFenceError,
  watchShards,
} from "../../../src/index.js";
import { linesOf } from "../../support/clients/lines.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";

const PROGRAM = fileURLToPath(new URL("../../support/programs/shards-program.js", import.meta.url));
const COUNT = 256;
const TTL_SECONDS = 5;
const PATIENCE = { timeout: 60_000, interval: 20 };

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd({ members: 3 })), 60_000);
afterAll(() => etcd.stop());

const untilAborted = (signal: AbortSignal) =>
  new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));

/** A process of a group, which owns all shards when this resolves. */
async function startMember(options: object): Promise<ChildProcess> {
  const all = {
    hosts: etcd.endpoints,
    session: { ttlSeconds: TTL_SECONDS },
    count: COUNT,
    until: COUNT,
    ...options,
  };
  const child = spawn(process.execPath, [PROGRAM, JSON.stringify(all), "killed"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  for await (const line of linesOf(child.stdout)) if (line === "all") return child;
  throw new Error("the member has ended");
}

test.each([
  // A renewal is up to a third of the TTL old.
  ["after its lease has expired", {}, 2 * TTL_SECONDS],
  ["at once, with a guardian", { guardian: true }, (2 / 3) * TTL_SECONDS],
])(
  "all 256 shards of a member that is killed are owned again %s",
  async (how, options, goneWithinSeconds) => {
    const group = `killed/${how}`;
    const killed = await startMember({ group, ...options });
    await using cluster = connect({ hosts: etcd.endpoints });
    const runs = new Map<number, bigint>();
    const work = ({ id, fence }: Shard) => void runs.set(id, fence);
    const settings = { count: COUNT, id: "next", ttlSeconds: TTL_SECONDS };
    const before = new Map<number, bigint>();
    for (const { key, revision } of await placesOf(etcd.member, `${group}/shard`))
      before.set(Number(key.split("/").at(-2)), revision);
    expect(before.size).toBe(COUNT);

    killed.kill("SIGKILL");
    const since = performance.now();
    await using next = await shards(cluster, group, { ...settings, settleMs: 0 }, work);
    // When etcd has deleted the keys of the one that was killed.
    let goneMs = Infinity;
    for await (const list of members(cluster, group))
      if (list.members.every(({ id }) => id !== "killed")) {
        goneMs = performance.now();
        break;
      }
    await expect.poll(() => runs.size, PATIENCE).toBe(COUNT);
    const tookMs = performance.now() - goneMs;
    console.log(
      `${how}: ${((goneMs - since) / 1000).toFixed(1)} s to the end of the lease, ${tookMs.toFixed(0)} ms more`,
    );
    expect(next.owned).toHaveLength(COUNT);
    for (const [id, fence] of runs) expect(fence).toBeGreaterThan(before.get(id) ?? 0n);
    expect(goneMs - since).toBeLessThan(goneWithinSeconds * 1000);
    // On a quiet machine, a tenth of that.
    expect(tookMs).toBeLessThan(TTL_SECONDS * 1000);
  },
  60_000,
);

/** A worker of the service that is restarted: serves the requests for the shards that it owns. */
class Server {
  readonly runs = new Map<number, Shard>();
  readonly #cluster = connect({ hosts: etcd.endpoints });
  #feeds: Shards | undefined;

  constructor(
    readonly id: string,
    private readonly gates: readonly FenceGate[],
  ) {}

  async start(group: string): Promise<this> {
    const options = {
      count: this.gates.length,
      id: this.id,
      value: this.id,
      settleMs: 0,
      ttlSeconds: TTL_SECONDS,
    };
    this.#feeds = await shards(this.#cluster, group, options, async (shard) => {
      this.runs.set(shard.id, shard);
      await untilAborted(shard.signal);
      this.runs.delete(shard.id);
    });
    return this;
  }

  /** A request that was sent to the owner with this fence. */
  serve(id: number, fence: bigint): "served" | "refused" {
    const shard = this.runs.get(id);
    if (shard?.fence !== fence || shard.signal.aborted) return "refused";
    // The resource has the last word.
    this.gates[id]?.admit(shard.fence);
    return "served";
  }

  async stop(): Promise<void> {
    await this.#feeds?.close();
    await this.#cluster.close();
  }
}

test("during a rolling restart of 8 of 8 members under load, no request is served by a stale owner", async () => {
  const group = "rolling";
  const gates = Array.from({ length: 64 }, () => new FenceGate());
  const servers = new Map<string, Server>();
  const ids = Array.from({ length: 8 }, (_, n) => `server-${n}`);
  for (const id of ids) servers.set(id, await new Server(id, gates).start(group));
  await using cluster = connect({ hosts: etcd.endpoints });
  await using map = await watchShards(cluster, group);
  const balanced = async () => {
    const loads = () => [...servers.values()].map(({ runs }) => runs.size);
    await expect.poll(loads, PATIENCE).toEqual(Array.from(loads(), () => 64 / 8));
  };
  await balanced();
  const tally = { served: 0, refused: 0, unowned: 0, stale: 0 };
  const load = new AbortController();
  const loading = loadUntil(load.signal, map, servers, tally);
  for (const id of ids) {
    await servers.get(id)?.stop();
    servers.set(id, await new Server(id, gates).start(group));
    await balanced();
  }
  load.abort();
  await loading;
  console.log(`rolling restart: ${JSON.stringify(tally)}`);
  expect(tally.stale).toBe(0);
  expect(tally.served).toBeGreaterThan(1000);
  // Those that came between two owners: few.
  expect(tally.refused + tally.unowned).toBeLessThan(tally.served / 10);
  await Promise.all([...servers.values()].map((server) => server.stop()));
}, 120_000);

async function loadUntil(
  signal: AbortSignal,
  map: ShardMap,
  servers: ReadonlyMap<string, Server>,
  tally: Record<"served" | "refused" | "unowned" | "stale", number>,
): Promise<void> {
  for (let n = 0; !signal.aborted; n++) {
    const id = map.shardOf(`user ${n}`);
    const owner = map.owner(id);
    // The request is on its way for a moment.
    if (n % 8 === 0) await new Promise((resolve) => setImmediate(resolve));
    try {
      if (owner?.value === undefined) tally.unowned++;
      else tally[servers.get(owner.value)?.serve(id, owner.fence) ?? "refused"]++;
    } catch (error) {
      if (!(error instanceof StaleFenceError)) throw error;
      tally.stale++;
    }
  }
}
