// A member whose process computes for long at a time. Who owns a shard is read from etcd: the oldest key of its queue.
import { setImmediate as turn } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { connect, type Shard, shards } from "../../../src/index.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const COUNT = 4;
/** More than the pauses between moves. */
const SLICE_MS = 150;

const two = twoSessions(20);

test("a member that is always busy gives away its shards", async () => {
  const other = connect({ hosts: two.etcd.endpoints });
  onTestFinished(() => other.close({ drainMs: 0 }));
  const work = ({ signal }: Shard) =>
    new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
  const options = { count: COUNT, settleMs: 0, ttlSeconds: 20 };
  const busy = await shards(two.cluster, "busy", { ...options, id: "busy" }, work);
  await expect.poll(() => busy.owned).toHaveLength(COUNT);
  const ownersNow = async () => {
    const ids = Array.from({ length: COUNT }, (_, n) => n);
    const queues = await Promise.all(ids.map((id) => two.places(`busy/shard/${id}`)));
    return new Set(queues.map(([oldest]) => oldest?.key.split("/").at(-1)));
  };
  expect((await ownersNow()).size).toBe(1);

  let isOver = false;
  const computing = (async () => {
    while (!isOver) {
      const end = performance.now() + SLICE_MS;
      while (performance.now() < end);
      for (let n = 0; n < 5; n++) await turn();
    }
  })();
  const free = await shards(other, "busy", { ...options, id: "free" }, work);
  await expect
    .poll(ownersNow, { timeout: 20_000 })
    .toHaveProperty("size", 2)
    .finally(() => (isOver = true));
  await computing;
  await Promise.all([busy.close(), free.close()]);
});
