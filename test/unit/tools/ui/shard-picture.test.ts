// What the page shows of the shards of a group, from the histories of their queues.
import { describe, expect, test } from "vitest";
import type { Past } from "../../../../src/tools/ui/protocol.js";
import { shardPicture } from "../../../../src/tools/ui/shard-picture.js";

const NOW = Date.parse("2026-11-23T12:00:00Z");
const SECOND = 1000;
const HOUR = 3600 * SECOND;

/** Holds one after the other: who, and how many seconds ago it began; the last one lasts. */
const holds = (...begins: readonly (readonly [holder: string, secondsAgo: number])[]): Past[] =>
  begins.map(([holder, ago], n) => {
    const next = begins[n + 1];
    const to = next === undefined ? null : NOW - next[1] * SECOND;
    const end = to === null ? null : "released";
    return { holder, revision: String(n), from: NOW - ago * SECOND, fromIsJoin: false, to, end };
  });

const picture = (shards: readonly (readonly Past[])[], queue = "feeds/members") =>
  shardPicture(queue, (name) => shards[Number(/^feeds\/shard\/(\d+)$/.exec(name)?.[1])] ?? [], NOW);

describe("the picture of shards", () => {
  test("is that of a group's members, and of no other queue", () => {
    expect(picture([holds(["a", 5])])).toMatchObject({ count: 1 });
    expect(picture([holds(["a", 5])], "feeds/shard/0")).toBeUndefined();
    expect(picture([holds(["a", 5])], "others/members")).toBeUndefined();
    expect(picture([])).toBeUndefined();
  });

  test("has each owner of each shard, those with the most shards first", () => {
    const found = picture([
      holds(["a", 50], ["b", 20]),
      [],
      holds(["b", 40]),
      holds(["c", 30], ["a", 10]).slice(0, 1),
    ]);

    const at = (ago: number) => NOW - ago * SECOND;
    expect(found).toMatchObject({ count: 4, spanMs: 60 * SECOND, moves: 1, loads: null });
    expect(found?.members).toEqual([
      { name: "b", shards: 2 },
      { name: "c", shards: 0 },
      { name: "a", shards: 0 },
    ]);
    expect(found?.lanes).toEqual([
      [
        [2, at(50), at(20)],
        [0, at(20), null],
      ],
      [],
      [[0, at(40), null]],
      [[1, at(30), at(10)]],
    ]);
  });

  test("shows as many of the latest moves as there are shards, and without one the begin of all", () => {
    const old = holds(["a", 5 * 3600]);
    expect(picture([old, old])?.spanMs).toBe(6 * HOUR);
    expect(picture([old, holds(["a", 5 * 3600], ["b", 100])])?.spanMs).toBe(120 * SECOND);
    expect(picture([old, holds(["a", 5 * 3600], ["b", 3000], ["c", 250], ["b", 5])])?.spanMs).toBe(
      300 * SECOND,
    );
  });

  test("counts no new session of the same owner as a move", () => {
    expect(picture([holds(["a", 30], ["a", 20], ["b", 10])])?.moves).toBe(1);
  });

  test("has eight members by name, and the others together", () => {
    const found = picture(Array.from({ length: 20 }, (_, n) => holds([`m${n % 10}`, 10])));

    expect(found?.members).toHaveLength(8);
    expect(found?.others).toEqual({ members: 2, shards: 4 });
    expect(found?.lanes?.[8]).toEqual([[8, NOW - 10 * SECOND, null]]);
  });

  test("has numbers of shards by member instead, if a lane for each would be too many", () => {
    const shards = Array.from({ length: 100 }, (_, n) =>
      n < 30 ? holds(["a", 300], ["b", 30]) : holds([n < 90 ? "a" : `other ${n}`, 300]),
    );
    const found = picture(shards);

    expect(found).toMatchObject({ count: 100, spanMs: 60 * SECOND, lanes: null });
    const [a, b, ...rest] = found?.loads ?? [];
    expect(found?.members.slice(0, 2)).toEqual([
      { name: "a", shards: 60 },
      { name: "b", shards: 30 },
    ]);
    expect([a?.at(0), a?.at(29), a?.at(30), a?.at(-1)]).toEqual([90, 90, 60, 60]);
    expect([b?.at(0), b?.at(29), b?.at(30), b?.at(-1)]).toEqual([0, 0, 30, 30]);
    expect(rest.map((load) => load.at(-1))).toEqual([1, 1, 1, 1, 1, 1, 4]);
  });

  test("has a size that neither thousands of shards nor long names of owners exceed", () => {
    const names = Array.from({ length: 500 }, (_, n) => `${n}${"\u0007".repeat(8000)}`);
    const busy = Array.from({ length: 64 }, (_, n) =>
      holds(...Array.from({ length: 60 }, (_, i) => [names[(n + 7 * i) % 500] ?? "", 600 - i * 10] as const)),
    );
    const few = picture(busy);
    const many = picture(Array.from({ length: 4096 }, (_, n) => busy[n % 64] ?? []));

    expect(few?.lanes).toHaveLength(64);
    expect(many?.loads).toHaveLength(9);
    for (const each of [few, many]) expect(JSON.stringify(each).length).toBeLessThan(50_000);
  });
});
