// Local Redis servers for comparisons: started here and stopped here, even if the starter dies. They keep nothing on
// disk and are independent unless configured otherwise (`REPLICAOF`).
import { mkdtemp } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { Redis } from "ioredis";
import { Guardian } from "./guarded.js";
import { freePorts } from "./ports.js";
import { findRedis } from "./redis-find.js";
import { PortTakenError, ServerProcess } from "./server-process.js";

export { findRedis, RedisMissingError } from "./redis-find.js";

const ATTEMPTS = 5;

/**
 * @param {number} [count] default 1
 * @param {readonly string[]} [args] more for every server, such as "--appendonly", "yes"
 * @returns {Promise<RedisServers>} all of them answer; rejects with a `RedisMissingError` where there is no Redis
 */
export async function startRedis(count = 1, args = []) {
  const redis = await findRedis();
  for (let attempt = 1; ; attempt++) {
    try {
      return await startOnce(redis, count, args);
    } catch (error) {
      // another process took one of the ports between our check and the server's bind
      if (!(error instanceof PortTakenError) || attempt === ATTEMPTS) throw error;
    }
  }
}

/** @param {import("./redis-find.js").Redis} redis @param {number} count @param {readonly string[]} args */
async function startOnce(redis, count, args) {
  const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-redis-"));
  const guardian = new Guardian(folder);
  const ports = await freePorts(count, guardian);
  const servers = ports.map(
    (port, n) => new RedisServer(redis, { name: `r${n + 1}`, port, folder, guardian, args }),
  );
  const all = new RedisServers(redis.version, servers, guardian);
  try {
    await Promise.all(servers.map((server) => server.start()));
    return all;
  } catch (error) {
    await all.stop();
    throw error;
  }
}

export class RedisServer {
  #process;

  /**
   * @param {import("./redis-find.js").Redis} redis
   * @param {{ name: string, port: number, folder: string, guardian: Guardian, args: readonly string[] }} where
   */
  constructor({ program, env }, { name, port, folder, guardian, args }) {
    // a replica copies its master at once, without a file in between
    const replication = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"];
    const storage = ["--dir", folder, "--dbfilename", `${name}.rdb`, "--save", "", "--appendonly", "no"];
    this.name = name;
    this.port = port;
    this.#process = new ServerProcess({
      title: `redis ${name}`,
      command: [program, "--port", String(port), "--bind", "127.0.0.1", ...storage, ...replication, ...args],
      env,
      ready: /Ready to accept connections/,
      answers: async () => ((await this.call("PING")) === "PONG" ? "" : "no PONG"),
      tellGuardian: (line) => guardian.tell(line),
    });
  }

  /** Also after a `kill()`, when it is empty. Resolves when it answers. */
  async start() {
    await this.#process.start();
  }

  /** SIGKILL; resolves when the process has exited. */
  async kill() {
    await this.#process.kill();
  }

  /** SIGSTOP */
  pause() {
    this.#process.pause();
  }

  resume() {
    this.#process.resume();
  }

  /**
   * One command on a separate connection.
   * @param {string} command @param {...(string | number)} args
   * @returns {Promise<unknown>}
   */
  async call(command, ...args) {
    const client = new Redis({
      ...{ port: this.port, lazyConnect: true, enableReadyCheck: false, retryStrategy: () => null },
      ...{ connectTimeout: 2000, commandTimeout: 2000, maxRetriesPerRequest: 0 },
    });
    client.on("error", () => {});
    try {
      await client.connect();
      return await client.call(command, ...args);
    } finally {
      client.disconnect();
    }
  }
}

/** Stop them, or use `await using`. */
export class RedisServers {
  #guardian;

  /** @param {string} version @param {readonly RedisServer[]} servers @param {Guardian} guardian */
  constructor(version, servers, guardian) {
    this.version = version;
    this.servers = servers;
    this.#guardian = guardian;
  }

  /** Kills them all. */
  async stop() {
    await Promise.all(this.servers.map((server) => server.kill()));
    await this.#guardian.dismiss();
  }

  async [Symbol.asyncDispose]() {
    await this.stop();
  }
}
