import { circuitBreaker, ConsecutiveBreaker, ConstantBackoff, handleWhen, retry, wrap } from "cockatiel";
import { afterAll, beforeAll, expect, test } from "vitest";
import { isRetryable, lockPolicy, permitPolicy } from "../../../examples/cockatiel.js";
import { type Cluster, connect, Mutex, Semaphore } from "../../../dist/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";

let etcd: EtcdCluster;
let cluster: Cluster;
beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
});
afterAll(async () => {
  await cluster.close();
  await etcd.stop();
});

const retries = () => retry(handleWhen(isRetryable), { maxAttempts: 3, backoff: new ConstantBackoff(1) });
const breaker = () =>
  circuitBreaker(handleWhen(isRetryable), { halfOpenAfter: 60_000, breaker: new ConsecutiveBreaker(2) });

test("work under a lost lock is repeated under a new one, with a higher fence", async () => {
  const guarded = wrap(retries(), breaker(), lockPolicy(new Mutex(cluster, "cockatiel/lost")));
  const fences: bigint[] = [];
  const done = await guarded.execute(async ({ lock, signal }) => {
    fences.push(lock.fence);
    if (fences.length > 1) return "done";
    await etcd.etcdctl(["del", lock.key]);
    await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    return "too late";
  });
  expect(done).toBe("done");
  expect(fences[1]).toBeGreaterThan(fences[0]!);
  expect(await placesOf(etcd.member, "cockatiel/lost")).toEqual([]);
});

test("the breaker opens when others keep the lock, and an error of the work is not repeated", async () => {
  await using held = await new Mutex(cluster, "cockatiel/busy").lock();
  const wait = lockPolicy(new Mutex(cluster, held.name), { timeoutMs: 50 });
  const guarded = wrap(breaker(), wait);
  for (let n = 0; n < 2; n++)
    await expect(guarded.execute(() => 1)).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
  await expect(guarded.execute(() => 1)).rejects.toMatchObject({ isBrokenCircuitError: true });

  let attempts = 0;
  const failing = wrap(retries(), lockPolicy(new Mutex(cluster, "cockatiel/free")));
  const fails = failing.execute(() => {
    attempts++;
    throw new Error("wrong");
  });
  await expect(fails).rejects.toThrow("wrong");
  expect(attempts).toBe(1);
});

test("the caller's abort ends a wait for a permit", async () => {
  const semaphore = new Semaphore(cluster, "cockatiel/permits", 1);
  await using permit = await semaphore.acquire();
  const stop = new AbortController();
  const waiting = permitPolicy(semaphore).execute(({ permit: mine }) => mine.held, stop.signal);
  await expect.poll(() => placesOf(etcd.member, permit.name)).toHaveLength(2);
  stop.abort();
  await expect(waiting).rejects.toBe(stop.signal.reason);
});
