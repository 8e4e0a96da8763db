import { readFileSync } from "node:fs";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../support/etcd/etcd.js";
import { buildPackage, Examples } from "../support/fixtures/examples.js";
import { fenceIn, overtaken } from "../support/fixtures/overtaken.js";
import { type RedisServer, type RedisServers, startRedis } from "../support/servers/redis.js";
import { Upstream } from "../support/proxies/upstream.js";

const SCRIPT = /`([^`]+)`/.exec(
  readFileSync(new URL("../../examples/fenced-redis.js", import.meta.url), "utf8"),
)![1]!;

let etcd: EtcdCluster;
let all: RedisServers;
let redis: RedisServer;

beforeAll(async () => {
  buildPackage();
  [etcd, all] = await Promise.all([startEtcd(), startRedis()]);
  redis = all.servers[0]!;
}, 150_000);
beforeEach(async () => void (await redis.call("FLUSHALL")));
afterAll(async () => {
  await all?.stop();
  await etcd?.stop();
});

const url = () => `redis://127.0.0.1:${redis.port}`;
const token = (fence: bigint, turn = 1) =>
  `${fence.toString().padStart(19, "0")}.${turn.toString().padStart(16, "0")}`;
const write = (fence: bigint, value: string, turn = 1) =>
  redis.call("EVAL", SCRIPT, 1, "key", token(fence, turn), value);

describe("examples/fenced-redis.js", { timeout: 60_000 }, () => {
  test("a holder that was paused for longer than its TTL cannot overwrite the key of the next one", async () => {
    await using examples = new Examples(etcd.endpoints);

    const { stale, next } = await overtaken(examples, "fenced-redis.js", { REDIS_URL: url() });

    expect([next.code, next.stderr]).toEqual([0, ""]);
    expect(stale.code).toBe(1);
    expect(stale.stderr).toMatch(/EUR not written: fence \d+, turn 1 is stale/);
    expect(fenceIn(stale.stderr)).toBeLessThan(fenceIn(next.stdout));
    const row = ["fence", token(fenceIn(next.stdout)), "value", "1.25"];
    expect(await redis.call("HGETALL", "rate:EUR")).toEqual(row);
  });

  test("goes on writing when tokens get a digit more", async () => {
    await using own = await startEtcd();
    await using source = await Upstream.start();
    await using examples = new Examples(own.endpoints, { REDIS_URL: url(), SOURCE_URL: source.url });
    const fences: bigint[] = [];

    for (let round = 1; round <= 5; round++) {
      const program = examples.start("fenced-redis.js");
      (await source.next()).answer(`1.${round}`);
      const { stdout, stderr } = await program.ended;
      expect(stderr).toBe("");
      fences.push(fenceIn(stdout));
    }

    expect(new Set(fences.map((fence) => fence.toString().length))).toEqual(new Set([1, 2]));
    expect(await redis.call("HGET", "rate:EUR", "value")).toBe("1.5");
  });

  test("its script tells neighbours beyond 2^53 apart, and lets a token write again", async () => {
    const fence = 2n ** 53n + 1n;

    expect(await write(fence, "newer")).toBe(1);
    expect(await write(fence - 1n, "older")).toBe(0);
    expect(await redis.call("HGET", "key", "value")).toBe("newer");

    expect(await write(fence, "again")).toBe(1);
    expect(await write(2n ** 63n - 1n, "last")).toBe(1);
  });

  test("its script refuses a lower turn of the same fence, and none of a higher one", async () => {
    expect(await write(9n, "ninth", 9)).toBe(1);
    expect(await write(9n, "tenth", 10)).toBe(1);
    expect(await write(9n, "late", 9)).toBe(0);
    expect(await redis.call("HGET", "key", "value")).toBe("tenth");

    expect(await write(9n, "adopted", Number.MAX_SAFE_INTEGER)).toBe(1);
    expect(await write(10n, "next")).toBe(1);
    expect(await write(9n, "late", Number.MAX_SAFE_INTEGER)).toBe(0);
  });
});
