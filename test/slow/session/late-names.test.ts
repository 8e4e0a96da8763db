// The cost of a session after an outage that left many requests unanswered.
import { expect, test } from "vitest";
import { connect, Mutex, Session } from "../../../src/index.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { meter } from "../../support/fixtures/spent.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

const NAMES = 300;

async function watchers(member: Awaited<ReturnType<typeof startEtcd>>["member"]): Promise<number> {
  const metrics = await member.metrics();
  return metrics.get("etcd_debugging_mvcc_watcher_total") ?? 0;
}

test("an outage with 300 names in flight leaves no watch and no reads behind, only a list of the keys now and then", async () => {
  await using etcd = await startEtcd();
  await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
  await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 500 });
  const session = await Session.open(cluster, { ttlSeconds: 60 });
  await new Mutex(session, "before").withLock(() => undefined);
  const before = await watchers(etcd.member);

  await proxy.mode("blackhole");
  const abort = new AbortController();
  const names = Array.from({ length: NAMES }, (_, n) => new Mutex(session, `users/${n}`));
  const locking = names.map((mutex) => mutex.lock({ signal: abort.signal }).catch(() => undefined));
  // Each attempt that times out is followed by one on another connection.
  const { accepted } = proxy;
  await expect.poll(() => proxy.accepted, { timeout: 10_000 }).toBeGreaterThan(accepted + 2);
  abort.abort();
  await Promise.all(locking);
  await proxy.mode("pass");
  // Each has left its queue when its name can be locked again.
  await Promise.all(names.map((mutex) => mutex.withLock(() => undefined)));

  const counted = await meter(etcd.member);
  const spent = await counted.lap({ LeaseTimeToLive: 3 }, { timeoutMs: 20_000 });

  expect(spent["LeaseTimeToLive"]).toBe(3);
  expect(spent["Range"]).toBe(undefined);
  expect(await watchers(etcd.member)).toBeLessThanOrEqual(before);
}, 60_000);
