import { describe, expect, test } from "vitest";
import { EtcdRefusedError } from "../../../../src/errors.js";
import type { KeyValue } from "../../../../src/etcd/port.js";
import { Observation } from "../../../../src/recipes/election/leader.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

/** A candidate's key, put in its first or in a later revision. */
const put = (n: number, modRevision: bigint, createRevision = modRevision): KeyValue =>
  keyValue({ key: `jobs/${n}`, value: `v${modRevision}`, createRevision, modRevision });
const gone = (n: number, modRevision: bigint): KeyValue =>
  keyValue({ key: `jobs/${n}`, createRevision: 0n, modRevision });

/** The first read is sent; the test decides what etcd answers and which events it sends. */
function observing() {
  const cluster = new FakeCluster();
  const iterator = new Observation(cluster.services, "jobs", undefined);
  const first = iterator.next();
  first.catch(() => {});

  const answered = async (kvs: readonly KeyValue[], revision = 100n) => {
    await settle();
    const read = cluster.member.of("range").at(-1)!;
    read.answer({ header: { ...HEADER, revision }, kvs, more: false, count: kvs.length });
    await settle();
    cluster.clock.advance(0);
  };
  const stream = () => cluster.member.watches.at(-1)!;
  /** All in one answer, as etcd sends the events of one revision. */
  const told = async (...kvs: readonly KeyValue[]) => {
    const { watchId } = stream().creates.at(-1)!;
    const events = kvs.map((kv) => ({ kind: kv.createRevision === 0n ? "DELETE" : "PUT", kv }) as const);
    stream().answer({ watchId, events }, kvs.at(-1)!.modRevision);
    await settle();
  };
  const value = async () => {
    const next = await iterator.next();
    return next.done ? "done" : next.value?.value;
  };
  return { cluster, iterator, first, answered, stream, told, value };
}

describe("an observer", () => {
  test("reads the candidates, and watches all that comes after that read", async () => {
    const { first, answered, stream } = observing();

    await answered([put(1, 50n), put(2, 60n)], 77n);

    expect(await first).toMatchObject({ done: false, value: { key: "jobs/1", value: "v50", fence: 50n } });
    expect(stream().creates).toMatchObject([
      { key: "jobs/", end: "jobs0", startRevision: 78n, events: "ALL" },
    ]);
  });

  test("takes all events of one revision together: no vacancy where a leader and its successor change in one", async () => {
    const { first, answered, told, value } = observing();
    await answered([put(1, 50n)]);
    await first;

    await told(gone(1, 101n), put(2, 101n));

    expect(await value()).toBe("v101");
  });

  test("tells each revision of an answer that has several", async () => {
    const { first, answered, told, value } = observing();
    await answered([]);
    expect(await first).toEqual({ done: false, value: undefined });

    await told(put(1, 101n), put(1, 102n, 101n), gone(1, 103n), put(1, 104n), put(2, 105n));

    expect([await value(), await value(), await value(), await value()]).toEqual([
      "v101",
      "v102",
      undefined,
      "v104",
    ]);
  });

  test("knows the order of those who wait, also where one came again under the same key", async () => {
    const { first, answered, told, value } = observing();
    await answered([put(1, 50n), put(2, 60n), put(3, 70n)]);
    await first;

    await told(gone(2, 101n), put(2, 102n), put(3, 103n, 70n), gone(1, 104n));
    expect(await value()).toBe("v103");
    await told(gone(3, 105n));

    expect(await value()).toBe("v102");
  });

  test("that is not read keeps the last 1000 changes, and tells nothing twice", async () => {
    const { first, answered, told, value, iterator } = observing();
    await answered([]);
    await first;

    // A leader and a vacancy alternate; an odd number of items is dropped.
    const events = Array.from({ length: 751 }, (_, n) => [
      put(1, BigInt(101 + 2 * n)),
      gone(1, BigInt(102 + 2 * n)),
    ]);
    await told(...events.flat());
    await told(put(1, 2000n));

    const seen: (string | undefined)[] = [];
    for (let last: string | undefined; last !== "v2000"; seen.push((last = await value())));
    // The oldest item left is a vacancy, which was delivered before.
    expect(seen).toHaveLength(999);
    expect(seen.every((each, i) => each !== seen[i - 1])).toBe(true);
    expect(await Promise.race([iterator.next(), settle()])).toBeUndefined();
  });

  test("watches from where its watch broke, and reads nothing", async () => {
    const { cluster, first, answered, stream, told, value } = observing();
    await answered([put(1, 50n)]);
    await first;
    await told(put(1, 101n, 50n), put(2, 105n));

    stream().end();
    await cluster.clock.pass(100);

    expect(stream().creates).toMatchObject([{ key: "jobs/", end: "jobs0", startRevision: 106n }]);
    expect(cluster.connected.flatMap((member) => member.of("range"))).toHaveLength(1);
    await told(gone(1, 106n));
    expect([await value(), await value()]).toEqual(["v101", "v105"]);
  });

  test("gets each revision once and as a whole, although the watch breaks after it", async () => {
    const { cluster, first, answered, stream, told, value, iterator } = observing();
    await answered([put(1, 50n)]);
    await first;

    await told(gone(1, 101n), put(2, 101n));
    stream().end();
    await cluster.clock.pass(100);
    expect(stream().creates.at(-1)!.startRevision).toBe(102n);
    await told(gone(1, 101n), put(2, 101n));

    expect(await value()).toBe("v101");
    expect(await Promise.race([iterator.next(), settle()])).toBeUndefined();
  });

  test("reads again when etcd has compacted what it missed, and reports only what is new", async () => {
    const { first, answered, stream, iterator } = observing();
    await answered([put(1, 50n)]);
    await first;
    const compacted = () => {
      const { watchId } = stream().creates.at(-1)!;
      stream().answer({ watchId, cancelled: true, compacted: true }, 0n);
    };

    compacted();
    await answered([put(1, 50n)], 200n);
    const next = iterator.next();
    compacted();
    await answered([put(1, 210n, 50n)], 300n);

    expect(await next).toMatchObject({ value: { value: "v210", fence: 50n } });
    expect(stream().creates.at(-1)!.startRevision).toBe(301n);
  });

  test("rejects when etcd refuses the read, and sends nothing more", async () => {
    const { cluster, first, iterator } = observing();
    await settle();

    cluster.member.of("range")[0]!.fail(new EtcdRefusedError("permission", "a:1", "permission denied"));

    await expect(first).rejects.toMatchObject({ code: "ETCD_REFUSED" });
    expect(await iterator.next()).toEqual({ done: true, value: undefined });
    expect(cluster.member.of("range")).toHaveLength(1);
  });

  test("rejects in its next call when etcd refuses the watch", async () => {
    const { first, answered, stream, iterator } = observing();
    await answered([]);
    await first;

    stream().answer({ created: true, cancelled: true, cancelReason: "permission denied" });

    await expect(iterator.next()).rejects.toMatchObject({ code: "ETCD_REFUSED" });
    expect(await iterator.next()).toEqual({ done: true, value: undefined });
  });

  test("that has ended leaves no watch, no timer, and no listener on the signal", async () => {
    const cluster = new FakeCluster();
    const caller = new AbortController();
    const iterator = new Observation(cluster.services, "jobs", caller.signal);
    const first = iterator.next();
    await settle();
    cluster.member.of("range")[0]!.answer({ header: HEADER, kvs: [], more: false, count: 0 });
    await first;
    cluster.clock.advance(0);
    const [stream] = cluster.member.watches;

    await iterator.return();

    expect(stream!.closed || stream!.cancels.length === 1).toBe(true);
    expect(cluster.clock.timers).toBe(0);
  });

  test("asks nothing before the first next()", async () => {
    const cluster = new FakeCluster();
    const iterator = new Observation(cluster.services, "jobs", undefined);

    await settle();
    expect(await iterator.return()).toEqual({ done: true, value: undefined });

    expect(cluster.connected).toEqual([]);
    expect(await iterator.next()).toEqual({ done: true, value: undefined });
  });
});

describe("beside its watch an observer reads slowly", () => {
  /** It watches a leader that came at revision 50. */
  const watching = async () => {
    const observer = observing();
    await observer.answered([put(1, 50n)]);
    await observer.first;
    observer.stream().created("jobs/", 100n);
    const reads = () => observer.cluster.connected.flatMap((member) => member.of("range"));
    /** At random 0, after three quarters of 30 s. */
    const pass = (ms: number) => observer.cluster.clock.pass(ms);
    const broken = async () => {
      observer.stream().end();
      await pass(100);
      return observer.stream().creates.at(-1)!.startRevision;
    };
    const nothing = async () =>
      (await Promise.race([observer.iterator.next(), settle()])) === undefined ? "nothing" : "something";
    return { ...observer, reads, pass, broken, nothing };
  };

  test("every 30 s while it is watched, and the next watch starts after what was read", async () => {
    const { answered, reads, pass, broken, nothing } = await watching();

    await pass(22_500);
    expect(reads()).toHaveLength(2);
    await answered([put(1, 50n)], 500n);
    await pass(10_000);
    await pass(22_500);
    expect(reads()).toHaveLength(3);

    expect(await broken()).toBe(501n);
    expect(await nothing()).toBe("nothing");
  });

  test("and not while there is no watch", async () => {
    const { reads, broken, pass } = await watching();

    await broken();
    await pass(1000);

    expect(reads()).toHaveLength(1);
  });

  test("and the watch reports each event that the read has overtaken", async () => {
    const { answered, pass, told, value, broken, reads } = await watching();

    await pass(22_500);
    await answered([put(2, 103n)], 103n);
    await told(put(1, 101n, 50n));
    await told(gone(1, 102n));
    await told(put(2, 103n));
    await pass(10_000);

    expect([await value(), await value(), await value()]).toEqual(["v101", undefined, "v103"]);
    expect(await broken()).toBe(104n);
    expect(reads()).toHaveLength(2);
  });

  test("and starts anew from another read when an event before it never comes", async () => {
    const { answered, pass, value, stream } = await watching();

    await pass(22_500);
    await answered([put(2, 110n)], 120n);
    await pass(9_000);
    expect(stream().creates).toHaveLength(1);
    await pass(1_000);
    await answered([put(2, 110n)], 121n);

    expect(await value()).toBe("v110");
    expect(stream().creates.at(-1)!.startRevision).toBe(122n);
    expect(stream().cancels).toHaveLength(1);
  });

  test("and starts anew as soon as a newer event shows that one before the read was left out", async () => {
    const { answered, pass, told, value, stream } = await watching();

    await pass(22_500);
    await answered([put(2, 110n)], 120n);
    await told(put(2, 125n, 110n));
    await answered([put(2, 125n, 110n)], 125n);

    expect(await value()).toBe("v125");
    await pass(0);
    expect(stream().creates.at(-1)!.startRevision).toBe(126n);
    await told(put(2, 130n, 110n));
    expect(await value()).toBe("v130");
  });

  test("and goes by the watch alone when etcd refuses the read, or the stream ends during it", async () => {
    const { pass, told, value, broken, reads, stream } = await watching();

    await pass(22_500);
    reads()[1]!.fail(new EtcdRefusedError("permission", "a:1", "permission denied"));
    await told(put(1, 101n, 50n));
    expect(await value()).toBe("v101");
    await pass(22_500);
    const read = reads()[2]!;
    expect(await broken()).toBe(102n);
    stream().created("jobs/", 200n);
    read.answer({ header: { ...HEADER, revision: 200n }, kvs: [], more: false, count: 0 });
    await pass(15_000);
    await told(put(1, 110n, 50n));

    expect(await value()).toBe("v110");
  });

  test("at once when a member is behind what was told: nothing is new where it only lags", async () => {
    const { answered, broken, stream, pass, nothing, told, value } = await watching();
    await told(put(1, 150n, 50n));
    expect(await value()).toBe("v150");

    expect(await broken()).toBe(151n);
    stream().created("jobs/", 120n);
    await answered([put(1, 150n, 50n)], 150n);
    await pass(10_000);

    expect(await nothing()).toBe("nothing");
    expect(await broken()).toBe(151n);
  });

  test("at once when a member is behind what was told, and tells what a restored etcd has", async () => {
    const { answered, broken, stream, told, value } = await watching();
    await told(put(1, 150n, 50n), gone(1, 160n), put(2, 170n));
    expect([await value(), await value(), await value()]).toEqual(["v150", undefined, "v170"]);

    expect(await broken()).toBe(171n);
    stream().created("jobs/", 110n);
    await answered([put(1, 105n, 50n)], 110n);
    await answered([put(1, 105n, 50n)], 110n);

    expect(await value()).toBe("v105");
    expect(stream().creates.at(-1)!.startRevision).toBe(111n);
  });
});
