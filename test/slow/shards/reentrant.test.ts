// Code of users that runs within a member's own: subscribers of its channel and listeners of its signals, which look at what it owns
// after the process stood still for longer than its lease.
import { afterEach, expect, test } from "vitest";
import { type ShardMessage, shardChannel } from "../../../src/base/telemetry/index.js";
import { LockLostError, type Shard, shards } from "../../../src/index.js";
import { revoke } from "../../support/clients/lease-calls.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(20);
const PATIENCE = { timeout: 20_000 };
const TTL_SECONDS = 2;
const OPTIONS = {
  count: 1,
  settleMs: 0,
  ttlSeconds: TTL_SECONDS,
  onRetry: () => undefined,
};

const ends: (() => void)[] = [];
afterEach(() => {
  for (const end of ends.splice(0)) end();
});

/** What the channel tells of a group, in this process. */
function told(name: string, subscriber: (message: ShardMessage) => void): ShardMessage[] {
  const messages: ShardMessage[] = [];
  const take = (message: unknown): void => {
    if ((message as ShardMessage).name !== name) return;
    messages.push(message as ShardMessage);
    subscriber(message as ShardMessage);
  };
  shardChannel.subscribe(take);
  ends.push(() => void shardChannel.unsubscribe(take));
  return messages;
}

const standStill = (): unknown =>
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, TTL_SECONDS * 1000 + 200);

const untilAborted = (signal: AbortSignal) =>
  new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));

test("a member whose work has failed, and whose lease has passed before anybody was told, can leave", async () => {
  const name = "reentrant/failed";
  let stalls = 1;
  const messages = told(name, ({ state }) => {
    if (state !== "failed" || stalls-- <= 0) return;
    standStill();
    expect(feeds.owned).toEqual([]);
  });
  const feeds = await shards(two.cluster, name, OPTIONS, () => Promise.reject(new Error("broken here")));
  await expect.poll(() => messages.map(({ state }) => state), PATIENCE).toContain("lost");

  await feeds.close();
});

test("a shard whose lock is found to be lost while its move is told is not reported as stuck afterwards", async () => {
  const name = "reentrant/moving";
  const stuck: number[] = [];
  const messages = told(name, ({ state }) => {
    if (state !== "moving") return;
    standStill();
    expect(a.owned).toEqual([]);
  });
  const options = {
    ...OPTIONS,
    id: "a",
    drainMs: 1000,
    onStuck: (shard: number) => void stuck.push(shard),
  };
  const a = await shards(two.cluster, name, options, ({ signal }) => untilAborted(signal));
  await expect.poll(() => a.owned, PATIENCE).toEqual([0]);

  await a.close();
  await new Promise((resolve) => setTimeout(resolve, 1500));

  expect(messages.map(({ state }) => state)).toEqual(["owned", "moving", "lost"]);
  expect(stuck).toEqual([]);
});

test("a subscriber that is told of a loss may read the signal of the shard", async () => {
  const name = "reentrant/lost";
  const runs: Shard[] = [];
  const read: boolean[] = [];
  const messages = told(name, ({ state }) => {
    if (state === "lost") read.push(runs[0]?.signal.aborted === true);
  });
  const feeds = await shards(two.cluster, name, OPTIONS, (shard) => {
    runs.push(shard);
    return untilAborted(shard.signal);
  });
  await expect.poll(() => runs.length, PATIENCE).toBe(1);

  await revoke(two.etcd.member, feeds.members[0]?.leaseId ?? 0n);
  await expect.poll(() => runs.length, PATIENCE).toBe(2);

  expect(messages.map(({ state }) => state)).toEqual(["owned", "lost", "owned"]);
  expect(read).toEqual([true]);
  expect(runs[0]?.signal.reason).toBeInstanceOf(LockLostError);
  await feeds.close();
});
