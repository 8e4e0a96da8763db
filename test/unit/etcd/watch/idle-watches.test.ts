import { describe, expect, test } from "vitest";
import type { Watch } from "../../../../src/etcd/watch-hub.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";
import type { FakeWatch } from "../../../support/fakes/fake-member.js";

/** At this revision etcd creates the watches. */
const CREATED = 60n;
/** How long a watch is kept for its next owner. */
const KEPT_MS = 5000;

const NO_LISTENER = { created: () => {}, events: () => {}, interrupted: () => {}, refused: () => {} };

class Watching {
  readonly cluster = new FakeCluster();
  readonly told: string[] = [];

  get stream(): FakeWatch {
    return this.cluster.connected.flatMap(({ watches }) => watches).at(-1)!;
  }

  get created(): string[] {
    return this.stream.creates.map(({ key }) => key.toString("latin1"));
  }

  watch(key: string | Buffer, reuseFrom?: bigint): Watch {
    const listener = {
      created: () => void this.told.push("created"),
      events: () => void this.told.push("deleted"),
      interrupted: () => void this.told.push("moved"),
      refused: () => void this.told.push("refused"),
    };
    const watch = this.cluster.services.watches.watch(
      { key, events: "DELETE", ...(reuseFrom !== undefined && { reuseFrom }) },
      listener,
    );
    this.cluster.clock.advance(0);
    return watch;
  }

  /** A created watch without an owner. */
  parked(key: string): Watch {
    const watch = this.watch(key);
    this.stream.created(key, CREATED);
    watch.keepForReuse();
    this.told.length = 0;
    return watch;
  }
}

describe("a watch that nobody needs at the moment", () => {
  test("is reused by the next waiter for the same key, without a request", () => {
    const watching = new Watching();
    const parked = watching.parked("a");

    const next = watching.watch("a", CREATED + 1n);
    watching.stream.deleted("a", 70n);

    expect(next).toBe(parked);
    expect(next.createdAt).toBe(CREATED);
    expect(watching.created).toEqual(["a"]);
    expect(watching.told).toEqual(["deleted"]);
  });

  test("shows its next owner the last event that it told meanwhile", () => {
    const watching = new Watching();
    watching.parked("a");

    watching.stream.deleted("a", 70n);

    expect(watching.watch("a", CREATED + 1n).lastEvent).toBe(70n);
    expect(watching.told).toEqual([]);
  });

  test("is not reused by a waiter that needs events from before its creation", () => {
    const watching = new Watching();
    watching.parked("a");

    watching.watch("a", CREATED);

    expect(watching.created).toEqual(["a", "a"]);
  });

  test("is reused only by a waiter that asks for it, and only for its own key", () => {
    const watching = new Watching();
    watching.parked("\ufffd");

    watching.watch("\ufffd");
    // Different bytes that are not valid UTF-8 decode to the same text.
    watching.watch(Buffer.from([0xff]), CREATED + 1n);

    expect(watching.stream.creates).toHaveLength(3);
  });

  test("serves one owner at a time", () => {
    const watching = new Watching();
    watching.parked("a");

    watching.watch("a", CREATED + 1n);
    watching.watch("a", CREATED + 1n);

    expect(watching.created).toEqual(["a", "a"]);
  });

  test("is cancelled when nobody came for it in time", () => {
    const watching = new Watching();
    const first = watching.parked("a");
    watching.cluster.clock.advance(KEPT_MS - 1000);
    const second = watching.parked("b");

    watching.cluster.clock.advance(1000);
    expect(watching.stream.cancels).toEqual([first.id]);
    watching.cluster.clock.advance(KEPT_MS - 1000);
    expect(watching.stream.cancels).toEqual([first.id, second.id]);
  });

  test("is cancelled at the second event of its key", () => {
    const watching = new Watching();
    const parked = watching.parked("a");

    watching.stream.deleted("a", 70n);
    expect(watching.stream.cancels).toEqual([]);
    watching.stream.deleted("a", 80n);

    expect(watching.stream.cancels).toEqual([parked.id]);
  });

  test("gives way to newer ones when there are 256", () => {
    const watching = new Watching();
    const [oldest] = Array.from({ length: 257 }, (_, n) => watching.parked(`k${n}`));

    expect(watching.stream.cancels).toEqual([oldest?.id]);
  });

  test("does not survive its stream, and is not made anew", () => {
    const watching = new Watching();
    watching.parked("a");

    watching.stream.end();
    watching.watch("b");
    watching.cluster.clock.advance(1000);
    watching.watch("a", CREATED + 1n);

    expect(watching.created).toEqual(["b", "a"]);
    expect(watching.told).toEqual([]);
  });

  test("is not reused by an owner that learns of the end of the stream first", () => {
    const watching = new Watching();
    const hub = watching.cluster.services.watches;
    const again = { created: () => {}, events: () => {}, interrupted: () => {}, refused: () => {} };
    const first = hub.watch(
      { key: "first", events: "DELETE" },
      {
        ...again,
        interrupted: () => hub.watch({ key: "a", events: "DELETE", reuseFrom: CREATED + 1n }, again),
      },
    );
    watching.cluster.clock.advance(0);
    watching.stream.created("first", CREATED);
    expect(watching.parked("a").createdAt).toBe(CREATED);
    expect(first.over).toBe(false);

    watching.stream.end();
    watching.cluster.clock.advance(1000);

    expect(watching.created).toEqual(["a"]);
  });

  test("is cancelled at once if etcd has not created it yet", () => {
    const watching = new Watching();
    const watch = watching.watch("a");

    watch.keepForReuse();

    expect(watching.stream.cancels).toEqual([watch.id]);
  });

  test("is cancelled if it reported puts, too", () => {
    const watching = new Watching();
    const { watches } = watching.cluster.services;
    const made = (["PUT", "ALL"] as const).flatMap((events) => [
      watches.watch({ key: "a", events }, NO_LISTENER),
      watches.watch({ key: "a", end: "b", events }, NO_LISTENER),
    ]);
    watching.cluster.clock.advance(0);
    for (const { watchId } of watching.stream.creates) watching.stream.answer({ watchId, created: true });

    for (const watch of made) watch.keepForReuse();

    expect(watching.stream.cancels).toEqual(made.map(({ id }) => id));
  });

  test("serves the sessions that go on when another one ends, and keeps no stream open after the last one", () => {
    const watching = new Watching();
    const [first, last] = [watching.cluster.lease(), watching.cluster.lease()];
    const parked = watching.parked("a");

    first.abandon();
    const next = watching.watch("a", CREATED + 1n);
    expect(next).toBe(parked);

    next.keepForReuse();
    last.abandon();
    expect(watching.stream.closed).toBe(true);
  });

  test("is cancelled with the last live session, while a session that has ended still revokes its lease", async () => {
    const watching = new Watching();
    const [closing, last] = [watching.cluster.lease(), watching.cluster.lease()];
    watching.parked("a");

    void closing.close(0);
    await settle();
    expect(watching.cluster.services.leases).toContain(closing);
    last.abandon();

    expect(watching.stream.closed).toBe(true);
  });
});

describe("a watch on a range that nobody needs at the moment", () => {
  const range = (key: string | Buffer, end: string, events: "DELETE" | "PUT" = "DELETE") => ({
    ...{ key, end, events },
    reuseFrom: CREATED + 1n,
  });

  function parked(): { watching: Watching; idle: Watch } {
    const watching = new Watching();
    const idle = watching.cluster.services.watches.watch(range("a", "m"), NO_LISTENER);
    watching.cluster.clock.advance(0);
    watching.stream.created("a", CREATED);
    idle.keepForReuse();
    return { watching, idle };
  }

  test("serves who watches the same range next", () => {
    const { watching, idle } = parked();

    const next = watching.cluster.services.watches.watch(range(Buffer.from("a"), "m"), NO_LISTENER);

    expect(next).toBe(idle);
    expect(watching.stream.creates).toHaveLength(1);
  });

  test.each([
    ["its first key", { ...range("a", "m"), end: undefined }],
    ["a part of it", range("a", "l")],
    ["the range of the same letters", range("am", "")],
    ["its puts", range("a", "m", "PUT")],
  ])("does not serve who watches %s", (_, target) => {
    const { watching } = parked();

    watching.cluster.services.watches.watch(target, NO_LISTENER);

    expect(watching.stream.creates).toHaveLength(2);
  });

  test("is cancelled at the third event: one is of its owner's key, and one of another's", () => {
    const { watching, idle } = parked();

    watching.stream.deleted("b", 70n);
    watching.stream.deleted("c", 71n);
    expect(watching.stream.cancels).toEqual([]);
    watching.stream.deleted("d", 72n);

    expect(watching.stream.cancels).toEqual([idle.id]);
  });

  test("counts each event of one answer, and shows the last of them", () => {
    const { watching, idle } = parked();

    watching.stream.deleted(["b", "c"], 70n);
    expect(idle.lastEvent).toBe(70n);
    watching.stream.deleted("d", 71n);

    expect(watching.stream.cancels).toEqual([idle.id]);
  });
});
