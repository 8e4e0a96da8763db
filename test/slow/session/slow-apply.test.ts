import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect, Mutex, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { encode, endOf } from "../../support/clients/gateway-text.js";

/** More than the pause between two renewals with the shorter TTL, and less than that with the longer one. */
const SLOW_MS = 2700;
/** Held long enough to be watched. */
const HELD_MS = 1500;
/** Less than what is left until the next renewal with the longer TTL. */
const TOLD_MS = 1500;
const KEYS = 2000;

let etcd: EtcdCluster;

beforeAll(async () => void (etcd = await startEtcd({ args: ["--max-txn-ops=20000"] })));
afterAll(() => etcd.stop());

const commit = (success: object[]) =>
  etcd.member.gateway("/v3/kv/txn", { success }, { timeoutMs: 5 * SLOW_MS }) as Promise<unknown>;
const put = (key: string) => ({ requestPut: { key: encode(key), value: "" } });
const range = {
  requestRange: { key: encode("filler/"), range_end: encode(endOf("filler/")), count_only: true },
};

/** One transaction that counts many keys, so often that etcd applies nothing else in the meantime. */
const count = (times: number) => commit([put("counted"), ...Array.from({ length: times }, () => range)]);

/** The number of counts that take this long. */
async function countsFor(ms: number): Promise<number> {
  for (let n = 0; n < 5; n++) await commit(Array.from({ length: KEYS }, (_, i) => put(`filler/${n}/${i}`)));
  const start = performance.now();
  await count(200);
  return Math.min(15_000, Math.ceil((200 * ms) / (performance.now() - start)));
}

/** The entries that etcd has committed but not applied yet. */
async function behind(): Promise<number> {
  const metrics = await etcd.member.metrics({ timeoutMs: 2 * SLOW_MS });
  const of = (what: string) => metrics.get(`etcd_server_proposals_${what}_total`) ?? 0;
  return of("committed") - of("applied");
}

/** While etcd is behind, it may answer nothing in time, but it still executes the requests. */
const unanswered = (request: Promise<unknown>) => void request.catch(() => undefined);

// From 3.7 on, etcd answers renewals without waiting for committed entries (its feature FastLeaseKeepAlive): a lease
// whose revocation is committed is still renewed. Older versions answer no renewals in the meantime.
test.each([
  ["the session", 6],
  ["another client only", 30],
])(
  "a hold ends with its key, though %s renewed its lease after the revocation was committed",
  async (_, ttlSeconds) => {
    await using holders = connect({ hosts: etcd.endpoints });
    await using waiters = connect({ hosts: etcd.endpoints });
    const session = await Session.open(holders, { ttlSeconds });
    const counts = await countsFor(SLOW_MS);
    const lock = await new Mutex(session, "slow").lock();
    const waiter = await Session.open(waiters, { ttlSeconds: 60 });
    const next = new Mutex(waiter, "slow").lock().then(() => performance.now());
    const ended = once(lock.signal, "abort").then(() => performance.now());
    const ID = session.leaseId.toString();
    await delay(HELD_MS);

    unanswered(count(counts));
    await expect.poll(behind, { interval: 10 }).toBeGreaterThan(0);
    unanswered(etcd.member.gateway("/v3/lease/revoke", { ID }));
    await expect.poll(behind, { interval: 10 }).toBeGreaterThan(1);
    if (Number(etcd.version.split(".")[1]) >= 7) {
      const { result } = (await etcd.member.gateway("/v3/lease/keepalive", { ID })) as { result: object };
      expect(result).toMatchObject({ TTL: `${ttlSeconds}` });
    }

    expect((await ended) - (await next)).toBeLessThan(TOLD_MS);
    await expect.poll(() => session.state).toBe("lost");
  },
  60_000,
);
