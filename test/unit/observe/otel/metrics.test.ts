import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { electionChannel, memberChannel, shardChannel } from "../../../../src/base/telemetry/channels.js";
import type {
  ElectionMessage,
  MemberMessage,
  ShardMessage,
} from "../../../../src/base/telemetry/messages.js";
import type { Instrumentation } from "../../../../src/observe/otel/instrument.js";
import {
  acquire,
  acquireMessage,
  ended,
  granted,
  HOSTS,
  release,
  startAcquire,
} from "../../../support/fixtures/otel-messages.js";
import { MemorySdk } from "../../../support/fixtures/otel.js";

let sdk: MemorySdk;
let instrumentation: Instrumentation;

beforeEach(() => {
  sdk = new MemorySdk();
  instrumentation = sdk.instrument({ maxLabels: 2 });
});
afterEach(async () => {
  instrumentation.disable();
  await sdk.shutdown();
});

const NIGHTLY = { "leasehold.kind": "mutex", "leasehold.label": "nightly" };
const OTHER = { "leasehold.kind": "mutex", "leasehold.label": "other" };
/** Without the series that are 0. */
const nonzero = async (name: string) => (await sdk.points(name)).filter(({ value }) => value !== 0);

describe("leasehold.acquire.duration", () => {
  test("has the seconds of each call, by kind, label and outcome", async () => {
    acquire(41n);
    acquire(42n);
    startAcquire(acquireMessage({ label: undefined, kind: "permit" }))(ended("timeout"));

    expect(await sdk.points("leasehold.acquire.duration")).toEqual([
      { attributes: { ...NIGHTLY, "leasehold.outcome": "granted" }, value: 0.04, count: 2 },
      {
        attributes: {
          "leasehold.kind": "permit",
          "leasehold.label": "other",
          "leasehold.outcome": "timeout",
        },
        value: 0.02,
        count: 1,
      },
    ]);
  });
});

describe("leasehold.waiters", () => {
  test("counts the calls under way, without those that only try", async () => {
    const first = startAcquire(acquireMessage());
    startAcquire(acquireMessage());
    startAcquire(acquireMessage({ tries: true }))(ended("busy"));

    expect(await nonzero("leasehold.waiters")).toEqual([{ attributes: NIGHTLY, value: 2 }]);
    first(granted(41n));
    expect(await nonzero("leasehold.waiters")).toEqual([{ attributes: NIGHTLY, value: 1 }]);
  });
});

describe("leasehold.holds.active and leasehold.hold.duration", () => {
  test("count the current holds, and the seconds of ended ones", async () => {
    acquire(41n);
    acquire(42n);
    release(41n);

    expect(await nonzero("leasehold.holds.active")).toEqual([{ attributes: NIGHTLY, value: 1 }]);
    expect(await sdk.points("leasehold.hold.duration")).toEqual([
      { attributes: { ...NIGHTLY, "leasehold.reason": "released" }, value: 1.5, count: 1 },
    ]);
  });

  test("do not go below 0 for holds that were granted before", async () => {
    release(41n);

    expect(await nonzero("leasehold.holds.active")).toEqual([]);
    expect(await sdk.points("leasehold.hold.duration")).toMatchObject([{ count: 1 }]);
  });

  test("return to 0 with disable()", async () => {
    acquire(41n);
    startAcquire(acquireMessage());
    expect(await nonzero("leasehold.holds.active")).toHaveLength(1);
    expect(await nonzero("leasehold.waiters")).toHaveLength(1);

    instrumentation.disable();

    expect(await nonzero("leasehold.holds.active")).toEqual([]);
    expect(await nonzero("leasehold.waiters")).toEqual([]);
  });
});

describe("leasehold.holds.lost", () => {
  test("counts by reason, from 0", async () => {
    for (const revision of [41n, 42n, 43n]) acquire(revision);
    release(41n);
    release(42n, "expired");
    release(43n, "max_hold");

    const points = await sdk.points("leasehold.holds.lost");
    expect(points.map(({ attributes, value }) => [attributes["leasehold.reason"], value])).toEqual([
      ...[
        ["max_hold", 1],
        ["unhealthy", 0],
        ["expired", 1],
      ],
      ...[
        ["revoked", 0],
        ["deleted", 0],
        ["closed", 0],
      ],
    ]);
  });
});

describe("leasehold.failovers", () => {
  test("counts the members that were left, from 0", async () => {
    const member = (state: MemberMessage["state"]) =>
      memberChannel.publish({ hosts: HOSTS, host: "127.0.0.1:2379", state, error: undefined });
    member("up");
    member("down");
    member("up");
    member("down");
    member("refused");

    const points = await sdk.points("leasehold.failovers");
    expect(points.map(({ attributes, value }) => [attributes["leasehold.member.state"], value])).toEqual([
      ["down", 2],
      ["refused", 1],
    ]);
  });
});

describe("leasehold.leader", () => {
  const election = (state: ElectionMessage["state"], given: Partial<ElectionMessage> = {}) =>
    electionChannel.publish({
      ...{ hosts: HOSTS, name: "boss", label: "reports", owner: "host:1", state },
      ...{ fence: undefined, error: undefined, delayMs: undefined },
      ...given,
    });
  const leaders = async () =>
    Object.fromEntries(
      (await sdk.points("leasehold.leader")).map((it) => [
        String(it.attributes["leasehold.label"]),
        it.value,
      ]),
    );

  test("is 0 for a candidate, 1 for a leader, and 0 after its end", async () => {
    expect(await leaders()).toEqual({});
    election("campaigning");
    expect(await leaders()).toEqual({ reports: 0 });
    for (const end of ["resigned", "lost"] as const) {
      election("elected", { fence: 4n });
      expect(await leaders()).toEqual({ reports: 1 });
      election(end, { fence: 4n });
      expect(await leaders()).toEqual({ reports: 0 });
    }
  });

  test("stays 1 when the end of a term is told after another candidate of the process leads", async () => {
    election("elected", { fence: 4n });
    election("elected", { fence: 7n });
    election("lost", { fence: 4n });
    election("retrying");

    expect(await leaders()).toEqual({ reports: 1 });
  });

  test("is 1 while any election of the label is led, and of one cluster at a time", async () => {
    election("elected", { name: "a" });
    election("elected", { name: "b" });
    election("elected", { name: "b", hosts: [...HOSTS] });
    election("resigned", { name: "a" });
    election("resigned", { name: "b" });

    expect(await leaders()).toEqual({ reports: 1 });
  });

  test("is gone with disable()", async () => {
    election("elected");
    instrumentation.disable();

    expect(await leaders()).toEqual({});
  });
});

describe("the metrics of shards", () => {
  const shard = (state: ShardMessage["state"], given: Partial<ShardMessage> = {}) =>
    shardChannel.publish({
      ...{ hosts: HOSTS, name: "feeds", label: "feeds", shard: 7, state },
      ...{ fence: 41n, drainMs: undefined, error: undefined, ...given },
    });
  const owned = () => sdk.by("leasehold.label", "leasehold.shards.owned");
  const moves = () => sdk.by("leasehold.outcome", "leasehold.shards.moves");

  test("have what is owned, by label, from the lock to its release or loss, of each cluster", async () => {
    expect(await owned()).toEqual({});
    shard("owned");
    shard("owned", { shard: 8 });
    shard("owned", { hosts: [...HOSTS] });
    shard("owned", { name: "other", label: undefined });
    expect(await owned()).toEqual({ feeds: 3, other: 1 });
    shard("moving");
    shard("stuck", { shard: 8 });
    shard("failed", { shard: 8 });
    expect(await owned()).toEqual({ feeds: 3, other: 1 });
    shard("moved");
    shard("lost", { shard: 8 });
    expect(await owned()).toEqual({ feeds: 1, other: 1 });
  });

  test("are gone with disable()", async () => {
    shard("owned");
    instrumentation.disable();

    expect(await owned()).toEqual({});
  });

  test("count how shards have left, from 0, once each, and the seconds of their drains", async () => {
    shard("owned");
    expect(await moves()).toEqual({ moved: 0, late: 0, lost: 0 });
    shard("moving");
    shard("moved", { drainMs: 20 });
    // The same shard with another fence is another term.
    for (const state of ["owned", "moving"] as const) shard(state, { fence: 42n });
    shard("stuck", { fence: 42n, drainMs: 1000 });
    shard("moved", { fence: 42n, drainMs: 1480 });
    shard("owned", { fence: 43n });
    shard("lost", { fence: 43n });

    expect(await moves()).toEqual({ moved: 1, late: 1, lost: 1 });
    expect(await sdk.points("leasehold.shards.drain.duration")).toEqual([
      { attributes: { "leasehold.label": "feeds" }, value: 1.5, count: 2 },
    ]);
  });

  test("do not go below 0 for shards that were owned before", async () => {
    shard("moved");

    expect(await owned()).toEqual({ feeds: 0 });
    expect(await moves()).toMatchObject({ moved: 1 });
  });
});

describe("the labels", () => {
  test("beyond the limit, and those of locks without one, count as other", async () => {
    for (const label of ["a", "b", "c", "d", undefined])
      startAcquire(acquireMessage({ label, name: `of/${label}` }))(ended("timeout"));

    const points = await sdk.points("leasehold.acquire.duration");
    expect(points.map((it) => [it.attributes["leasehold.label"], it.count])).toEqual([
      ["a", 1],
      ["b", 1],
      ["other", 3],
    ]);
    expect(await nonzero("leasehold.waiters")).toEqual([]);
    expect((await sdk.points("leasehold.waiters")).map(({ attributes }) => attributes)).toContainEqual(OTHER);
  });
});

describe("no metric", () => {
  test("has the name of a lock or its owner", async () => {
    acquire(41n, { name: "secret", names: ["secret"], owner: "secret" });
    release(41n, "expired", { name: "secret", owner: "secret" });

    expect(await sdk.scrape()).not.toContain("secret");
  });
});
