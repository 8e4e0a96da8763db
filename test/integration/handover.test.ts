import { Etcd3 } from "etcd3";
import { expect, it } from "vitest";
import { connect, Mutex, Session } from "../../src/index.js";
import { startEtcd } from "../support/etcd.js";

const ROUNDS = 6;
const PER_ROUND = 200;
const AT_MOST = 6;

const median = (values: readonly number[]) =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;

/** Two contenders that take turns as fast as they can: the milliseconds from each grant to the next. */
async function handOvers(contenders: readonly Mutex[], count: number): Promise<number[]> {
  const grants: number[] = [];
  await Promise.all(
    contenders.map(async (mutex) => {
      while (grants.length <= count) {
        const lock = await mutex.lock();
        grants.push(performance.now());
        await lock.release();
      }
    }),
  );
  return grants.slice(1, count + 1).map((at, n) => at - (grants[n] ?? at));
}

/** Milliseconds of bare puts, one after the other. */
async function puts(client: Etcd3, count: number): Promise<number[]> {
  const costs: number[] = [];
  for (let n = 0; n < count; n++) {
    const start = performance.now();
    await client.put("handover/put").value("x");
    costs.push(performance.now() - start);
  }
  return costs;
}

it(`hands a lock over between two contenders in less than ${AT_MOST} times a bare put`, async () => {
  await using etcd = await startEtcd();
  await using cluster = connect({ hosts: etcd.endpoints });
  const client = new Etcd3({ hosts: etcd.endpoints[0] ?? "" });
  const open = async () => new Mutex(await Session.open(cluster, { ttlSeconds: 60 }), "handover/job");
  const contenders = [await open(), await open()];

  await handOvers(contenders, PER_ROUND); // Before the count, so that code and connections are warm.
  const rounds: { put: number; handOver: number }[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    // In turn, so that whatever else this machine does falls on both.
    const put = median(await puts(client, PER_ROUND));
    rounds.push({ put, handOver: median(await handOvers(contenders, PER_ROUND)) });
  }
  client.close();

  // What else this machine does makes a round dearer; a stall would be in every one.
  const best = Math.min(...rounds.map(({ put, handOver }) => handOver / put));
  const costs = rounds.map(({ put, handOver }) => `${handOver.toFixed(2)} / ${put.toFixed(2)} ms`).join(", ");
  console.log(`hand-over / put: ${costs}; at best ${best.toFixed(2)} x`);
  expect(best).toBeLessThan(AT_MOST);
}, 60_000);
