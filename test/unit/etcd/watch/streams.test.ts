import { describe, expect, test } from "vitest";
import { TokenExpiredError } from "../../../../src/etcd/port.js";
import type { Watch } from "../../../../src/etcd/watch-hub.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER } from "../../../support/fakes/fake-connection.js";
import { type FakeWatch, keyValue } from "../../../support/fakes/fake-member.js";
import { BELOW, FIRST, MINE, placeKey, WaitingTurn, WATCHED } from "../../../support/fakes/fake-turn.js";

/** Number of watches on one stream. */
const ROOM = 1000;
/** How long a create or a probe may stay unanswered. */
const PATIENCE_MS = 1500;

const keys = (count: number, prefix = "k") => Array.from({ length: count }, (_, n) => `${prefix}${n}`);

const keysOn = (stream: FakeWatch | undefined) => stream?.creates.map(({ key }) => key.toString());

/** Watches for deletions; `told` is everything that is reported to the owners. */
class Watching {
  readonly cluster = new FakeCluster();
  readonly clock = this.cluster.clock;
  readonly hub = this.cluster.services.watches;
  readonly told: string[] = [];

  /** Streams of all members, in the order of opening. */
  get streams(): FakeWatch[] {
    return this.cluster.connected.flatMap(({ watches }) => watches);
  }

  watch(key: string, beside?: Watch): Watch {
    const listener = {
      created: () => void this.told.push(`${key} created`),
      events: () => void this.told.push(`${key} deleted`),
      interrupted: () => void this.told.push(`${key} moved`),
      refused: () => void this.told.push(`${key} refused`),
    };
    return this.hub.watch({ key, events: "DELETE" }, listener, beside);
  }

  /** Opens `count` watches, all created by etcd. */
  watchAll(count: number): Watch[] {
    const watches = keys(count).map((key) => this.watch(key));
    this.clock.advance(0);
    for (const stream of this.streams) createAll(stream);
    this.told.length = 0;
    return watches;
  }
}

function createAll(stream: FakeWatch): void {
  for (const { watchId } of stream.creates) stream.answer({ watchId, created: true });
}

describe("more watches than one stream is good for", () => {
  test("are on several streams of one member", () => {
    const watching = new Watching();

    watching.watchAll(2 * ROOM + 1);

    expect(watching.cluster.connected).toHaveLength(1);
    expect(watching.streams.map(({ creates }) => creates.length)).toEqual([ROOM, ROOM, 1]);
  });

  test("use the room that others have left", () => {
    const watching = new Watching();
    const watches = watching.watchAll(2 * ROOM);

    for (const n of [3, 4]) watches[n]?.cancel();
    for (const key of ["new1", "new2"]) watching.watch(key);

    expect(watching.streams).toHaveLength(2);
    expect(keysOn(watching.streams[0])?.slice(ROOM)).toEqual(["new1", "new2"]);
  });

  test.each([
    ["made while there is no stream", 0],
    ["made while its stream is full", ROOM],
  ])("keep one that is to be beside another on its stream: %s", (_, earlier) => {
    const watching = new Watching();
    if (earlier > 0) watching.watchAll(earlier - 1);
    else for (const key of keys(ROOM - 1)) watching.watch(key);

    const first = watching.watch("first");
    watching.watch("second", first);
    watching.clock.advance(0);

    expect(keysOn(watching.streams[0])?.slice(-2)).toEqual(["first", "second"]);
  });

  test("find another stream when the one that they were to be beside is gone", () => {
    const watching = new Watching();
    const [first] = watching.watchAll(1);

    watching.streams[0]?.end();
    watching.watch("second", first);
    watching.clock.advance(1000);

    expect(keysOn(watching.streams[1])).toEqual(["second"]);
  });

  test("are cancelled on the stream that they are on", () => {
    const watching = new Watching();
    const watches = watching.watchAll(ROOM + 1);

    watches[ROOM]?.cancel();

    expect(watching.streams.map(({ cancels }) => cancels)).toEqual([[], [watches[ROOM]?.id]]);
  });

  test("hear their own events, on whichever stream", () => {
    const watching = new Watching();
    watching.watchAll(ROOM + 1);

    watching.streams[1]?.deleted(`k${ROOM}`, 200n);
    watching.streams[0]?.deleted("k0", 201n);

    expect(watching.told).toEqual([`k${ROOM} deleted`, "k0 deleted"]);
  });

  test("all move to the next member when one stream breaks", () => {
    const watching = new Watching();
    watching.watchAll(ROOM + 1);

    watching.streams[1]?.end();

    expect(watching.streams.map(({ closed }) => closed)).toEqual([true, true]);
    expect(watching.told).toEqual(keys(ROOM + 1).map((key) => `${key} moved`));
  });

  test("hear nothing of the move when they were cancelled during it", () => {
    const watching = new Watching();
    const watches = watching.watchAll(ROOM + 1);
    watches[0]!.listener = { ...watches[0]!.listener, interrupted: () => watches[ROOM]?.cancel() };

    watching.streams[0]?.end();

    expect(watching.told).toHaveLength(ROOM - 1);
    expect(watching.streams.map(({ cancels }) => cancels)).toEqual([[], []]);
  });

  test("all move with one fresh token when one stream refuses a create because its token is stale", async () => {
    const watching = new Watching();
    watching.watchAll(ROOM + 1);
    watching.cluster.member.failure = (reason) => new TokenExpiredError(reason);
    const stale = { created: true, cancelled: true, cancelReason: "invalid auth token" };

    watching.watch("new");
    watching.streams[1]?.answer(stale);
    watching.streams[0]?.answer(stale);
    await settle();

    expect(watching.streams.map(({ closed }) => closed)).toEqual([true, true]);
    expect(watching.told).toHaveLength(ROOM + 2);
  });

  test("end their streams when nothing is watched on them and the cluster may rest", () => {
    const watching = new Watching();
    const watches = watching.watchAll(ROOM + 1);

    for (const watch of watches.slice(0, ROOM)) watch.cancel();
    watching.hub.closeIdleStreams();
    expect(watching.streams.map(({ closed }) => closed)).toEqual([true, false]);

    watches[ROOM]?.cancel();
    watching.hub.closeIdleStreams();
    expect(watching.streams.map(({ closed }) => closed)).toEqual([true, true]);
    expect(watching.clock.timers).toBe(0);
  });

  test("end with their streams when the cluster is closed", () => {
    const watching = new Watching();
    watching.watchAll(2 * ROOM);

    watching.hub.close();

    expect(watching.streams.map(({ closed }) => closed)).toEqual([true, true]);
    expect(watching.clock.timers).toBe(0);
  });
});

describe("a waiting place", () => {
  test("keeps its two watches on one stream, however many predecessors it has had", async () => {
    const turn = new WaitingTurn({ ahead: 3 });
    const { watches } = turn.cluster.services;
    const listener = { created() {}, events() {}, interrupted() {}, refused() {} };
    const watch = (key: string, beside?: Watch) => watches.watch({ key, events: "DELETE" }, listener, beside);
    const beside = watch("beside");
    for (const key of keys(2 * ROOM)) watch(key);
    // One more than the stream has room for, once the waiter gives up its watch on the first predecessor.
    for (const key of ["more1", "more2"]) watch(key, beside);
    const [first, ...others] = turn.cluster.member.watches;
    first?.created(placeKey(BELOW), WATCHED);
    first?.created(turn.entry.key, WATCHED);
    await settle();

    first?.deleted(placeKey(BELOW), WATCHED + 1n);
    await settle();
    await turn.answerRead([MINE, FIRST], { revision: WATCHED + 1n });

    expect(keysOn(first)?.at(-1)).toBe(placeKey(FIRST));
    expect(others.flatMap((stream) => keysOn(stream))).not.toContain(placeKey(FIRST));
  });
});

describe("a member of several streams", () => {
  const unanswered = () => {
    const watching = new Watching();
    watching.watchAll(ROOM);
    watching.watch("new");
    return watching;
  };

  test("is left when a create stays unanswered on one of them, and nothing comes on the others", () => {
    const watching = unanswered();

    watching.clock.advance(PATIENCE_MS - 1);
    expect(watching.streams[0]?.closed).toBe(false);
    watching.clock.advance(1);

    expect(watching.streams.map(({ closed }) => closed)).toEqual([true, true]);
  });

  test("is alive while it answers on the others, however late it is on one", () => {
    const watching = unanswered();

    for (let n = 0; n < 5; n++) {
      watching.clock.advance(PATIENCE_MS - 1);
      watching.streams[0]?.answer({});
    }
    expect(watching.told).toEqual([]);
    watching.streams[1]?.created("new", 101n);

    expect(watching.told).toEqual(["new created"]);
    watching.clock.advance(100 * PATIENCE_MS);
    expect(watching.streams[0]?.closed).toBe(false);
  });

  test("is left in the end when one of them stays silent for ever", () => {
    const watching = unanswered();

    for (let n = 0; n < 20; n++) {
      watching.clock.advance(PATIENCE_MS - 1);
      watching.streams[0]?.answer({});
    }

    expect(watching.streams.map(({ closed }) => closed)).toEqual([true, true]);
    expect(watching.told).toContain("new moved");
  });

  async function suspected(count: number) {
    const watching = new Watching();
    const watches = watching.watchAll(count);
    const call = watching.cluster.client.range({ key: "x" }, { what: "test", giveUpMs: 3000 });
    call.catch(() => undefined);
    await settle();
    return { watching, watches };
  }

  test("is probed on each of them that watches something", async () => {
    const { watching, watches } = await suspected(2 * ROOM + 1);
    watches.at(-1)?.cancel();

    await watching.clock.pass(2001);

    expect(watching.streams.map(({ probes }) => probes)).toEqual([1, 1, 0]);
    expect(watching.streams.map(({ closed }) => closed)).toEqual([false, false, true]);
  });

  // etcd 3.5 and later does so while a watch of the stream starts from the past.
  test("may swallow one probe: a second one follows before it is left", async () => {
    const { watching } = await suspected(1);

    await watching.clock.pass(2000 + PATIENCE_MS - 1);
    expect(watching.streams[0]?.probes).toBe(2);
    watching.streams[0]?.answer({});
    await watching.clock.pass(10 * PATIENCE_MS);

    expect(watching.streams[0]?.closed).toBe(false);
  });

  test.each([
    ["counts when all of them are at the member that answered", "a", 1],
    ["does not count when they are at different members behind one address", "z", undefined],
  ])("has a read beside the watches, which %s", async (_, memberId, kvs) => {
    const watching = new Watching();
    watching.watchAll(ROOM);
    watching.watch("new");
    const { watchId } = watching.streams[1]!.creates[0]!;
    watching.streams[1]?.answer({ header: { ...HEADER, memberId }, watchId, created: true });

    const outcome = watching.hub.read([{ key: "k0" }], 1000);
    await settle();
    watching.cluster.member.of("range")[0]?.answer({
      header: { ...HEADER, memberId: "a" },
      kvs: [keyValue({ key: "k0" })],
      more: false,
      count: 1,
    });

    expect((await outcome)?.ranges[0]?.kvs.length).toBe(kvs);
  });
});
