import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { KeyValue } from "../../../../src/etcd/port.js";
import { type JoinedEntry, QueueEntry } from "../../../../src/lock/queue/entry.js";
import { exclusive } from "../../../../src/lock/queue/lock-mode.js";
import { outlookOf, prioritized, rankOf } from "../../../../src/lock/queue/priority-mode.js";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

const lease = new FakeCluster().lease();
const queue = LockTable.of(lease).queue("jobs");
const START = Date.parse("2026-01-02T03:04:05.678Z");

interface Call {
  readonly at: number;
  readonly level: number;
  readonly agingMs: number;
}
const call = fc.record({
  at: fc.integer({ min: 0, max: 50 }),
  level: fc.integer({ min: -3, max: 3 }),
  agingMs: fc.constantFrom(1, 7, 30),
});

const shown = ({ key, value, revision }: JoinedEntry, leaseId = lease.leaseId): KeyValue =>
  keyValue({ key, value, createRevision: revision, modRevision: revision, leaseId });

const kept = ({ key, createRevision }: KeyValue) => ({ key: key.toString(), createRevision });

function entryOf({ at, level, agingMs }: Call, n: number, what: "place" | "hold" = "place"): JoinedEntry {
  const mode = prioritized(level, agingMs)[what];
  const since = new Date(START + at).toISOString();
  return new QueueEntry({ lease, name: "jobs", n: n + 1, mode, since }).confirmed(BigInt(n + 10));
}

/** The calls as etcd has them, in the order of their keys, and what each makes of all keys. */
function looks(calls: readonly Call[], others: readonly KeyValue[] = []) {
  const places = calls.map((each, n) => ({ ...each, entry: entryOf(each, n) }));
  const kvs = [...places.map(({ entry }) => shown(entry)), ...others];
  return places.map(({ entry, at, ...priority }) => {
    const rank = rankOf(START + at, priority);
    return {
      entry,
      rank,
      outlook: outlookOf(queue, { place: entry, rank, isNew: false }, { kvs, revision: 99n }),
    };
  });
}

describe("of calls with priorities", () => {
  test("exactly one may claim a lock that nobody holds, and each of the others waits for the next better one", () => {
    fc.assert(
      fc.property(fc.array(call, { minLength: 1, maxLength: 8 }), (calls) => {
        const all = looks(calls);
        const inTurn = [...all].sort(
          (a, b) => a.rank - b.rank || Number(a.entry.revision - b.entry.revision),
        );

        inTurn.forEach(({ outlook }, n) => {
          const before = inTurn[n - 1];
          expect(outlook.behind?.key.toString()).toBe(before?.entry.key);
          expect(outlook.blockers).toEqual(before ? undefined : []);
          expect([outlook.isThere, outlook.ahead]).toEqual([true, n]);
        });
      }),
    );
  });

  test("the next one waits for the holder alone, however young its key is", () => {
    fc.assert(
      fc.property(fc.array(call, { minLength: 1, maxLength: 8 }), call, (calls, holder) => {
        const hold = shown(entryOf(holder, 40, "hold"));
        const all = looks(calls, [hold]);

        const next = all.filter(({ outlook }) => outlook.blockers !== undefined);
        expect(next).toHaveLength(1);
        expect(next[0]!.outlook).toMatchObject({ blockers: [kept(hold)], behind: kept(hold), ahead: 1 });
      }),
    );
  });

  test("none overtakes one of a lower level that came the difference times agingMs before, or earlier", () => {
    fc.assert(
      fc.property(call, fc.integer({ min: 1, max: 6 }), fc.nat(40), (low, above, more) => {
        const at = low.at + above * low.agingMs + more;
        const [first] = looks([low, { ...low, level: low.level + above, at }]);
        expect(first!.outlook.blockers).toEqual([]);
      }),
    );
  });

  test("none claims while a key of another kind or of nobody is there, which came after one of them", () => {
    const other = keyValue({
      key: "jobs/6a1f",
      value: "",
      createRevision: 90n,
      modRevision: 90n,
      leaseId: 0x6a1fn,
    });
    const stray = keyValue({
      key: "jobs/config",
      value: "x",
      createRevision: 91n,
      modRevision: 91n,
      leaseId: 0n,
    });
    const [only] = looks([{ at: 0, level: 0, agingMs: 1 }], [other, stray]);

    expect(only!.outlook.blockers).toEqual([kept(other), kept(stray)]);
    expect(only!.outlook.foreign).toMatchObject({ revision: 90n, mismatch: { found: "unknown" } });
    expect(looks([{ at: 0, level: 0, agingMs: 1 }], [stray])[0]!.outlook.foreign).toBeUndefined();
  });

  test("each is rejected if a key of another kind was there first", () => {
    const entry = new QueueEntry({ lease, name: "jobs", n: 50, mode: exclusive }).confirmed(5n);
    const first = shown(entry, 0x77aan);
    const kvs = [{ ...first, key: Buffer.from("jobs/77aa") }];
    const look = () => outlookOf(queue, { place: undefined, rank: 0, isNew: true }, { kvs, revision: 99n });

    expect(look).toThrow(expect.objectContaining({ code: "KIND_MISMATCH", found: "mutex" }));
  });

  test("a new one is rejected by a thousand that wait, and no other one is", () => {
    const calls = Array.from({ length: 1000 }, (_, n) => ({ at: n, level: 0, agingMs: 1 }));
    const kvs = calls.map((each, n) => shown(entryOf(each, n)));
    const place = entryOf({ at: 2000, level: 0, agingMs: 1 }, 1000);
    const look = (isNew: boolean) =>
      outlookOf(
        queue,
        { place, rank: START + 2000, isNew },
        { kvs: [...kvs, shown(place)], revision: 9999n },
      );

    expect(() => look(true)).toThrow(expect.objectContaining({ code: "QUEUE_FULL", waiting: 1000 }));
    expect(look(false)).toMatchObject({ isThere: true, ahead: 1000 });
  });

  test("one whose place is gone sees that", () => {
    const place = entryOf({ at: 0, level: 0, agingMs: 1 }, 0);
    expect(outlookOf(queue, { place, rank: START, isNew: false }, { kvs: [], revision: 99n }).isThere).toBe(
      false,
    );
  });
});
