import { describe, expect, test } from "vitest";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import type { SessionEntries } from "../../../../src/lock/queue/session-entries.js";
import type { QueueEntry } from "../../../../src/lock/queue/entry.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";

const own = () => LockTable.of(new FakeCluster().lease()).queue("jobs").own;

function joined(places: SessionEntries, revision: bigint): QueueEntry {
  const entry = places.make().confirmed(revision);
  places.add(entry);
  return entry;
}

describe("the keys of a session's places under one name", () => {
  test("are Go's own for the first one, and numbered from 2 for those beside it", () => {
    const places = own();

    expect([places.make(), places.make(), places.make()].map(({ key }) => key)).toEqual([
      "jobs/77",
      "jobs/77-2",
      "jobs/77-3",
    ]);
  });

  test("are used again once they are given back, before new ones", () => {
    const places = own();
    const [, second] = [places.make(), places.make(), places.make()];

    places.release(second);

    expect([places.make().n, places.make().n]).toEqual([2, 4]);
  });

  test("are never taken from a place that exists, is in doubt, or was adopted", () => {
    const places = own();
    const doubtful = places.make();
    doubtful.attemptUnanswered();
    places.release(doubtful);
    places.adopt({ path: "jobs", n: 3, key: Buffer.from("jobs/77-3"), value: "", revision: 9n });

    const numbers = Array.from({ length: 3 }, () => places.make().n);

    expect(numbers).toEqual([2, 4, 5]);
  });

  test("are freed once, however often their end is reported", () => {
    const places = own();
    const entry = joined(places, 5n);

    places.release(entry);
    places.release(entry);

    expect([places.make().n, places.make().n]).toEqual([1, 2]);
  });

  test("have left when they are no longer among the session's, whatever has ended them", () => {
    const places = own();
    const entry = joined(places, 5n);
    expect(entry.leaving).toBe(false);

    places.remove(entry);

    expect(entry.leaving).toBe(true);
  });

  test("are known to be gone by an answer without them, also while a hold has the key that may be taken again", () => {
    const places = own();
    const entries = [places.make(), places.make({ sticky: true })].map((entry, n) =>
      entry.confirmed(5n + BigInt(n)),
    );
    for (const entry of entries) {
      places.add(entry);
      entry.beginsToHold();
      entry.used();
    }

    places.shownBy([{ key: "jobs/", end: "jobs0" }], [{ kvs: [], more: false, count: 0 }], 9n);

    expect(entries.map(({ knownGone }) => knownGone)).toEqual([false, true]);
  });
});
