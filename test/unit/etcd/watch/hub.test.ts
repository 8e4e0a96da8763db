import { describe, expect, test } from "vitest";
import { TokenExpiredError, type WatchEvent } from "../../../../src/etcd/port.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

/** How long a create or a probe may stay unanswered. */
const PATIENCE_MS = 1500;

/** Watches `key` for deletions; `told` is everything that is reported to its owner. */
function watch(cluster: FakeCluster, key: string, told: string[] = []) {
  const listener = {
    created: (revision: bigint) => void told.push(`${key} created ${revision}`),
    events: (all: readonly WatchEvent[]) =>
      void told.push(`${key} deleted ${all.map(({ kv }) => kv.modRevision).join()}`),
    interrupted: () => void told.push(`${key} interrupted`),
    refused: (error: Error) => void told.push(`${key} refused ${error.message}`),
  };
  const made = cluster.services.watches.watch({ key, events: "DELETE" }, listener);
  return { told, watch: made };
}

function watching(keys: readonly string[]) {
  const cluster = new FakeCluster();
  const told: string[] = [];
  const watches = keys.map((key) => watch(cluster, key, told).watch);
  cluster.clock.advance(0);
  return { cluster, clock: cluster.clock, told, watches, stream: cluster.member.watches[0]! };
}

/** The stream opened last. */
const streamOf = (cluster: FakeCluster) => cluster.member.watches.at(-1)!;

describe("the watch stream", () => {
  test("is one for all waits, and no create waits for the answer to another", () => {
    const { cluster, stream } = watching(["k1", "k2", "k3"]);
    watch(cluster, "k4");

    expect(cluster.connected).toHaveLength(1);
    expect(cluster.member.watches).toHaveLength(1);
    expect(stream.creates.map(({ key, startRevision }) => [key, startRevision])).toEqual(
      ["k1", "k2", "k3", "k4"].map((key) => [key, 0n]),
    );
    expect(new Set(stream.creates.map(({ watchId }) => watchId)).size).toBe(4);
  });

  test("tells an owner the revision its watch was created at, and its own events only", () => {
    const { told, stream } = watching(["k1", "k2"]);

    stream.created("k1", 101n);
    stream.created("k2", 102n);
    stream.deleted("k2", 103n);

    expect(told).toEqual(["k1 created 101", "k2 created 102", "k2 deleted 103"]);
  });

  test("tells an owner all events of one answer at once, but only those that its watch was made for", () => {
    const cluster = new FakeCluster();
    const told: (readonly string[])[] = [];
    const events = (all: readonly WatchEvent[]) =>
      void told.push(all.map(({ kv }) => `${kv.key.toString()} ${kv.modRevision}`));
    const target = { key: "k2", end: "k5", events: "DELETE" } as const;
    cluster.services.watches.watch(target, { created() {}, events, interrupted() {}, refused() {} });
    cluster.clock.advance(0);
    const stream = streamOf(cluster);
    stream.created("k2", 101n);

    const { watchId } = stream.creates[0]!;
    const event = (kind: "PUT" | "DELETE", key: string, modRevision: bigint) =>
      ({ kind, kv: keyValue({ key, modRevision }) }) as const;
    stream.answer({ watchId, events: [event("DELETE", "k5", 102n), event("PUT", "k3", 102n)] });
    stream.answer({
      watchId,
      events: [event("DELETE", "k4", 103n), event("PUT", "k3", 103n), event("DELETE", "k2", 104n)],
    });

    expect(told).toEqual([["k4 103", "k2 104"]]);
  });

  test("lays a refused create at the door of the right owner, though etcd does not name it", () => {
    const { told, stream } = watching(["k1", "k2", "k3"]);

    stream.created("k1", 101n);
    stream.answer({ created: true, cancelled: true, cancelReason: "permission denied" });
    stream.created("k3", 103n);

    expect(told).toEqual(["k1 created 101", expect.stringContaining("k2 refused"), "k3 created 103"]);
    expect(told[1]).toContain("permission denied");
  });

  test("keeps the order of answers when an owner has left before its own came", () => {
    const { told, watches, stream } = watching(["k1", "k2", "k3"]);

    watches[1]!.cancel();
    for (const revision of [101n, 102n, 103n]) stream.answer({ created: true }, revision);

    expect(told).toEqual(["k1 created 101", "k3 created 103"]);
    expect(stream.cancels).toEqual([watches[1]!.id]);
  });

  test("tells nothing to an owner that has left", () => {
    const { told, watches, stream } = watching(["k1"]);
    stream.created("k1", 101n);

    watches[0]!.cancel();
    stream.deleted("k1", 102n);

    expect(told).toEqual(["k1 created 101"]);
  });

  test("that breaks notifies every owner; their new watches go out together on the next member", () => {
    const cluster = new FakeCluster();
    const interrupted: string[] = [];
    const again = (key: string) => {
      const listener = {
        created: () => {},
        events: () => {},
        interrupted: () => (interrupted.push(key), again(key)),
        refused: () => {},
      };
      cluster.services.watches.watch({ key, events: "DELETE" }, listener);
    };
    ["k1", "k2"].forEach(again);
    cluster.clock.advance(0);
    streamOf(cluster).created("k1", 101n);

    streamOf(cluster).end();
    cluster.clock.advance(1000);

    expect(interrupted).toEqual(["k1", "k2"]);
    expect(cluster.connected.map(({ host }) => host)).toEqual(["a:1", "b:1"]);
    expect(streamOf(cluster).creates.map(({ key }) => key)).toEqual(["k1", "k2"]);
  });

  test("that was left tells nothing any more", () => {
    const { cluster, told, stream } = watching(["k1"]);
    stream.created("k1", 101n);

    stream.end();
    stream.deleted("k1", 102n);
    stream.end();

    expect(told).toEqual(["k1 created 101", "k1 interrupted"]);
    expect(cluster.connected).toHaveLength(1);
  });

  test("moves one owner only when etcd has compacted the revision it starts from", () => {
    const { told, watches, stream } = watching(["k1", "k2"]);
    stream.created("k1", 101n);
    stream.created("k2", 101n);

    stream.answer({ watchId: watches[0]!.id, cancelled: true, compacted: true }, 0n);
    stream.deleted("k2", 102n);

    expect(told).toEqual(["k1 created 101", "k2 created 101", "k1 interrupted", "k2 deleted 102"]);
  });

  test("is left when a create stays unanswered", () => {
    const { told, clock, stream } = watching(["k1"]);

    clock.advance(PATIENCE_MS - 1);
    expect(told).toEqual([]);
    clock.advance(1);

    expect(told).toEqual(["k1 interrupted"]);
    expect(stream.closed).toBe(true);
  });

  test("is left when the second of two creates stays unanswered", () => {
    const { told, clock, stream } = watching(["k1", "k2"]);

    stream.created("k1", 101n);
    clock.advance(PATIENCE_MS);

    expect(told).toEqual(["k1 created 101", "k1 interrupted", "k2 interrupted"]);
  });

  test("is kept when the answer was waiting in the socket while the process stood still", () => {
    const { told, clock, stream } = watching(["k1"]);
    clock.pendingEvents = () => stream.created("k1", 101n);

    clock.freeze(10 * PATIENCE_MS);
    clock.advance(1);

    expect(told).toEqual(["k1 created 101"]);
    expect(stream.closed).toBe(false);
  });

  test("that is silent for long is fine: only what was asked must be answered", () => {
    const { told, clock, stream } = watching(["k1"]);
    stream.created("k1", 101n);

    clock.advance(100 * PATIENCE_MS);

    expect(told).toEqual(["k1 created 101"]);
    expect(stream.closed).toBe(false);
  });

  test.each([
    ["answers", false],
    ["stays silent", true],
  ])("is probed when a call on its member got no answer, and left when the probe %s", async (_, left) => {
    const { cluster, clock, stream } = watching(["k1"]);
    stream.created("k1", 101n);
    const call = cluster.client.range({ key: "x" }, { what: "test", giveUpMs: 3000 });
    call.catch(() => undefined);
    await settle();

    await clock.pass(2100);
    expect(stream.probes).toBeGreaterThan(0);
    if (!left) stream.answer({});
    await clock.pass(PATIENCE_MS);

    expect(stream.closed).toBe(left);
  });

  test("moves with a fresh token when etcd refuses a create because the token is stale", async () => {
    const cluster = new FakeCluster({ auth: { username: "worker", password: "secret" } });
    cluster.onCall = (call) => call.answer(call.method === "authenticate" ? "token" : undefined);
    const { told } = watch(cluster, "k1");
    await cluster.clock.pass(0);
    cluster.member.failure = (reason) => new TokenExpiredError(reason);

    streamOf(cluster).answer({ created: true, cancelled: true, cancelReason: "invalid auth token" });
    watch(cluster, "k2");
    await cluster.clock.pass(0);

    expect(told).toEqual(["k1 interrupted"]);
    // One before the first stream, which needs a token too.
    expect(cluster.member.of("authenticate")).toHaveLength(2);
    expect(streamOf(cluster).creates.map(({ key }) => key)).toEqual(["k2"]);
  });

  test("is ended when nothing is watched and the cluster may rest", () => {
    const { cluster, clock, watches, stream } = watching(["k1"]);
    stream.created("k1", 101n);

    watches[0]!.cancel();
    cluster.services.watches.closeIdleStreams();

    expect(stream.closed).toBe(true);
    expect(clock.timers).toBe(0);
  });
});

describe("a read beside the watches", () => {
  async function read(memberId: string) {
    const { cluster, stream } = watching(["k1"]);
    stream.created("k1", 101n);
    const outcome = cluster.services.watches.read([{ key: "k1" }], 1000);
    await settle();
    const call = cluster.member.of("range")[0]!;
    const kvs = [keyValue({ key: "k1" })];
    call.answer({ header: { ...HEADER, memberId }, kvs, more: false, count: 1 });
    return { call, answer: await outcome };
  }

  test("asks the member that serves them, without the leader", async () => {
    const { call, answer } = await read("a");

    expect(call.request).toMatchObject({ serializable: true });
    expect(answer?.ranges[0]?.kvs).toHaveLength(1);
  });

  test("does not count when another member has answered", async () => {
    const { answer } = await read("z");

    expect(answer).toBeUndefined();
  });
});
