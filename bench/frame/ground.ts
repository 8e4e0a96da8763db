// The servers under test, started anew for each question.
import { setTimeout as delay } from "node:timers/promises";
import { startEtcd, type EtcdCluster, type EtcdMember } from "../../test/support/etcd/etcd.js";
import { encode, endOf } from "../../test/support/clients/gateway-text.js";
import { startRedis } from "../../test/support/servers/redis.js";
import { meter } from "../../test/support/fixtures/spent.js";
import type { GroundKind } from "../peers/peers.js";

/** How often places are counted while a queue fills. */
const LOOK_MS = 20;
const PATIENCE_MS = 60_000;
const CALM_MS = 1000;
/** A client besides a thousand contenders has to wait. */
const SLOW = { timeoutMs: 15_000 };

export interface Ground {
  /** The addresses that clients connect to. */
  readonly addresses: readonly string[];
  readonly version: string;
  /** Starts counting, if the server counts. */
  meter?(): Promise<{ read(): Promise<Readonly<Record<string, number>>> }>;
  stop(): Promise<void>;
}

export class EtcdGround implements Ground {
  readonly #cluster: EtcdCluster;
  /** The member that clients use: a follower, if there is one. */
  readonly #member: EtcdMember;

  static async start(members: 1 | 3): Promise<EtcdGround> {
    const cluster = await startEtcd({ members });
    const leader = await cluster.leader();
    return new EtcdGround(cluster, cluster.members.find((member) => member !== leader) ?? leader);
  }

  private constructor(cluster: EtcdCluster, member: EtcdMember) {
    this.#cluster = cluster;
    this.#member = member;
  }

  get addresses() {
    return [new URL(this.#member.endpoint).host];
  }
  get version() {
    return `etcd ${this.#cluster.version}`;
  }

  /** What the member counts from now on: unary calls by method, messages on streams, revisions. */
  meter() {
    return meter(this.#member, SLOW);
  }

  /** A place before all others: they wait until it is deleted. */
  async block(name: string): Promise<() => Promise<void>> {
    const key = encode(`${name}/0`);
    await this.#member.gateway("/v3/kv/put", { key, value: "" }, SLOW);
    return async () => void (await this.#member.gateway("/v3/kv/deleterange", { key }, SLOW));
  }

  /** Resolves when the queue has this many places. */
  async queued(name: string, places: number): Promise<void> {
    const range = { key: encode(`${name}/`), range_end: encode(endOf(`${name}/`)), count_only: true };
    for (const until = performance.now() + PATIENCE_MS; ; await delay(LOOK_MS)) {
      const { count = "0" } = (await this.#member.gateway("/v3/kv/range", range, SLOW)) as { count?: string };
      if (Number(count) >= places) return;
      if (performance.now() > until) throw new Error(`${count} of ${places} places in ${PATIENCE_MS} ms`);
    }
  }

  /** The number of open streams of a kind: "Watch" or "LeaseKeepAlive". */
  async streams(method: string): Promise<number> {
    const metrics = await this.#member.metrics(SLOW);
    const count = (kind: string) =>
      [...metrics].reduce((sum, [series, value]) => {
        const counts = series.startsWith(`grpc_server_${kind}_total{`) && series.includes(`"${method}"`);
        return sum + (counts ? value : 0);
      }, 0);
    return count("started") - count("handled");
  }

  /** The number of watches, on all streams. */
  async watches(): Promise<number> {
    return (await this.#member.metrics(SLOW)).get("etcd_debugging_mvcc_watcher_total") ?? NaN;
  }

  /** Resolves when no client has sent anything for a second. */
  async calm(): Promise<void> {
    const meterOf = await this.meter();
    const heard = async () => JSON.stringify(await meterOf.read());
    let before = await heard();
    for (const until = performance.now() + PATIENCE_MS; performance.now() < until;) {
      await delay(CALM_MS);
      const after = await heard();
      if (after === before) return;
      before = after;
    }
    throw new Error(`etcd was not left alone in ${PATIENCE_MS} ms`);
  }

  stop(): Promise<void> {
    return this.#cluster.stop();
  }
}

const FSYNC = ["--appendonly", "yes", "--appendfsync", "always"];

async function redisGround(args: readonly string[]): Promise<Ground> {
  const redis = await startRedis(1, args);
  return {
    addresses: redis.servers.map(({ port }) => `127.0.0.1:${port}`),
    version: `Redis ${redis.version}`,
    stop: () => redis.stop(),
  };
}

/** Rejects with a `RedisMissingError` if there is no Redis. */
export function startGround(kind: GroundKind, members: 1 | 3): Promise<Ground> {
  if (kind === "etcd") return EtcdGround.start(members);
  return redisGround(kind === "redis" ? [] : FSYNC);
}
