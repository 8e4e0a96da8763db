// What bounds the memory of leasehold/otel, and the gauges that depend on the clock.
import { ROOT_CONTEXT } from "@opentelemetry/api";
import { AsyncLocalStorage } from "node:async_hooks";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { renewedChannel, sessionChannel } from "../../../../src/base/telemetry/channels.js";
import type { SessionMessage } from "../../../../src/base/telemetry/messages.js";
import { Acquisitions, Holds, observe, USED_PART } from "../../../../src/observe/otel/observe.js";
import { systemClock } from "../../../../src/base/util/clock.js";
import { Backlog, BoundedMap, Clusters, type Telemetry } from "../../../../src/observe/otel/telemetry.js";
import { instrumentsOf, Labels, SeriesTable } from "../../../../src/observe/otel/metrics.js";
import { remainingMs } from "../../../../src/lock/session/lease.js";
import { acquireMessage, granted, HOSTS } from "../../../support/fixtures/otel-messages.js";
import { FakeClock } from "../../../support/fakes/fake-clock.js";
import { MemorySdk } from "../../../support/fixtures/otel.js";

let sdk: MemorySdk;
let telemetry: Telemetry;
let nowMs = 0;

beforeEach(() => {
  sdk = new MemorySdk();
  nowMs = 1_000_000;
  const labels = new Labels(10);
  const instruments = instrumentsOf(sdk.meterProvider.getMeter("leasehold"));
  const series = new SeriesTable(labels);
  telemetry = {
    tracer: sdk.tracerProvider.getTracer("leasehold"),
    instruments,
    labels,
    series,
    clusters: new Clusters(),
    names: false,
    backlog: new Backlog(systemClock, () => series.report(instruments)),
    now: () => nowMs,
    wallTime: () => nowMs,
  };
});
afterEach(() => sdk.shutdown());

describe("a bounded map", () => {
  test("gives back its oldest value when it is full", () => {
    const map = new BoundedMap<string, number>(2);

    expect([map.set("a", 1), map.set("b", 2), map.set("b", 3)]).toEqual([undefined, undefined, undefined]);
    expect(map.set("c", 4)).toBe(1);
    expect([map.take("a"), map.take("b"), map.size]).toEqual([undefined, 3, 1]);
    expect([map.takeAll(), map.size]).toEqual([[4], 0]);
  });
});

describe("the backlog", () => {
  test("is worked off 50 ms after its first entry, in order, whatever an entry throws", () => {
    const clock = new FakeClock();
    const backlog = new Backlog(clock, () => undefined);
    const done: string[] = [];
    backlog.add(() => done.push("a"));
    clock.advance(49);
    backlog.add(() => {
      throw new Error("a span processor failed");
    });
    backlog.add(() => done.push("b"));
    expect(done).toEqual([]);

    clock.advance(1);
    expect(done).toEqual(["a", "b"]);
    backlog.add(() => done.push("c"));
    clock.advance(50);
    expect(done).toEqual(["a", "b", "c"]);
  });

  test("is worked off in the async context of its own, not in that of a caller", () => {
    const contexts = new AsyncLocalStorage<string>();
    const backlog = new Backlog(new FakeClock(), () => undefined);
    const seen: unknown[] = [];

    contexts.run("one caller", () => backlog.add(() => seen.push(contexts.getStore())));
    contexts.run("another caller", () => backlog.flush());

    expect(seen).toEqual([undefined]);
  });

  test("goes on in order when an entry flushes it", () => {
    const backlog = new Backlog(new FakeClock(), () => undefined);
    const done: string[] = [];
    backlog.add(() => {
      done.push("a");
      backlog.flush();
      done.push("end of a");
    });
    backlog.add(() => done.push("b"));
    backlog.flush();

    expect(done).toEqual(["a", "b", "end of a"]);
  });

  test("is worked off at once when it has 256 entries", () => {
    const backlog = new Backlog(new FakeClock(), () => undefined);
    let done = 0;
    for (let n = 0; n < 600; n++) backlog.add(() => done++);

    expect(done).toBe(512);
    backlog.flush();
    expect(done).toBe(600);
  });
});

describe("holds whose end is never reported", () => {
  test("are ended, the oldest first, when the table is full", async () => {
    const holds = new Holds(telemetry, 3);
    for (let revision = 1n; revision <= 10n; revision++)
      holds.granted({ ...acquireMessage(), ...granted(revision) }, { parent: ROOT_CONTEXT, at: nowMs });

    const fences = sdk.spans("leasehold.hold").map(({ attributes }) => attributes["leasehold.fence"]);
    expect(fences).toEqual(["1", "2", "3", "4", "5", "6", "7"]);
    telemetry.backlog.flush();
    expect(await sdk.points("leasehold.holds.active")).toMatchObject([{ value: 3 }]);
  });
});

describe("calls whose end is never reported", () => {
  test("are ended, the oldest first, when the table is full", async () => {
    const calls = new Acquisitions(telemetry, new Holds(telemetry), 3);
    for (let n = 0; n < 10; n++) calls.started(acquireMessage(), { parent: ROOT_CONTEXT, at: nowMs });

    expect(sdk.spans("leasehold.acquire")).toHaveLength(7);
    telemetry.backlog.flush();
    expect(await sdk.points("leasehold.waiters")).toMatchObject([{ value: 3 }]);
  });
});

describe("leasehold.session.remaining", () => {
  let stop: () => void;
  beforeEach(() => {
    stop = observe(telemetry, sdk.meterProvider.getMeter("leasehold"));
  });
  afterEach(() => stop());

  const session = (to: SessionMessage["to"], given: Partial<SessionMessage> = {}) =>
    sessionChannel.publish({
      ...{ hosts: HOSTS, leaseId: 1n, owner: "host:1", ttlSeconds: 10, from: undefined, to },
      ...{ remainingMs: 9000, sinceLastRenewalMs: 0, stalledMs: 0, members: new Map(), error: undefined },
      ...given,
    });
  const renewed = (leaseId: bigint, ttlSeconds = 10, durationMs = 500) =>
    renewedChannel.publish({ hosts: HOSTS, leaseId, ttlSeconds, durationMs });
  const observed = async () => {
    const [remaining, ttl] = await Promise.all([
      sdk.points("leasehold.session.remaining"),
      sdk.points("leasehold.session.ttl"),
    ]);
    return [...remaining, ...ttl].map(({ value }) => value);
  };

  test("goes down with the clock to 0, and up with a renewal, from when that was sent", async () => {
    session("live");
    nowMs += 4000;
    expect(await observed()).toEqual([5, 10]);

    renewed(1n);
    expect(await observed()).toEqual([8.5, 10]);

    nowMs += 8600;
    expect(await observed()).toEqual([0, 10]);
  });

  test("is taken from the session with the smallest part of its TTL left", async () => {
    renewed(1n, 10, 0);
    renewed(2n, 100, 0);
    nowMs += 5000;

    expect(await observed()).toEqual([4, 10]);
  });

  test.each(["lost", "closed"] as const)("is 0, as is the TTL, after a session is %s", async (to) => {
    session("live");
    expect(await observed()).toEqual([9, 10]);
    session(to, { from: "live" });

    expect(await observed()).toEqual([0, 0]);
  });

  test("forgets a session that ended unseen", async () => {
    session("live");
    nowMs += 9000 + 10_001;

    expect(await observed()).toEqual([0, 0]);
  });

  test("counts the deadline as the session does", () => {
    const sent = { monotonic: 0, suspend: 0 };

    expect(remainingMs({ sent, ttlMs: 1000 }, sent)).toBe(1000 * USED_PART);
  });

  test("stops with disable()", async () => {
    session("live");
    stop();

    expect(await observed()).toEqual([]);
  });

  test("comes with the seconds that a renewal takes", async () => {
    renewed(1n);
    renewed(1n);

    expect(await sdk.points("leasehold.session.renewal.duration")).toMatchObject([{ value: 1, count: 2 }]);
  });
});
