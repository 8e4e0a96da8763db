import { startRedis, type RedisServer, type RedisServers } from "../../../support/servers/redis.js";
import { startTcpProxy, type TcpProxy } from "../../../support/proxies/tcp-proxy.js";
import { Links } from "../links.js";
import { untilTrue } from "../patience.js";
import { PREFIX, type Ground, type Heal } from "./ground.js";

const PATIENCE_MS = 10_000;

/** A master and a replica with asynchronous replication; the clients' address leads to the current master. */
export class RedisPair implements Ground {
  readonly #redis: RedisServers;
  readonly #replication: TcpProxy;
  readonly #links: Links[] = [];
  #master: RedisServer;

  static async start(): Promise<RedisPair> {
    const redis = await startRedis(2);
    const [master, replica] = redis.servers as readonly [RedisServer, RedisServer];
    const replication = await startTcpProxy({ port: master.port });
    await replica.call("REPLICAOF", "127.0.0.1", replication.port);
    const pair = new RedisPair(redis, replication, master);
    const copied = await untilTrue(PATIENCE_MS, async () =>
      /state=online/.test(String(await master.call("INFO", "replication"))),
    );
    if (!copied) throw new Error("the replica did not follow its master");
    return pair;
  }

  private constructor(redis: RedisServers, replication: TcpProxy, master: RedisServer) {
    this.#redis = redis;
    this.#replication = replication;
    this.#master = master;
  }

  get version() {
    return `Redis ${this.#redis.version}, master and replica`;
  }

  async open(): Promise<Links> {
    const links = await Links.open([() => ({ port: this.#master.port })]);
    this.#links.push(links);
    return links;
  }

  keys(): Promise<string[]> {
    return keysOf(this.#master);
  }

  /** The replica lags from now on, as it may at any time: asynchronous replication gives no bound. */
  async beforeFailOver(): Promise<void> {
    await this.#replication.mode("pause");
  }

  /** Once only: the old master stays down. */
  async failOver(): Promise<Heal> {
    const replica = this.#redis.servers.find((server) => server !== this.#master);
    if (replica === undefined) throw new Error("no replica");
    await this.#master.kill();
    await replica.call("REPLICAOF", "NO", "ONE");
    this.#master = replica;
    return () => {};
  }

  async stop(): Promise<void> {
    await Promise.all(this.#links.map((links) => links.stop()));
    await this.#replication.stop();
    await this.#redis.stop();
  }
}

/** Three independent masters, as the Redlock algorithm requires. */
export class RedisTrio implements Ground {
  readonly #redis: RedisServers;
  readonly #links: Links[] = [];

  static async start(): Promise<RedisTrio> {
    return new RedisTrio(await startRedis(3));
  }

  private constructor(redis: RedisServers) {
    this.#redis = redis;
  }

  get version() {
    return `Redis ${this.#redis.version}, three masters`;
  }
  get servers(): readonly RedisServer[] {
    return this.#redis.servers;
  }

  async open(): Promise<Links> {
    const links = await Links.open(this.servers.map(({ port }) => () => ({ port })));
    this.#links.push(links);
    return links;
  }

  async keys(): Promise<string[]> {
    return (await Promise.all(this.servers.map(keysOf))).flat();
  }

  async beforeFailOver(): Promise<void> {}

  /**
   * Two of the three are restarted, one after the other, so that only one is down at a time. They keep nothing on disk.
   */
  async failOver(): Promise<Heal> {
    for (const server of this.servers.slice(1)) {
      await server.kill();
      await server.start();
    }
    return () => {};
  }

  async stop(): Promise<void> {
    await Promise.all(this.#links.map((links) => links.stop()));
    await this.#redis.stop();
  }
}

async function keysOf(server: RedisServer): Promise<string[]> {
  return (await server.call("KEYS", `*${PREFIX}*`)) as string[];
}
