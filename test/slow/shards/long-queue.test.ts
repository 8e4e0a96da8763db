// A queue that another client has filled: what a view of it costs the process.
import { expect, test } from "vitest";
import { connect, watchShards } from "../../../src/index.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(20);
const KEYS = 20_000;
const TOGETHER = 100;

const base64 = (text: string): string => Buffer.from(text).toString("base64");

/** Puts that many keys of no member into the queue of a shard. */
async function fill(name: string): Promise<void> {
  for (let n = 0; n < KEYS; n += TOGETHER) {
    const keys = Array.from({ length: TOGETHER }, (_, i) => base64(`${name}/shard/0/${n + i}`));
    const success = keys.map((key) => ({ requestPut: { key, value: base64("x") } }));
    await two.etcd.member.gateway("/v3/kv/txn", { success }, { timeoutMs: 10_000 });
  }
}

test("20,000 keys that come and go in the queue of one shard stop no process that looks at the group", async () => {
  const name = "long/queue";
  await fill(name);
  await using cluster = connect({ hosts: two.etcd.endpoints });
  let [last, longestMs] = [performance.now(), 0];
  const look = (): void => {
    const now = performance.now();
    [longestMs, last] = [Math.max(longestMs, now - last), now];
  };
  const looking = setInterval(look, 10);
  await using map = await watchShards(cluster, name);
  look();
  expect(map.owner(0)).toBeDefined();
  const shownMs = longestMs;
  const range = { key: base64(`${name}/shard/0/`), range_end: base64(`${name}/shard/00`) };
  await two.etcd.member.gateway("/v3/kv/deleterange", range, { timeoutMs: 10_000 });
  await expect.poll(() => map.owner(0)).toBeUndefined();
  look();
  clearInterval(looking);

  // Each was 1.5 to 4 s when each key was compared with all others.
  expect(shownMs).toBeLessThan(1000);
  expect(longestMs).toBeLessThan(1000);
}, 60_000);
