// A board on a fake etcd: what it reads, what it follows, and what it reports when.
import { describe, expect, test } from "vitest";
import { Board } from "../../../src/observe/board.js";
import { EtcdRefusedError } from "../../../src/errors.js";
import type { KeyValue, Range } from "../../../src/etcd/port.js";
import { settle } from "../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER } from "../../support/fakes/fake-connection.js";
import { keyValue } from "../../support/fakes/fake-member.js";

const put = (key: string, createRevision: bigint, more: Partial<Omit<KeyValue, "key">> = {}): KeyValue =>
  keyValue({ key, createRevision, modRevision: createRevision, leaseId: 7n, ...more });
const gone = (key: string, modRevision: bigint): KeyValue =>
  keyValue({ key, createRevision: 0n, modRevision });

function opening(prefix = "jobs/") {
  const cluster = new FakeCluster();
  const reports: string[] = [];
  const failures: Error[] = [];
  const board = new Board(cluster.services, prefix, {
    changed: (names, revision) => reports.push(`${revision}: ${[...names].sort().join(" ")}`),
    failed: (error) => failures.push(error),
  });
  /** The turn of the event loop ends. */
  const turn = async () => {
    await settle();
    // The fake clock runs what waits for events after a timer only.
    cluster.clock.after(0, () => {});
    await cluster.clock.pass(0);
  };
  const reads = () => cluster.connected.flatMap((member) => member.of("range"));
  const answered = async (kvs: readonly KeyValue[], revision = 100n, more = false) => {
    await settle();
    reads()
      .at(-1)!
      .answer({ header: { ...HEADER, revision }, kvs, more, count: kvs.length });
    await turn();
  };
  const stream = () => cluster.member.watches.at(-1)!;
  const send = (...kvs: readonly KeyValue[]) => {
    const { watchId } = stream().creates.at(-1)!;
    const events = kvs.map((kv) => ({ kind: kv.createRevision === 0n ? "DELETE" : "PUT", kv }) as const);
    stream().answer({ watchId, events }, kvs.at(-1)!.modRevision);
  };
  const told = async (...kvs: readonly KeyValue[]) => {
    send(...kvs);
    await turn();
  };
  const keysOf = (name: string) => {
    const { holders, waiters } = board.queue(name) ?? { holders: [], waiters: [] };
    return [holders, waiters].map((entries) => entries.map(({ key }) => key));
  };
  return { cluster, board, reports, failures, reads, answered, stream, send, told, turn, keysOf };
}

describe("a board", () => {
  test("reads the prefix in pages at one revision, and watches the same range from the next one on", async () => {
    const { reads, answered, stream, board, keysOf, reports } = opening();

    await answered([put("jobs/a/1f", 50n)], 77n, true);
    await answered([put("jobs/a/2f", 40n)], 78n);

    const [first, second] = reads().map(({ request }) => request as Range);
    expect([first!.key, first!.end].map(String)).toEqual(["jobs/", "jobs0"]);
    expect([String(second!.key), second!.revision]).toEqual(["jobs/a/1f\0", 77n]);
    expect(stream().creates).toMatchObject([{ startRevision: 78n, events: "ALL" }]);
    expect(String(stream().creates[0]!.end)).toBe("jobs0");
    expect(keysOf("jobs/a")).toEqual([["jobs/a/2f"], ["jobs/a/1f"]]);
    expect([board.revision, board.handOvers, reports]).toEqual([77n, 0, ["77: jobs/a"]]);
  });

  test("watches all names without a prefix by an end that every text is before", async () => {
    const { answered, stream, told, board } = opening("");
    await answered([]);

    await told(put("\u{10ffff}/1f", 101n));

    expect(stream().creates[0]).toMatchObject({ key: Buffer.of(0), end: Buffer.of(0xff) });
    expect([...board.names()]).toEqual(["\u{10ffff}"]);
  });

  test("reports the first picture even if it is empty, and what comes in one turn together", async () => {
    const { answered, send, turn, reports } = opening();
    await answered([]);
    expect(reports).toEqual(["100: "]);

    send(put("jobs/a/1f", 101n), put("jobs/b/1f", 102n));
    send(gone("jobs/a/1f", 103n));
    await turn();

    expect(reports).toEqual(["100: ", "103: jobs/a jobs/b"]);
  });

  test("counts grants by revision, and keeps the counts of a name that is free in between", async () => {
    const { answered, told, board } = opening();
    await answered([put("jobs/a/1f", 50n), put("jobs/a/2f", 60n)]);

    await told(gone("jobs/a/1f", 101n));
    await told(gone("jobs/a/2f", 102n), put("jobs/a/3f", 103n), gone("jobs/a/3f", 104n));
    expect(board.queue("jobs/a")).toBeUndefined();
    await told(put("jobs/a/4f", 105n));

    expect(board.queue("jobs/a")!.grants).toBe(3);
    expect(board.history("jobs/a").map(({ kind, revision }) => `${kind} ${revision}`)).toEqual([
      ...["released 101", "granted 101", "ended 102", "granted 103", "ended 104", "granted 105"],
    ]);
  });

  test("says when a hold began that it has seen, also after its key was modified", async () => {
    const { answered, told, board, cluster } = opening();
    await answered([put("jobs/a/1f", 50n)]);
    await told(put("jobs/b/1f", 101n));
    const at = cluster.clock.monotonic();
    await cluster.clock.pass(500);

    await told(put("jobs/b/1f", 101n, { modRevision: 102n, value: "proclaimed" }));

    const grantedAt = (name: string) => board.queue(name)!.grantedAt(board.queue(name)!.holders[0]!);
    expect(grantedAt("jobs/a")).toBeUndefined();
    expect(grantedAt("jobs/b")).toBe(at);
    expect(board.handOvers).toBe(1);
    await told(gone("jobs/b/1f", 103n));
    expect([...board.names()]).toEqual(["jobs/a"]);
  });

  test("counts a nested name in those above it, from when they have keys of their own", async () => {
    const { answered, told, keysOf, board } = opening();
    await answered([put("jobs/a/b/1f", 50n)]);
    expect([...board.names()]).toEqual(["jobs/a/b"]);

    await told(put("jobs/a/2f", 101n));
    expect(keysOf("jobs/a")).toEqual([["jobs/a/b/1f"], ["jobs/a/2f"]]);
    await told(gone("jobs/a/b/1f", 102n));
    expect(keysOf("jobs/a")).toEqual([["jobs/a/2f"], []]);
    await told(put("jobs/a/b/3f", 103n), gone("jobs/a/2f", 104n));

    expect([...board.names()]).toEqual(["jobs/a/b"]);
  });

  test("says of an end only what the keys of its lease show", async () => {
    const { answered, told, board } = opening();
    const keys = ["jobs/a/1f", "jobs/b/1f", "jobs/c/1f"];
    await answered(keys.map((key, n) => put(key, BigInt(50 + n))));

    await told(gone(keys[0]!, 101n));
    await told(gone(keys[1]!, 102n), gone(keys[2]!, 102n));

    const ends = ["jobs/a", "jobs/b", "jobs/c"].map((name) => board.history(name)[0]);
    expect(ends).toMatchObject([
      { kind: "released", together: 1 },
      { kind: "ended", together: 2 },
      { kind: "ended", together: 2 },
    ]);
  });

  test("compares all keys after etcd has compacted what it missed", async () => {
    const { answered, stream, board, reports, keysOf } = opening();
    await answered([put("jobs/a/1f", 50n), put("jobs/b/1f", 51n), put("jobs/c/1f", 52n)]);

    stream().answer({ watchId: stream().creates.at(-1)!.watchId, cancelled: true, compacted: true }, 0n);
    await answered([put("jobs/b/1f", 51n), put("jobs/c/2f", 190n)], 200n);

    expect(reports.at(-1)).toBe("200: jobs/a jobs/c");
    expect([board.size, board.handOvers, keysOf("jobs/c")]).toEqual([2, 1, [["jobs/c/2f"], []]]);
    expect(board.history("jobs/a")).toMatchObject([{ kind: "released", together: undefined }]);
  });

  test("fails once with what etcd rejects, and leaves no timer and no watch after stop()", async () => {
    const refused = opening();
    await settle();
    refused.reads()[0]!.fail(new EtcdRefusedError("permission", "a:1", "permission denied"));
    await settle();
    expect(refused.failures).toMatchObject([{ code: "ETCD_REFUSED" }]);
    expect(refused.cluster.clock.timers).toBe(0);

    const stopped = opening();
    await stopped.answered([]);
    stopped.send(put("jobs/a/1f", 101n));
    stopped.board.stop();
    await settle();
    await stopped.turn();
    expect([stopped.reports, stopped.cluster.clock.timers]).toEqual([["100: "], 0]);
  });
});
