import { expect, it } from "vitest";
import { connect, type Shards, shards } from "../../../src/index.js";
import { metered } from "../../support/fixtures/metered.js";
import { meter } from "../../support/fixtures/spent.js";

const at = metered();
const COUNT = 256;
const PATIENCE = { timeout: 30_000 };

/** With such a long lease that no renewal falls into a test. */
async function member(id: string): Promise<Shards> {
  const cluster = connect({ hosts: at.etcd.endpoints });
  const work = ({ signal }: { readonly signal: AbortSignal }) =>
    new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
  return shards(cluster, "budget/shards", { count: COUNT, id, settleMs: 0, ttlSeconds: 3600 }, work);
}

const owned = async (...each: readonly (readonly [Shards, number])[]) => {
  await expect
    .poll(() => each.map(([feeds]) => feeds.owned.length), PATIENCE)
    .toEqual(each.map(([, n]) => n));
};

it("takes 256 shards in shared requests, has one watch for all of them, and sends nothing while nothing moves", async () => {
  const part = await meter(at.etcd.member);
  const a = await member("a");
  await owned([a, COUNT]);
  const first = await part.read();
  // The key of the member, the joins, and the read of the group.
  expect(first["Txn"]).toBeLessThanOrEqual(12);
  expect(first["Range"]).toBeLessThanOrEqual(4);
  expect(first["Watch"]).toBe(1);

  const b = await member("b");
  await owned([a, COUNT / 2], [b, COUNT / 2]);
  // Longer than a hold takes to get a watch of its own: these share the one of the group.
  await new Promise((resolve) => setTimeout(resolve, 1500));
  const idle = await meter(at.etcd.member);
  await new Promise((resolve) => setTimeout(resolve, 1000));
  expect(await idle.read()).toEqual({});
  const moved = await part.read();
  expect(moved["Watch"]).toBe(2);
  await Promise.all([a.close(), b.close()]);
});
