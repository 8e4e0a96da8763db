// What leasehold/otel says of each loss that is made to happen on a real etcd.
import { SpanStatusCode } from "@opentelemetry/api";
import { once } from "node:events";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Cluster, connect, lead, type Leadership, type Lock, Mutex } from "../../../src/index.js";
import type { Instrumentation } from "../../../src/observe/otel/instrument.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { MemorySdk } from "../../support/fixtures/otel.js";
import { startTcpProxy, type TcpProxy } from "../../support/proxies/tcp-proxy.js";
import { revoke } from "../../support/clients/lease-calls.js";

const TTL_SECONDS = 3;
const LIMIT_MS = 500;

let etcd: EtcdCluster;
let sdk: MemorySdk;
let instrumentation: Instrumentation;

beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());
beforeEach(() => {
  sdk = new MemorySdk();
  instrumentation = sdk.instrument({ names: true });
});
afterEach(async () => {
  instrumentation.disable();
  await sdk.shutdown();
});

const lost = () => sdk.by("leasehold.reason", "leasehold.holds.lost");
const active = async () =>
  (await sdk.points("leasehold.holds.active")).reduce((sum, { value }) => sum + value, 0);
const onlyHold = () => {
  const spans = sdk.spans("leasehold.hold");
  expect(spans).toHaveLength(1);
  return spans[0]!;
};

interface Held {
  readonly cluster: Cluster;
  readonly proxy: TcpProxy;
  readonly lock: Lock;
}

const NONE = { max_hold: 0, unhealthy: 0, expired: 0, revoked: 0, deleted: 0, closed: 0 };
const LOSSES: Readonly<Record<keyof typeof NONE, (held: Held) => Promise<unknown>>> = {
  // By itself.
  max_hold: () => Promise.resolve(),
  unhealthy: () => Promise.resolve(),
  expired: ({ proxy }) => proxy.mode("blackhole"),
  revoked: async ({ cluster }) => revoke(etcd.member, (await cluster.session()).leaseId),
  deleted: async ({ lock }) => {
    await etcd.etcdctl(["del", lock.key]);
    await lock.release().catch(() => undefined);
  },
  closed: ({ cluster }) => cluster.close({ drainMs: 0 }),
};

/** The term of a leader that is not healthy, from its beginning on. */
const illLeader = (cluster: Cluster, name: string) =>
  new Promise<Lock>((resolve, reject) => {
    const stop = new AbortController();
    const work = async (leadership: Leadership) => {
      resolve(leadership);
      await once(leadership.signal, "abort");
      stop.abort();
    };
    lead(cluster, name, work, { signal: stop.signal, healthy: () => false, everyMs: 300 }).catch(reject);
  });

describe.each(Object.entries(LOSSES))("a hold that is lost: %s", (reason, lose) => {
  test("is counted under its reason only, and its span has the reason", { timeout: 40_000 }, async () => {
    await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
    const cluster = connect({ hosts: proxy.endpoint, session: { ttlSeconds: TTL_SECONDS } });
    const limits = reason === "max_hold" ? { maxHoldMs: LIMIT_MS } : {};
    const name = `faults/${reason}`;
    const lock = await (reason === "unhealthy"
      ? illLeader(cluster, name)
      : new Mutex(cluster, name, limits).lock());
    expect(await lost()).toEqual(NONE);

    await lose({ cluster, proxy, lock });
    if (!lock.signal.aborted) await once(lock.signal, "abort");

    await expect.poll(lost).toEqual({ ...NONE, [reason]: 1 });
    expect(await sdk.by("leasehold.reason", "leasehold.hold.duration")).toEqual({ [reason]: 1 });
    expect(await active()).toBe(0);
    const { attributes, status, events } = onlyHold();
    expect(attributes).toMatchObject({ "leasehold.reason": reason, "leasehold.fence": String(lock.fence) });
    // A program that closes its session gives the hold up itself.
    const failed = reason !== "closed";
    expect(status.code).toBe(failed ? SpanStatusCode.ERROR : SpanStatusCode.UNSET);
    expect(events.map(({ attributes: of }) => of?.["exception.type"])).toEqual(failed ? ["LOCK_LOST"] : []);
    await proxy.mode("pass");
    await cluster.close({ drainMs: 0 });
  });
});
