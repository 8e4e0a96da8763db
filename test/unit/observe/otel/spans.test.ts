import { context, diag, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { CHANNELS, holdEndChannel, holdLongChannel } from "../../../../src/base/telemetry/channels.js";
import * as channels from "../../../../src/base/telemetry/channels.js";
import { LockLostError } from "../../../../src/errors.js";
import { instrument, type Instrumentation } from "../../../../src/observe/otel/instrument.js";
import {
  acquire,
  acquireMessage,
  ended,
  granted,
  holdEnd,
  HOSTS,
  release,
  startAcquire,
} from "../../../support/fixtures/otel-messages.js";
import { MemorySdk } from "../../../support/fixtures/otel.js";

const HOSTILE = `evil\u001b[31m\n${"x".repeat(1_000_000)}`;

let sdk: MemorySdk;
let instrumentation: Instrumentation;

beforeEach(() => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  sdk = new MemorySdk();
  instrumentation = sdk.instrument();
});
afterEach(async () => {
  instrumentation.disable();
  context.disable();
  await sdk.shutdown();
});

/** Runs `work` in a span of the caller. */
function inSpan<T>(work: () => T): { result: T; spanId: string } {
  const span = sdk.tracerProvider.getTracer("caller").startSpan("caller");
  const result = context.with(trace.setSpan(context.active(), span), work);
  span.end();
  return { result, spanId: span.spanContext().spanId };
}

const only = (name: string) => {
  const spans = sdk.spans(name);
  expect(spans).toHaveLength(1);
  return spans[0]!;
};

describe("a granted call", () => {
  test("has two spans, both children of the span that was active at the call", () => {
    const { result: finish, spanId } = inSpan(() => startAcquire(acquireMessage()));
    inSpan(() => finish(granted(41n)));
    inSpan(() => release(41n));

    expect(only("leasehold.acquire").parentSpanContext?.spanId).toBe(spanId);
    expect(only("leasehold.hold").parentSpanContext?.spanId).toBe(spanId);
    expect(only("leasehold.acquire").kind).toBe(SpanKind.CLIENT);
    expect(only("leasehold.hold").kind).toBe(SpanKind.INTERNAL);
  });

  test("has the times of its events, though its spans are made later", () => {
    vi.useFakeTimers({ toFake: ["Date"], now: 1_700_000_000_000 });
    const finish = startAcquire(acquireMessage());
    vi.setSystemTime(1_700_000_000_021);
    finish(granted(41n, { waitedMs: 20.5 }));
    release(41n, "deleted", { heldMs: 1500, error: new LockLostError("jobs/nightly", "key", "deleted") });
    vi.useRealTimers();

    const at = (ms: number) => [1_700_000_000 + Math.trunc(ms / 1000), (ms % 1000) * 1e6];
    const { startTime, endTime } = only("leasehold.acquire");
    const hold = only("leasehold.hold");
    expect([startTime, endTime]).toEqual([at(0), at(20.5)]);
    expect([hold.startTime, hold.endTime, hold.events[0]?.time]).toEqual([at(20.5), at(1520.5), at(1520.5)]);
  });

  test("has the kind, the wait and the outcome in its span, but not the name", () => {
    startAcquire(acquireMessage())(granted(41n, { ahead: 3, waitedMs: 20.5 }));
    release(41n);

    const lock = { "leasehold.kind": "mutex", "leasehold.label": "nightly" };
    const holder = { "leasehold.owner": "host:1", "leasehold.fence": "41" };
    expect(only("leasehold.acquire").attributes).toEqual({
      ...{ ...lock, ...holder, "leasehold.tries": false, "leasehold.outcome": "granted" },
      ...{ "leasehold.ahead": 3, "leasehold.waited_ms": 20.5 },
    });
    expect(only("leasehold.hold").attributes).toEqual({
      ...{ ...lock, ...holder, "leasehold.reason": "released", "leasehold.held_ms": 1500 },
    });
    expect(sdk.spans().map(({ status }) => status.code)).toEqual([
      SpanStatusCode.UNSET,
      SpanStatusCode.UNSET,
    ]);
  });

  test("has a hold span that ends with its own hold: by cluster, key and revision", () => {
    const other = [...HOSTS];
    acquire(41n);
    acquire(41n, { hosts: other });
    acquire(41n, { key: "jobs/nightly/x" });
    acquire(42n);

    release(41n, "expired");

    expect(sdk.spans("leasehold.hold")).toHaveLength(1);
    release(41n, "revoked", { hosts: other });
    release(41n, "deleted", { key: "jobs/nightly/x" });
    release(42n, "closed");
    expect(sdk.spans("leasehold.hold").map(({ attributes }) => attributes["leasehold.reason"])).toEqual([
      ...["expired", "revoked", "deleted", "closed"],
    ]);
  });

  test("whose hold ended before the call returned leaves no span open", () => {
    const finish = startAcquire(acquireMessage());
    release(41n, "expired");
    finish(granted(41n));

    expect(sdk.spans("leasehold.hold")).toEqual([]);
    instrumentation.disable();
    expect(sdk.spans("leasehold.hold")).toEqual([]);
  });

  test("has an event where the hold outlasts its limit", () => {
    acquire(41n);
    holdLongChannel.publish({ ...holdEnd(41n), warnHoldMs: 1000 });
    holdLongChannel.publish({ ...holdEnd(999n), warnHoldMs: 1000 });
    release(41n);

    expect(only("leasehold.hold").events).toMatchObject([
      { name: "leasehold.hold.long", attributes: { "leasehold.warn_hold_ms": 1000 } },
    ]);
  });
});

describe("a call that is not granted", () => {
  test.each(["busy", "timeout", "aborted"] as const)("%s is no failure of its span", (outcome) => {
    startAcquire(acquireMessage())({ ...ended(outcome), error: new Error("given up") });

    const span = only("leasehold.acquire");
    expect(span.attributes["leasehold.outcome"]).toBe(outcome);
    expect(span.status.code).toBe(SpanStatusCode.UNSET);
    expect(span.events).toEqual([]);
    expect(sdk.spans("leasehold.hold")).toEqual([]);
  });

  test.each(["session_lost", "session_closed", "error"] as const)(
    "%s fails it, with the class",
    (outcome) => {
      const error = new TypeError("about jobs/nightly");
      startAcquire(acquireMessage())({ ...ended(outcome), error });

      const span = only("leasehold.acquire");
      expect(span.status).toEqual({ code: SpanStatusCode.ERROR, message: "TypeError" });
      expect(span.events).toMatchObject([
        { name: "exception", attributes: { "exception.type": "TypeError" } },
      ]);
      expect(JSON.stringify([span.attributes, span.events])).not.toContain("jobs/nightly");
    },
  );

  test("that began before anybody listened is not recorded", () => {
    instrumentation.disable();
    const finish = startAcquire(acquireMessage());
    instrumentation = sdk.instrument();
    finish(granted(41n));
    release(41n);

    expect(sdk.spans()).toEqual([]);
  });
});

describe("a lost hold", () => {
  test("fails its span with the code of the error", () => {
    const error = new LockLostError("jobs/nightly", "jobs/nightly/41", "expired");
    acquire(41n);
    release(41n, "expired", { error });

    const span = only("leasehold.hold");
    expect(span.status).toEqual({ code: SpanStatusCode.ERROR, message: "LockLostError" });
    expect(span.events).toMatchObject([{ attributes: { "exception.type": "LOCK_LOST" } }]);
    expect(JSON.stringify([span.attributes, span.events])).not.toContain("jobs/nightly");
  });

  test("that the program ended itself, by closing its session, fails nothing", () => {
    acquire(41n);
    release(41n, "closed", { error: new Error("closed") });

    expect(only("leasehold.hold").status.code).toBe(SpanStatusCode.UNSET);
  });
});

describe("with names: true", () => {
  beforeEach(() => {
    instrumentation.disable();
    instrumentation = sdk.instrument({ names: true });
  });

  test("a span has the name, and all names of several", () => {
    acquire(41n, { kind: "all", names: ["jobs/nightly", "b"] });
    acquire(42n);

    const [all, one] = sdk.spans("leasehold.acquire").map(({ attributes }) => attributes);
    expect(all).toMatchObject({
      "leasehold.name": "jobs/nightly",
      "leasehold.names": ["jobs/nightly", "b"],
    });
    expect(one).toMatchObject({ "leasehold.name": "jobs/nightly" });
    expect(one).not.toHaveProperty("leasehold.names");
  });

  test("names, owners and messages of errors are bounded, and of one line without escapes", () => {
    const message = { name: HOSTILE, names: [HOSTILE, HOSTILE], owner: HOSTILE };
    acquire(41n, message);
    release(41n, "expired", { error: new Error(HOSTILE) });
    startAcquire(acquireMessage(message))({ ...ended("error"), error: new Error(HOSTILE) });

    const texts = sdk.spans().flatMap((span) => [span.attributes, ...span.events.map((it) => it.attributes)]);
    const values = texts.flatMap((it) => Object.values(it ?? {})).flat();
    expect(values.filter((value) => typeof value === "string" && value.length > 500)).toEqual([]);
    expect(values.filter((value) => typeof value === "string" && /[\u0000-\u001f]/.test(value))).toEqual([]);
    expect(values).toContain("evil\\u001b[31m\\u000a".padEnd(199, "x") + "…");
  });
});

describe("disable()", () => {
  test("ends all spans that are open, forgets them, and leaves no subscriber", () => {
    const finish = startAcquire(acquireMessage());
    acquire(41n);

    instrumentation.disable();

    expect(sdk.spans().map(({ name }) => name)).toEqual([
      ...["leasehold.acquire", "leasehold.acquire", "leasehold.hold"],
    ]);
    finish(granted(42n));
    release(41n);
    release(42n);
    instrumentation.disable();
    expect(sdk.spans()).toHaveLength(3);
    for (const key of Object.keys(CHANNELS) as (keyof typeof CHANNELS)[])
      expect(channels[`${key}Channel`].hasSubscribers).toBe(false);
  });

  test("is what `using` calls", () => {
    instrumentation.disable();
    {
      using again = sdk.instrument();
      expect(again).toBeDefined();
      expect(holdEndChannel.hasSubscribers).toBe(true);
    }
    expect(holdEndChannel.hasSubscribers).toBe(false);
  });
});

describe("an error in the SDK", () => {
  afterEach(() => diag.disable());

  test("is written to the diagnostic logger, and never reaches the process", async () => {
    const uncaught = vi.fn();
    process.on("uncaughtException", uncaught);
    const error = vi.fn(() => {
      throw new Error("the logger, too");
    });
    diag.setLogger({ ...{ error, warn: vi.fn(), info: vi.fn() }, ...{ debug: vi.fn(), verbose: vi.fn() } });
    instrumentation.disable();
    const failing = { getTracer: () => ({ startSpan: () => fail(), startActiveSpan: () => fail() }) };
    const fail = () => {
      throw new Error("a sampler failed\n");
    };
    instrumentation = sdk.instrument({ tracerProvider: failing });

    acquire(41n);
    release(41n);
    instrumentation.flush();
    await new Promise((resolve) => setImmediate(resolve));

    process.off("uncaughtException", uncaught);
    expect(uncaught).not.toHaveBeenCalled();
    expect(error).toHaveBeenCalledWith("leasehold/otel: Error: a sampler failed\\u000a");
  });
});

describe("the options", () => {
  test.each([
    [
      { tracerProvider: {} },
      "Expected tracerProvider to be an object with getTracer, got an object (Object)",
    ],
    [{ meterProvider: 1 }, "Expected meterProvider to be an object with getMeter, got 1"],
    [{ names: "yes" }, 'Expected names to be true or false, got "yes"'],
    [{ maxLabels: -1 }, "Expected maxLabels to be a whole number from 0 to 10000, got -1"],
    [{ name: true }, /Unknown option name of instrument: did you mean names\?/],
  ])("%o are refused", (options, message) => {
    expect(() => instrument(options as never)).toThrow(message);
  });

  test("default to the global providers, which may be missing", () => {
    using again = instrument();

    acquire(41n);
    release(41n);

    expect(again).toBeDefined();
    expect(sdk.spans("leasehold.hold")).toHaveLength(1);
  });
});
