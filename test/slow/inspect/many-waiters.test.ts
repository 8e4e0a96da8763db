// What inspect() and watchQueue() cost and miss when 1,000 wait for one name with large values.
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { forceRelease, inspect, type QueueState, watchQueue } from "../../../src/index.js";
import { grantLease, putKeys } from "../../support/clients/many-keys.js";
import { observe as watchRaw } from "../../support/clients/observer.js";
import { memoryInUse } from "../../support/fixtures/memory.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(20);
const NAME = "inspect/many";
const WAITERS = 1000;
const VALUE = JSON.stringify({
  owner: "o".repeat(200),
  since: new Date().toISOString(),
  id: "x".repeat(16_000),
});
const keyOf = (n: number) => `${NAME}/${(n + 256).toString(16)}`;

beforeAll(async () => {
  const leaseId = await grantLease(two.etcd.member, 600);
  const keys = Array.from({ length: WAITERS + 1 }, (_, n) => keyOf(n));
  await putKeys(two.etcd.member, keys, { leaseId, value: VALUE, atOnce: 40 });
}, 60_000);

const states: AsyncIterableIterator<QueueState>[] = [];
afterEach(async () => {
  for (const each of states.splice(0)) await each.return?.();
});
const watched = (limit: number) => {
  const watching = watchQueue(two.cluster, NAME, { limit });
  states.push(watching);
  return watching;
};

async function bytesSent(): Promise<number> {
  const metrics = [...(await two.etcd.member.metrics())];
  return metrics
    .filter(([series]) => series.startsWith("etcd_network_client_grpc_sent_bytes_total"))
    .reduce((total, [, bytes]) => total + bytes, 0);
}

describe("a queue of 1,000 waiters, each with a value of 16 KiB", { timeout: 60_000 }, () => {
  test("is inspected without the values of those that are not reported", async () => {
    const before = await bytesSent();

    const state = await inspect(two.cluster, NAME, { limit: 10 });

    expect(state.total).toEqual({ holders: 1, waiters: WAITERS });
    expect([state.holders.length, state.waiters.length]).toEqual([1, 10]);
    expect(state.waiters[9]).toMatchObject({ key: keyOf(10), owner: "o".repeat(200) });
    const keys = WAITERS * 150;
    expect((await bytesSent()) - before).toBeLessThan(keys + 12 * (VALUE.length + 1000));
  });

  test("is watched in less than 1 KiB for each of them", async () => {
    const before = memoryInUse();
    const watching = watched(10);

    const { value } = (await watching.next()) as IteratorYieldResult<QueueState>;

    expect(value.total).toEqual({ holders: 1, waiters: WAITERS });
    // The values alone are 16 times as much. What has been read is collected little by little.
    const grown = () => memoryInUse().heap - before.heap;
    await expect.poll(grown, { timeout: 20_000 }).toBeLessThan(WAITERS * 1024);
  });

  test("is watched from one state to the next, with none missed", async () => {
    using raw = await watchRaw(two.etcd.member.endpoint, `${NAME}/`);
    const watching = watched(1);
    const first = (await watching.next()) as IteratorYieldResult<QueueState>;
    let [holder] = first.value.holders;
    const seen: (string | undefined)[] = [];

    for (let n = 0; n < 100; n++) {
      await forceRelease(two.cluster, holder!);
      const { value } = (await watching.next()) as IteratorYieldResult<QueueState>;
      [holder] = value.holders;
      seen.push(`${value.revision} ${holder?.key} ${value.total.waiters}`);
    }

    await expect.poll(() => raw.seen.length, { timeout: 20_000 }).toBe(100);
    const ends = raw.seen.map(({ mod }, n) => `${mod} ${keyOf(n + 1)} ${WAITERS - 1 - n}`);
    expect(seen).toEqual(ends);
  });
});
