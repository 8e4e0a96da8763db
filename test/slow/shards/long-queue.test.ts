// A queue that another client has filled: what a view of it costs the process.
import { expect, test } from "vitest";
import { connect, watchShards } from "../../../src/index.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(20);
const TOGETHER = 100;
/** So many keys, and four times as many: to compare each with all others takes sixteen times as long. */
const SIZES = [5_000, 20_000] as const;
/** What one look may take in addition, on a machine that others use, too. */
const NOISE_MS = 200;

const base64 = (text: string): string => Buffer.from(text).toString("base64");

/** Puts that many keys of no member into the queue of a shard. */
async function fill(name: string, count: number): Promise<void> {
  for (let n = 0; n < count; n += TOGETHER) {
    const keys = Array.from({ length: TOGETHER }, (_, i) => base64(`${name}/shard/0/${n + i}`));
    const success = keys.map((key) => ({ requestPut: { key, value: base64("x") } }));
    await two.etcd.member.gateway("/v3/kv/txn", { success }, { timeoutMs: 10_000 });
  }
}

/** For how long a process stood still at most: while it got to know the keys, and until they were gone. */
async function stalls(name: string, count: number): Promise<number> {
  await fill(name, count);
  await using cluster = connect({ hosts: two.etcd.endpoints });
  let [last, longestMs] = [performance.now(), 0];
  const look = (): void => {
    const now = performance.now();
    [longestMs, last] = [Math.max(longestMs, now - last), now];
  };
  const looking = setInterval(look, 10);
  await using map = await watchShards(cluster, name);
  expect(map.owner(0)).toBeDefined();
  const range = { key: base64(`${name}/shard/0/`), range_end: base64(`${name}/shard/00`) };
  await two.etcd.member.gateway("/v3/kv/deleterange", range, { timeoutMs: 10_000 });
  await expect.poll(() => map.owner(0), { timeout: 20_000 }).toBeUndefined();
  look();
  clearInterval(looking);
  return longestMs;
}

test("keys that come and go in the queue of one shard stop a process that looks at the group for a time linear in their number", async () => {
  const [few, many] = [await stalls("long/few", SIZES[0]), await stalls("long/many", SIZES[1])];
  console.log(
    `longest stall: ${few.toFixed()} ms with ${SIZES[0]} keys, ${many.toFixed()} ms with ${SIZES[1]}`,
  );

  expect(many).toBeLessThan(8 * few + NOISE_MS);
}, 90_000);
