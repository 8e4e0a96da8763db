// The simulated etcd's watches.
import { describe, expect, it } from "vitest";
import type { WatchAnswer, WatchRequest } from "../../../src/etcd/port.js";
import { isRefusal } from "../../sim/etcd/refusals.js";
import type { SimVersion } from "../../sim/etcd/types.js";
import { del, put, setUp } from "./etcd-setup.js";

function withStream(version: SimVersion = "3.6", seed = 1) {
  const setup = setUp(version, seed);
  const { scheduler, member } = setup;
  const answers: WatchAnswer[] = [];
  const stream = member.watch((answer) => {
    if (!isRefusal(answer)) answers.push(answer);
  });
  /** Sends a request for a watch, and lets what is not late arrive. */
  const watch = (request: Partial<WatchRequest> = {}): void => {
    stream.send({ create: { watchId: 1, key: "a", startRevision: 0n, events: "ALL", ...request } });
    scheduler.advance(1);
  };
  /** What arrived since the last call. */
  const arrived = (): WatchAnswer[] => {
    scheduler.advance(1);
    return answers.splice(0);
  };
  const eventsOf = (all: readonly WatchAnswer[]): string[] =>
    all.flatMap(({ watchId, events }) =>
      events.map(({ kind, kv }) => `${watchId} ${kind} ${String(kv.key)}`),
    );
  return { ...setup, stream, watch, arrived, eventsOf };
}

describe("a watch from now on", () => {
  it("is created with the present revision, and gets each change at once, with the key's state", () => {
    const { watch, arrived, run } = withStream();
    run(put("x"));
    watch();
    expect(arrived()).toMatchObject([
      { watchId: 1, created: true, cancelled: false, header: { revision: 2n }, events: [] },
    ]);

    run(put("a", "1"));
    run(del("a"));

    expect(arrived()).toMatchObject([
      { header: { revision: 3n }, events: [{ kind: "PUT", kv: { value: "1", createRevision: 3n } }] },
      { header: { revision: 4n }, events: [{ kind: "DELETE", kv: { modRevision: 4n, createRevision: 0n } }] },
    ]);
  });

  it.each(["PUT", "DELETE"] as const)("gets %s events only, if those are asked for", (events) => {
    const { watch, arrived, run, eventsOf } = withStream();
    watch({ events });
    arrived();

    run(put("a"));
    run(del("a"));

    const answers = arrived();
    expect(answers).toHaveLength(1);
    expect(eventsOf(answers)).toEqual([`1 ${events} a`]);
  });

  it("gets nothing after it was cancelled, or after its stream was closed", () => {
    const { watch, arrived, run, stream } = withStream();
    watch();
    watch({ watchId: 2 });
    arrived();
    stream.send({ cancel: 1 });
    stream.send({ cancel: 9 });
    expect(arrived()).toMatchObject([{ watchId: 1, cancelled: true, cancelReason: "" }]);

    run(put("a"));
    expect(arrived().map(({ watchId }) => watchId)).toEqual([2]);
    run(put("a"));
    stream.close();
    expect(arrived()).toEqual([]);
  });
});

describe("a watch from a past revision", () => {
  it("is served within 100 ms, with all events in one answer, and the present revision", () => {
    const { watch, arrived, run, scheduler, eventsOf } = withStream();
    run(put("a"));
    run(put("b"));
    run(del("a"));
    run(put("c"));
    watch({ startRevision: 2n });
    expect(arrived()).toMatchObject([{ created: true, header: { revision: 5n } }]);
    run(put("a"));
    expect(eventsOf(arrived())).toEqual([]);

    scheduler.advance(100);

    const answers = arrived();
    expect(answers).toMatchObject([{ header: { revision: 6n } }]);
    expect(eventsOf(answers)).toEqual(["1 PUT a", "1 DELETE a", "1 PUT a"]);
    run(del("a"));
    expect(eventsOf(arrived())).toEqual(["1 DELETE a"]);
  });

  it("gets the events of 1,000 revisions at a time", () => {
    const { watch, arrived, run, scheduler } = withStream();
    for (let i = 0; i < 1_001; i++) run(put("a"));
    watch({ startRevision: 2n });
    arrived();

    scheduler.advance(100);
    expect(arrived().map(({ events }) => events.length)).toEqual([1_000]);
    scheduler.advance(100);
    expect(arrived().map(({ events }) => events.length)).toEqual([1]);
  });

  it("is cancelled if that is compacted, and keeps its ID until the client cancels it", () => {
    const { watch, arrived, run, ask, scheduler, stream } = withStream();
    run(put("a"));
    run(put("a"));
    ask({ kind: "compact", revision: 3n });
    watch({ startRevision: 2n });
    expect(arrived()).toMatchObject([{ created: true, cancelled: false }]);

    scheduler.advance(100);
    expect(arrived()).toMatchObject([
      { watchId: 1, cancelled: true, compacted: true, cancelReason: "", header: { revision: 0n } },
    ]);
    watch();
    expect(arrived()).toMatchObject([{ watchId: -1, cancelled: true }]);
    stream.send({ cancel: 1 });
    watch();
    expect(arrived()).toMatchObject([
      { watchId: 1, cancelled: true },
      { watchId: 1, created: true },
    ]);
  });

  it.each([
    ["3.4", []],
    ["3.5", ["1 DELETE a"]],
  ] as const)(
    "that is the compacted one gets its deletion in 3.5, but not in 3.4 (%s)",
    (version, expected) => {
      const { watch, arrived, run, ask, scheduler, eventsOf } = withStream(version);
      run(put("a"));
      run(del("a"));
      ask({ kind: "compact", revision: 3n });

      watch({ startRevision: 3n });
      scheduler.advance(100);

      expect(eventsOf(arrived())).toEqual(expected);
    },
  );
});

describe("a watch that cannot be created", () => {
  it("has an ID that exists, or an empty range", () => {
    const { watch, arrived } = withStream();
    watch();
    arrived();

    watch();
    watch({ watchId: 2, key: "b", end: "b" });

    expect(arrived()).toMatchObject([
      {
        ...{ watchId: -1, created: true, cancelled: true },
        cancelReason: "mvcc: duplicate watch ID provided on the WatchStream",
      },
      { watchId: -1, created: true, cancelled: true, cancelReason: "mvcc: watcher range is empty" },
    ]);
  });
});

describe("a progress request", () => {
  const probed = (version: SimVersion, prepare: (given: ReturnType<typeof withStream>) => void) => {
    const given = withStream(version);
    given.run(put("a"));
    prepare(given);
    given.arrived();
    given.stream.send({ probe: true });
    return given.arrived();
  };
  const ANSWER = { watchId: -1, created: false, cancelled: false, events: [], header: { revision: 2n } };

  it("is answered if all watches of the stream are synced", () => {
    expect(probed("3.6", ({ watch }) => watch())).toMatchObject([ANSWER]);
    expect(probed("3.6", ({ watch }) => watch({ startRevision: 1n }))).toEqual([]);
    expect(probed("3.6", () => undefined)).toEqual([]);
  });

  it("is not answered by 3.6 before a watch's revision has come, but by 3.5", () => {
    const future = { startRevision: 9n };

    expect(probed("3.6", ({ watch }) => watch(future))).toEqual([]);
    expect(probed("3.5", ({ watch }) => watch(future))).toMatchObject([ANSWER]);
  });

  it("is always answered by 3.4", () => {
    expect(probed("3.4", ({ watch }) => watch({ startRevision: 1n }))).toMatchObject([ANSWER]);
    expect(probed("3.4", () => undefined)).toMatchObject([ANSWER]);
  });
});

describe("a write at the moment of a creation", () => {
  /** How long the event of a write takes that came right behind the request for a watch, for 200 seeds. */
  const delays = (version: SimVersion): Set<string> => {
    const found = new Set<string>();
    for (let seed = 0; seed < 200; seed++) {
      const { stream, arrived, run, scheduler } = withStream(version, seed);
      stream.send({ create: { watchId: 1, key: "a", startRevision: 0n, events: "ALL" } });
      run(put("a"));
      const [created, event] = arrived();
      scheduler.advance(100);
      const when = event ? "at once" : arrived().length > 0 ? "late" : "never";
      found.add(`created at ${created?.header.revision}, ${when}`);
    }
    return found;
  };

  it("can make the watch a late one in 3.5, and its creation a later one in 3.6, but is never lost", () => {
    expect(delays("3.5")).toEqual(new Set(["created at 1, at once", "created at 1, late"]));
    expect(delays("3.6")).toEqual(new Set(["created at 1, at once", "created at 2, at once"]));
  });
});

describe("a full buffer", () => {
  it("delays the events of single watches, and loses none", () => {
    const { stream, arrived, run, scheduler, eventsOf } = withStream();
    for (let watchId = 1; watchId <= 300; watchId++)
      stream.send({ create: { watchId, key: "a", startRevision: 0n, events: "ALL" } });
    scheduler.advance(100);
    expect(arrived()).toHaveLength(300);

    run(put("a"));
    run(del("a"));
    scheduler.advance(200);

    const events = eventsOf(arrived());
    expect(events).toHaveLength(600);
    for (let id = 1; id <= 300; id++) {
      const own = events.filter((event) => event.startsWith(`${id} `));
      expect(own).toEqual([`${id} PUT a`, `${id} DELETE a`]);
    }
  });

  it("lets the events of several watches come in another order than their requests", () => {
    const { watch, arrived, run } = withStream();
    const ids = Array.from({ length: 10 }, (_, i) => i + 1);
    for (const watchId of ids) watch({ watchId });
    arrived();

    run(put("a"));

    const order = arrived().map(({ watchId }) => watchId);
    expect(order).not.toEqual(ids);
    expect(order.toSorted((a, b) => a - b)).toEqual(ids);
  });
});
