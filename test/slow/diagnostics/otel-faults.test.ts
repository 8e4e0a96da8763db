// What leasehold/otel says of faults that are made to happen on a real etcd: each loss, a long hold, members that are left.
import { SpanStatusCode } from "@opentelemetry/api";
import { once } from "node:events";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Cluster, connect, type Lock, Mutex } from "../../../src/index.js";
import type { Instrumentation } from "../../../src/otel/instrument.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { MemorySdk } from "../../support/fixtures/otel.js";
import { startTcpProxy, type TcpProxy } from "../../support/proxies/tcp-proxy.js";
import { revoke } from "../../support/clients/lease-calls.js";

const TTL_SECONDS = 3;
const LIMIT_MS = 50;

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

const lost = () => sdk.by("leasehold.why", "leasehold.holds.lost");
const left = () => sdk.by("leasehold.member.state", "leasehold.failovers");
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

const NONE = { "max hold": 0, expired: 0, revoked: 0, deleted: 0, closed: 0 };
const LOSSES: Readonly<Record<keyof typeof NONE, (held: Held) => Promise<unknown>>> = {
  "max hold": ({ lock }) => once(lock.signal, "abort"),
  expired: ({ proxy }) => proxy.mode("blackhole"),
  revoked: async ({ cluster }) => revoke(etcd.member, (await cluster.session()).leaseId),
  deleted: async ({ lock }) => {
    await etcd.etcdctl(["del", lock.key]);
    await lock.release().catch(() => undefined);
  },
  closed: ({ cluster }) => cluster.close({ drainMs: 0 }),
};

describe.each(Object.entries(LOSSES))("a hold that is lost: %s", (why, lose) => {
  test("is counted under its reason only, and its span has the reason", { timeout: 40_000 }, async () => {
    await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
    const cluster = connect({ hosts: proxy.endpoint, session: { ttlSeconds: TTL_SECONDS } });
    const limits = why === "max hold" ? { maxHoldMs: LIMIT_MS } : {};
    const lock = await new Mutex(cluster, `faults/${why}`, limits).lock();
    expect(await lost()).toEqual(NONE);

    await lose({ cluster, proxy, lock });
    if (!lock.signal.aborted) await once(lock.signal, "abort");

    await expect.poll(lost).toEqual({ ...NONE, [why]: 1 });
    expect(await sdk.by("leasehold.why", "leasehold.hold.duration")).toEqual({ [why]: 1 });
    expect(await active()).toBe(0);
    const { attributes, status, events } = onlyHold();
    expect(attributes).toMatchObject({ "leasehold.why": why, "leasehold.fence": String(lock.fence) });
    // A program that closes its session gives the hold up itself.
    const failed = why !== "closed";
    expect(status.code).toBe(failed ? SpanStatusCode.ERROR : SpanStatusCode.UNSET);
    expect(events.map(({ attributes: of }) => of?.["exception.type"])).toEqual(failed ? ["LOCK_LOST"] : []);
    await proxy.mode("pass");
    await cluster.close({ drainMs: 0 });
  });
});

test("a hold that outlasts its warnHoldMs has an event in its span, and is no loss", async () => {
  await using cluster = connect({ hosts: etcd.endpoints });
  const lock = await new Mutex(cluster, "faults/long", { warnHoldMs: LIMIT_MS }).lock();
  expect(await active()).toBe(1);
  // A later timer of the same process.
  const later = await new Mutex(cluster, "faults/later", { maxHoldMs: 2 * LIMIT_MS }).lock();
  await once(later.signal, "abort");
  await lock.release();

  const [span] = sdk
    .spans("leasehold.hold")
    .filter(({ attributes: of }) => of["leasehold.why"] === "released");
  expect(span?.attributes["leasehold.held_ms"]).toBeGreaterThan(LIMIT_MS);
  expect(span?.events).toMatchObject([
    { name: "leasehold.hold.long", attributes: { "leasehold.warn_hold_ms": LIMIT_MS } },
  ]);
  expect(span?.status.code).toBe(SpanStatusCode.UNSET);
  expect(await lost()).toEqual({ ...NONE, "max hold": 1 });
});

describe("a name and an owner of the worst kind", () => {
  const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u;
  const HOSTILE = "\u001b[31mred\u0000\r\nERROR fake\u202e\u2028";

  test("are escaped and bounded in the spans of a lock that is lost", async () => {
    const name = HOSTILE.repeat(30);
    await using cluster = connect({
      hosts: etcd.endpoints,
      session: { owner: HOSTILE.repeat(6) },
    });
    const lock = await new Mutex(cluster, name).lock();
    await etcd.member.gateway("/v3/kv/deleterange", { key: Buffer.from(lock.key).toString("base64") });
    await lock.release().catch(() => undefined);

    const { attributes, events } = onlyHold();
    const texts = [attributes["leasehold.name"], attributes["leasehold.owner"]].map(String);
    expect(texts.map((text) => text.length)).toEqual([200, 100]);
    expect(texts.every((text) => text.startsWith("\\u001b[31mred\\u0000\\u000d\\u000aERROR"))).toBe(true);
    const message = String(events[0]?.attributes?.["exception.message"]);
    expect(message).toContain("\\u001b[31mred");
    expect(message).toHaveLength(500);
    const all = sdk
      .spans()
      .flatMap((span) => [span.attributes, ...span.events.map((event) => event.attributes)]);
    const values = all.flatMap((of) => Object.entries(of ?? {}));
    // A stack trace has line breaks of its own.
    const unsafe = values.filter(
      ([key, value]) => UNSAFE.test(String(value)) && key !== "exception.stacktrace",
    );
    expect(unsafe).toEqual([]);
    expect(await sdk.scrape()).not.toContain("fake");
  });
});

describe("a member that is left", { timeout: 60_000 }, () => {
  test("because it was killed is counted as down", async () => {
    await using etcds = await startEtcd({ members: 3 });
    await using cluster = connect({ hosts: etcds.endpoints, session: { ttlSeconds: 10 } });
    const mutex = new Mutex(cluster, "faults/killed");
    await mutex.withLock(() => undefined);
    expect(await left()).toEqual({ down: 0, refused: 0 });
    const used = cluster.health().members.find(({ inUse }) => inUse)?.host;

    await etcds.members.find(({ endpoint }) => endpoint === used)!.kill();
    await mutex.withLock(() => undefined);

    const { down, refused } = await left();
    expect(refused).toBe(0);
    // The first one, and perhaps another one before the rest has elected a leader.
    expect(down).toBeGreaterThan(0);
    expect(down).toBeLessThan(etcds.members.length + 1);
    expect(await sdk.by("leasehold.outcome", "leasehold.acquire.duration")).toEqual({ granted: 2 });
  });

  test("because it belongs to another cluster is counted as refused", async () => {
    await using own = await startEtcd();
    await using other = await startEtcd();
    await using cluster = connect({
      hosts: [...own.endpoints, ...other.endpoints],
      session: { ttlSeconds: 20 },
    });
    const mutex = new Mutex(cluster, "faults/refused");
    await mutex.withLock(() => undefined);
    const used = cluster.health().members.find(({ inUse }) => inUse)?.host;
    const { member } = used === own.member.endpoint ? own : other;

    await member.kill();
    await expect(mutex.tryLock({ timeoutMs: 2000 })).rejects.toThrow();

    await expect.poll(left).toMatchObject({ down: expect.any(Number) as number, refused: 1 });
    expect((await left())["down"]).toBeGreaterThan(0);
    await member.restart();
  });
});
