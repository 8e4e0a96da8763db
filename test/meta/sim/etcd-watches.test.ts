// When the simulated etcd's watches tell their events. What they say is compared with a real etcd in test/meta/fidelity.
import { describe, expect, it } from "vitest";
import type { WatchAnswer, WatchRequest } from "../../../src/etcd/port.js";
import type { SimEtcdOptions } from "../../../src/testing/memory/etcd.js";
import { type SimVersion, isRefusal } from "../../../src/testing/memory/protocol.js";
import { del, put, setUp } from "./etcd-setup.js";

function withStream(version: SimVersion = "3.6", seed = 1, options?: Partial<SimEtcdOptions>) {
  const setup = setUp(version, seed, options);
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

describe("a watch from a past revision", () => {
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
});

describe("after a compaction", () => {
  it("a watch gets the changes from its revision on, and the store keeps no others", () => {
    const { etcd, watch, arrived, eventsOf, run, scheduler } = withStream();
    for (let i = 0; i < 10; i++) run(put(`k${i}`));
    expect(etcd.store.compact(8n)).toBe(undefined);
    expect(etcd.store.since(0n).map(({ revision }) => revision)).toEqual([8n, 9n, 10n, 11n]);
    expect([etcd.store.weight, etcd.store.revisionBefore(2)]).toEqual([4, 10n]);

    watch({ key: "k", end: "l", startRevision: 9n });
    scheduler.advance(100);
    expect(eventsOf(arrived())).toEqual(["1 PUT k7", "1 PUT k8", "1 PUT k9"]);
  });

  it("a store that keeps so many changes compacts those before them, and counts long values", () => {
    const { etcd, run, scheduler } = setUp("3.6", 1, { keptChanges: 10 });
    for (let i = 0; i < 100; i++) {
      run(put("k"));
      scheduler.advance(1);
      expect(etcd.store.weight).toBeLessThan(13);
    }
    expect(etcd.store.compacted).toBeGreaterThan(80n);
    for (let i = 0; i < 3; i++) run(put("k", "x".repeat(40_000)));
    scheduler.advance(1);
    expect(etcd.store.since(0n).length).toBe(1);
  });
});

describe("a write at the moment of a creation", () => {
  /** How long the event of a write takes that came right behind the request for a watch, for 200 seeds. */
  const delays = (version: SimVersion, options?: Partial<SimEtcdOptions>): Set<string> => {
    const found = new Set<string>();
    for (let seed = 0; seed < 200; seed++) {
      const { stream, arrived, run, scheduler } = withStream(version, seed, options);
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

  it("hardly ever comes in between, so that another etcd than that of the simulation can leave it out", () => {
    for (const version of ["3.5", "3.6"] as const)
      expect(delays(version, { race: 0 })).toEqual(new Set(["created at 1, at once"]));
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
