// leasehold/otel on a library that publishes, and a real etcd: every count is exact.
import { context, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  type Cluster,
  connect,
  Election,
  lockAll,
  Mutex,
  RwLock,
  Semaphore,
  Session,
} from "../../../src/index.js";
import type { Instrumentation } from "../../../src/observe/otel/instrument.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { MemorySdk } from "../../support/fixtures/otel.js";
import { linkTo } from "../../support/proxies/member-links.js";

const TTL_SECONDS = 3;
const LABEL = "nightly";

let etcd: EtcdCluster;
let sdk: MemorySdk;
let instrumentation: Instrumentation;
let cluster: Cluster;
let other: Cluster;

beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());
beforeEach(() => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  sdk = new MemorySdk();
  instrumentation = sdk.instrument();
  cluster = connect({ hosts: etcd.endpoints, session: { ttlSeconds: TTL_SECONDS, owner: "one" } });
  other = connect({ hosts: etcd.endpoints, session: { ttlSeconds: TTL_SECONDS, owner: "two" } });
});
afterEach(async () => {
  await Promise.all([cluster.close({ drainMs: 0 }), other.close({ drainMs: 0 })]);
  instrumentation.disable();
  context.disable();
  await sdk.shutdown();
});

const by = (attribute: string, name: string) => sdk.by(attribute, name);
const outcomes = () => by("leasehold.outcome", "leasehold.acquire.duration");
const ends = () => by("leasehold.reason", "leasehold.hold.duration");
/** The sum over all series. */
const total = async (name: string) =>
  (await sdk.points(name)).reduce((sum, { value, count }) => sum + (count ?? value), 0);

describe("locks that are granted and released", () => {
  test("have two spans each, children of the caller's, and are counted once", async () => {
    const mutex = new Mutex(cluster, "otel/counted", { label: LABEL });
    const parent = sdk.tracerProvider.getTracer("caller").startSpan("caller");
    const fences: string[] = [];

    await context.with(trace.setSpan(context.active(), parent), async () => {
      for (let n = 0; n < 20; n++) await mutex.withLock(({ fence }) => void fences.push(String(fence)));
    });

    const { spanId } = parent.spanContext();
    for (const name of ["leasehold.acquire", "leasehold.hold"]) {
      const spans = sdk.spans(name);
      expect(spans.map((span) => span.parentSpanContext?.spanId)).toEqual(Array(20).fill(spanId));
      expect(spans.map(({ attributes }) => attributes["leasehold.fence"])).toEqual(fences);
      expect(spans.map(({ attributes }) => attributes["leasehold.owner"])).toEqual(Array(20).fill("one"));
      expect(JSON.stringify(spans.map(({ attributes }) => attributes))).not.toContain("otel/counted");
    }
    expect(await outcomes()).toEqual({ granted: 20 });
    expect(await ends()).toEqual({ released: 20 });
    expect(await total("leasehold.holds.active")).toBe(0);
    expect(await total("leasehold.waiters")).toBe(0);
    expect(await total("leasehold.holds.lost")).toBe(0);
    expect(await by("leasehold.label", "leasehold.acquire.duration")).toEqual({ [LABEL]: 20 });
  });

  test("have the spans of their own callers, whoever came first, and a listener of theirs none", async () => {
    const mutex = new Mutex(cluster, "otel/callers", { label: LABEL });
    const session = await Session.open(cluster, { ttlSeconds: TTL_SECONDS });
    const tracer = sdk.tracerProvider.getTracer("caller");
    const inListener: unknown[] = [];
    const call = async (owner: Session | undefined) => {
      const span = tracer.startSpan("caller");
      await context.with(trace.setSpan(context.active(), span), async () => {
        if (owner === undefined) return mutex.withLock(() => undefined);
        const { signal } = await new Mutex(owner, "otel/lost", { label: LABEL }).lock();
        signal.addEventListener("abort", () => inListener.push(trace.getActiveSpan()));
        return undefined;
      });
      return span.spanContext().spanId;
    };

    const first = await call(session);
    const others = await Promise.all([call(undefined), call(undefined), call(undefined)]);
    const closer = trace.setSpan(context.active(), tracer.startSpan("closer"));
    await context.with(closer, () => session.close({ drainMs: 0 }));

    const callers = [first, ...others];
    for (const name of ["leasehold.acquire", "leasehold.hold"])
      expect(
        sdk
          .spans(name)
          .map((span) => span.parentSpanContext?.spanId)
          .sort(),
      ).toEqual(callers.sort());
    expect(inListener).toEqual([undefined]);
  });

  test("of each kind are counted by it", async () => {
    const rwlock = new RwLock(cluster, "otel/rw", { label: LABEL });
    const releases = [
      await new Mutex(cluster, "otel/m", { label: LABEL }).lock(),
      await new Semaphore(cluster, "otel/s", 2, { label: LABEL }).acquire(),
      await rwlock.readLock(),
      await lockAll(cluster, ["otel/a", "otel/b"]),
      await new Election(cluster, "otel/e", { label: LABEL }).campaign("me"),
    ];

    const held = { mutex: 1, permit: 1, reader: 1, all: 1, leadership: 1 };
    expect(await by("leasehold.kind", "leasehold.holds.active")).toEqual(held);
    for (const hold of releases) await hold.release();
    await (await rwlock.writeLock()).release();

    expect(await by("leasehold.kind", "leasehold.hold.duration")).toEqual({ ...held, writer: 1 });
    expect(await total("leasehold.holds.active")).toBe(0);
    expect(sdk.spans("leasehold.hold")).toHaveLength(6);
  });
});

describe("calls that are not granted", () => {
  test("are counted by outcome, and as waiters while they wait", async () => {
    const name = "otel/taken";
    await using _ = await new Mutex(other, name).lock();
    const mutex = new Mutex(cluster, name, { label: LABEL });
    const stop = new AbortController();

    const busy = await mutex.tryLock();
    const timedOut = mutex.lock({ timeoutMs: 500 }).catch(() => "timeout");
    const aborted = mutex.lock({ signal: stop.signal }).catch(() => "aborted");
    const next = mutex.lock();
    expect(await timedOut).toBe("timeout");
    await expect.poll(() => placesOf(etcd.member, name)).toHaveLength(3);
    expect(await by("leasehold.label", "leasehold.waiters")).toEqual({ other: 0, [LABEL]: 2 });
    stop.abort();
    expect(await aborted).toBe("aborted");
    await _.release();
    await (await next).release();

    expect(busy).toBeUndefined();
    expect(await outcomes()).toMatchObject({ busy: 1, timeout: 1, aborted: 1 });
    expect(await total("leasehold.waiters")).toBe(0);
    const codes = sdk.spans("leasehold.acquire").map(({ status }) => status.code);
    expect(new Set(codes)).toEqual(new Set([SpanStatusCode.UNSET]));
    const ahead = sdk.spans("leasehold.acquire").map(({ attributes }) => attributes["leasehold.ahead"]);
    expect(ahead.some((n) => Number(n) > 0)).toBe(true);
  });
});

describe("a loss", () => {
  test("by a deleted key is counted once, and fails the span of the hold", async () => {
    const lock = await new Mutex(cluster, "otel/deleted", { label: LABEL }).lock();
    await etcd.etcdctl(["del", lock.key]);
    await lock.release().catch(() => undefined);

    await expect.poll(ends).toEqual({ deleted: 1 });
    expect(await by("leasehold.reason", "leasehold.holds.lost")).toMatchObject({ deleted: 1, expired: 0 });
    expect(sdk.spans("leasehold.hold")).toMatchObject([
      { status: { code: SpanStatusCode.ERROR }, attributes: { "leasehold.fence": String(lock.fence) } },
    ]);
  });

  test("of the session is counted for each hold, and ends its gauge", async () => {
    const { leaseId } = await cluster.session();
    await Promise.all([1, 2, 3].map((n) => new Mutex(cluster, `otel/lost-${n}`, { label: LABEL }).lock()));
    await etcd.etcdctl(["lease", "revoke", leaseId.toString(16)]);

    await expect.poll(ends, { timeout: 20_000 }).toEqual({ revoked: 3 });
    expect(await by("leasehold.reason", "leasehold.holds.lost")).toMatchObject({ revoked: 3 });
    expect(await total("leasehold.holds.active")).toBe(0);
    // The holds of a session end before it does.
    await expect.poll(() => total("leasehold.session.remaining")).toBe(0);
    expect(await total("leasehold.session.ttl")).toBe(0);
  });
});

describe("a session", () => {
  test("is reported with its TTL and the time that is left, as the session says, and with each renewal", async () => {
    const session = await cluster.session();
    await expect
      .poll(() => total("leasehold.session.renewal.duration"), { timeout: 20_000 })
      .toBeGreaterThan(1);

    const [before, points, after] = [
      session.remainingMs(),
      await sdk.points("leasehold.session.remaining"),
      session.remainingMs(),
    ];
    const [{ value } = { value: NaN }] = points;
    expect(value * 1000).toBeGreaterThan(after - 50);
    expect(value * 1000).toBeLessThan(before + 50);
    expect(await sdk.points("leasehold.session.ttl")).toMatchObject([{ value: TTL_SECONDS }]);
  });
});

describe("a leadership", () => {
  test("is 1 for the leader of the election, 0 before and after", async () => {
    const first = await new Election(other, "otel/boss").campaign("two");
    const election = new Election(cluster, "otel/boss", { label: "reports" });
    const campaign = election.campaign("one");
    campaign.catch(() => {});
    await expect.poll(() => by("leasehold.label", "leasehold.leader")).toEqual({ other: 1, reports: 0 });

    await first.resign();
    const leadership = await campaign;
    expect(await by("leasehold.label", "leasehold.leader")).toEqual({ other: 0, reports: 1 });

    await leadership.resign();
    expect(await by("leasehold.label", "leasehold.leader")).toEqual({ other: 0, reports: 0 });
  });
});

describe("a member that is left", { timeout: 60_000 }, () => {
  test("is counted as a fail-over", async () => {
    await using etcds = await startEtcd({ members: 3 });
    await using links = await linkTo(etcds.members, etcds.member);
    await using client = connect({ hosts: links.hosts, session: { ttlSeconds: 5 } });
    await (await new Mutex(client, "otel/failover").lock()).release();
    expect(await by("leasehold.member.state", "leasehold.failovers")).toEqual({ down: 0, refused: 0 });

    await links.cut(links.inUse[0]!);
    await (await new Mutex(client, "otel/failover").lock()).release();

    await expect
      .poll(async () => (await by("leasehold.member.state", "leasehold.failovers"))["down"])
      .toBeGreaterThan(0);
  });
});

describe("disable()", () => {
  test("in the middle leaves nothing open, and the locks go on", async () => {
    const mutex = new Mutex(cluster, "otel/disabled");
    const lock = await mutex.lock();
    const next = mutex.lock();
    await expect.poll(() => placesOf(etcd.member, mutex.name)).toHaveLength(2);

    instrumentation.disable();

    expect(sdk.spans("leasehold.acquire")).toHaveLength(2);
    expect(sdk.spans("leasehold.hold")).toHaveLength(1);
    await lock.release();
    await (await next).release();
    expect(sdk.spans()).toHaveLength(3);
    expect(await total("leasehold.holds.active")).toBe(0);
    expect(await total("leasehold.waiters")).toBe(0);
  });
});
