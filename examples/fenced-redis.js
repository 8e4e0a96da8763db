// @ts-check
// Fenced writes to Redis: a script compares the fencing token and writes in one step, so a holder that was paused while
// another one acquired its lock is refused. Redis forgets tokens with the data if it loses its last second in a crash.
import { Redis } from "ioredis";
import { connect, Mutex } from "leasehold";

const { ETCD_HOSTS = "http://127.0.0.1:2379", TTL_SECONDS = "15", SOURCE_URL = "" } = process.env;
const { REDIS_URL = "redis://127.0.0.1:6379" } = process.env;
/**
 * Lua's numbers are doubles, exact up to 2^53 only: fence and turn are text here, each of the length of the largest one, so that
 * the text sorts as the pair does. Only a sticky lock has several turns of one fence.
 */
const FENCE_DIGITS = 19;
const TURN_DIGITS = 16;
const WRITE = `
  local highest = redis.call("HGET", KEYS[1], "fence")
  if highest and highest > ARGV[1] then return 0 end
  redis.call("HSET", KEYS[1], "fence", ARGV[1], "value", ARGV[2])
  return 1`;

const cluster = connect({ hosts: ETCD_HOSTS.split(","), session: { ttlSeconds: Number(TTL_SECONDS) } });
const redis = new Redis(REDIS_URL);
try {
  await new Mutex(cluster, "rates/EUR").withLock(async (lock) => {
    const source = await fetch(SOURCE_URL);
    const value = await source.text();
    const fence = lock.fence.toString().padStart(FENCE_DIGITS, "0");
    const turn = lock.turn.toString().padStart(TURN_DIGITS, "0");
    const written = await redis.eval(WRITE, 1, "rate:EUR", `${fence}.${turn}`, value);
    if (written === 0) throw new Error(`EUR not written: fence ${lock.fence}, turn ${lock.turn} is stale`);
    console.log(`EUR is ${value}, written under fence ${lock.fence}, turn ${lock.turn}`);
  });
} finally {
  redis.disconnect();
  await cluster.close();
}
