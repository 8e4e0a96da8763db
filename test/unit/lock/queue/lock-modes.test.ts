import { describe, expect, test } from "vitest";
import {
  type Behind,
  exclusive,
  GRANTED,
  GRANTED_UNSEEN,
  reader,
  writer,
} from "../../../../src/lock/queue/lock-mode.js";
import { permit, weighted } from "../../../../src/lock/queue/permit-mode.js";
import { type JoinedEntry, QueueEntry } from "../../../../src/lock/queue/entry.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

const lease = new FakeCluster().lease();

function placeAt(revision: bigint, mode = reader, held = false): JoinedEntry {
  const entry = new QueueEntry({ lease, name: "jobs", n: Number(revision), mode });
  if (held) entry.beginsToHold();
  return entry.confirmed(revision);
}

const kvOf = ({ key, value, revision }: JoinedEntry, modRevision = revision) =>
  keyValue({ key, value, createRevision: revision, modRevision });
const told = (kvs: readonly ReturnType<typeof keyValue>[], count = kvs.length, more = false) => ({
  kvs,
  more,
  count,
});
const other = (createRevision: bigint, permits?: number, modRevision = createRevision) =>
  keyValue({
    key: `jobs/${createRevision}`,
    createRevision,
    modRevision,
    value: permits === undefined ? "" : JSON.stringify({ permits }),
  });
const deletion = (createRevision: bigint, modRevision: bigint) =>
  keyValue({ key: `jobs/${createRevision}`, createRevision: 0n, modRevision });

describe("a reader", () => {
  const mine = placeAt(50n);
  const [before, behind] = [other(40n), other(30n)];

  test("holds when its join finds no place but readers", () => {
    expect(reader.joined(mine, [told([]), told([])])).toBe(GRANTED);
  });

  test.each([
    ["before the readers' folder", [told([before]), told([])], 40n, true],
    ["behind it", [told([]), told([behind])], 30n, true],
    ["on both sides: the later one", [told([before]), told([behind])], 40n, false],
    ["in front of others", [told([before], 3), told([])], 40n, false],
  ])("waits for the one it finds %s", (_, answer, revision, holder) => {
    expect(reader.joined(mine, answer)).toMatchObject({ predecessor: { revision, holder } });
  });

  test("reads its own key with the others: gone, first, or behind the later of the two", () => {
    const own = told([kvOf(mine)]);

    expect(reader.positionOf(mine, [told([]), told([]), told([])])).toBe("gone");
    expect(reader.positionOf(mine, [own, told([]), told([])])).toBe("first");
    expect(reader.positionOf(mine, [own, told([before]), told([behind])])).toMatchObject({ ahead: 2 });
    expect(reader.positionOf(mine, [own, told([before], 9, true), told([])])).toMatchObject({
      predecessor: { revision: 40n, holder: false },
    });
  });

  test("is first after a deletion if it is there itself, and nobody but readers came before it", () => {
    const own = told([kvOf(mine)]);

    expect(reader.isFirst(mine, [own, told([]), told([other(60n)])])).toBe(true);
    expect(reader.isFirst(mine, [own, told([]), told([behind])])).toBe(false);
    expect(reader.isFirst(mine, [told([]), told([]), told([])])).toBe(false);
  });

  test("follows the last entry of its session that is no reader, or else the first reader that waits for the same entry", () => {
    const waitingFor = (revision: bigint, joinedBehind: bigint, held = false) => {
      const entry = placeAt(revision, reader, held);
      entry.foundBefore(joinedBehind);
      return entry;
    };
    const last = waitingFor(50n, 5n);
    const [first, second] = [waitingFor(20n, 5n), waitingFor(30n, 5n)];
    const writing = placeAt(10n, writer, true);

    expect(reader.follows(last, [writing, first, second])).toBe(writing);
    expect(reader.follows(last, [first, second])).toBe(first);
    expect(reader.follows(last, [waitingFor(20n, 5n, true), second])).toBe(second);
    expect(reader.follows(last, [waitingFor(20n, 4n)])).toBeUndefined();
    expect(reader.follows(placeAt(50n), [placeAt(20n)])).toBeUndefined();
  });
});

describe("a writer and a mutex", () => {
  test("follow the last of their session, of whatever kind", () => {
    const [reading, writing] = [placeAt(10n), placeAt(20n, writer)];

    for (const mode of [exclusive, writer]) {
      expect(mode.follows(placeAt(50n, mode), [writing, reading])).toBe(reading);
      expect(mode.follows(placeAt(50n, mode), [])).toBeUndefined();
    }
  });
});

describe("a permit", () => {
  const two = permit(2);
  const mine = placeAt(50n, two);
  const join = (oldest: ReturnType<typeof keyValue>, count: number, below?: ReturnType<typeof keyValue>) =>
    two.joined(mine, [told([oldest], count), told(below ? [kvOf(mine), below] : [kvOf(mine)])]);
  const read = (...below: ReturnType<typeof keyValue>[]) =>
    two.positionOf(mine, [told([kvOf(mine), ...below])]);
  const targetOf = (position: unknown) => (position as Behind).predecessor.target;

  test("is held at once while fewer are before it than the oldest place says", () => {
    expect(join(kvOf(mine), 1)).toBe(GRANTED);
    expect(join(other(10n, 2), 2, other(10n, 2))).toBe(GRANTED);
  });

  test("is held unseen if another number than its own let it in: those behind would take it for one that waits", () => {
    expect(join(other(10n, 5), 4, other(30n, 2))).toBe(GRANTED_UNSEEN);
  });

  test.each([
    ["another client's place is the oldest", other(10n), other(10n)],
    ["one of another kind that says no number is the oldest", kvOf(placeAt(10n, exclusive)), other(20n, 2)],
  ])("holds alone or not at all while %s", (_, oldest, below) => {
    expect(join(oldest, 2, below)).toMatchObject({ ahead: 1 });
  });

  test("that is first in line waits for the end of any holder, and of nobody else", () => {
    const position = read(other(20n, 2), other(10n, 2)) as Behind;

    expect(position.predecessor).toMatchObject({ holder: true, target: { key: "jobs/", events: "DELETE" } });
    const endedBy = (kv: ReturnType<typeof keyValue>) => position.predecessor.endedBy(kv);
    expect([deletion(10n, 90n), deletion(20n, 90n)].map(endedBy)).toEqual([true, true]);
    expect([deletion(40n, 90n), deletion(60n, 90n), deletion(20n, 20n)].map(endedBy)).toEqual([
      false,
      false,
      false,
    ]);
  });

  test("that is further back waits for a put or the end of the one before it", () => {
    const position = read(other(30n, 2), other(20n, 2), other(10n, 2));

    expect(targetOf(position)).toEqual({ key: "jobs/30", events: "ALL" });
    expect((position as Behind).predecessor.afterPut?.target.events).toBe("DELETE");
  });

  test("is first in line once the one before it has put its key again", () => {
    const position = read(other(30n, 2, 77n), other(20n, 2), other(10n, 2));

    expect(targetOf(position)).toMatchObject({ key: "jobs/" });
  });

  test("watches all holders when the waiter ahead never announces its turn", () => {
    expect(targetOf(read(other(30n), other(20n, 2), other(10n, 2)))).toMatchObject({ key: "jobs/" });
  });

  test("does not take a deletion alone for its turn while numbers differ, or too many hold", () => {
    expect(read(other(20n, 3), other(10n, 2))).toMatchObject({ predecessor: { holder: false } });
    expect(read(other(30n, 2, 77n), other(20n, 2), other(10n, 2))).toMatchObject({
      predecessor: { holder: false },
    });
  });

  test("reads all places only where its turn may be next and more are before it than it has asked for", () => {
    const more = (...below: ReturnType<typeof keyValue>[]) =>
      two.positionOf(mine, [told([kvOf(mine), ...below], 9, true)]);

    expect(more(other(40n, 2, 77n), other(30n, 2), other(20n, 2))).toBe("unclear");
    expect(targetOf(more(other(40n, 2), other(30n, 2), other(20n, 2)))).toMatchObject({ events: "ALL" });
  });

  test("follows the last of its session that waits, not those that hold", () => {
    const [held, waits] = [placeAt(10n, two, true), placeAt(20n, two)];

    expect(two.follows(mine, [held, waits])).toBe(waits);
    expect(two.follows(mine, [held])).toBeUndefined();
  });

  test("is refused without a join when there is no room", () => {
    const { trying } = two;
    const hasRoom = "hasRoom" in trying ? trying.hasRoom : () => undefined;

    expect(hasRoom(told([]))).toBe(true);
    expect(hasRoom(told([other(10n, 2)], 1))).toBe(true);
    expect(hasRoom(told([other(10n, 2)], 2))).toBe(false);
    expect(hasRoom(told([other(10n)], 1))).toBe(false);
  });
});

describe("a weighted permit", () => {
  const ten = weighted(10, 4);
  const mine = placeAt(50n, ten);
  const own = kvOf(mine);
  const heavy = (createRevision: bigint, weight: number, permits = 10, modRevision = createRevision) =>
    keyValue({
      ...{ key: `jobs/${createRevision}`, createRevision, modRevision },
      value: JSON.stringify({ weighted: { permits, weight } }),
    });
  /** Nearest first, as etcd shows them. */
  const read = (...below: ReturnType<typeof keyValue>[]) => ten.positionOf(mine, [told([own, ...below])]);
  const join = (below: readonly ReturnType<typeof keyValue>[], hidden = 0, oldest = below.at(-1) ?? own) =>
    ten.joined(mine, [told([oldest], below.length + hidden + 1), told([own, ...below])]);
  const waits = (position: unknown) => {
    const { predecessor, ahead } = position as Behind;
    return {
      target: predecessor.target.key,
      events: predecessor.target.events,
      holder: predecessor.holder,
      ahead,
    };
  };

  test("holds while it and all before it take no more than there are", () => {
    expect(join([])).toBe(GRANTED);
    expect(join([heavy(20n, 1), heavy(10n, 5)])).toBe(GRANTED);
    expect(read(heavy(20n, 1), heavy(10n, 5))).toBe("first");
    expect(join([heavy(20n, 2), heavy(10n, 5)])).toMatchObject({ state: "waiting" });
    expect(read(heavy(20n, 2), heavy(10n, 5))).toMatchObject({ state: "waiting" });
    expect(read()).toBe("first");
  });

  test("goes by the number of the oldest one, and is held unseen if that is not its own", () => {
    expect(join([heavy(20n, 5), heavy(10n, 5, 20)])).toBe(GRANTED_UNSEEN);
    expect(join([heavy(10n, 1, 4)])).toMatchObject({ state: "waiting" });
    expect(read(heavy(20n, 5), heavy(10n, 5, 20))).toBe("first");
    expect(read(heavy(10n, 1, 4))).toMatchObject({ state: "waiting" });
  });

  test("excludes an entry of another kind or client, and is excluded by it, wherever it is", () => {
    for (const value of ["", "x", '{"permits":10}', '{"weighted":{"permits":10,"weight":11}}']) {
      const foreign = (createRevision: bigint) => keyValue({ key: "jobs/f", createRevision, value });
      expect(read(foreign(10n))).toMatchObject({ state: "waiting" });
      expect(read(heavy(20n, 1), foreign(10n))).toMatchObject({ state: "waiting" });
      expect(read(foreign(20n), heavy(10n, 1))).toMatchObject({ state: "waiting" });
      expect(join([foreign(20n), heavy(10n, 1)])).toMatchObject({ state: "waiting" });
    }
  });

  test("reads before it holds if its join has not shown all before it: each of those takes one or more", () => {
    expect(join([heavy(20n, 1), heavy(15n, 1)], 4, heavy(10n, 1))).toEqual({ state: "unknown" });
    expect(join([heavy(20n, 1), heavy(15n, 1)], 5, heavy(10n, 1))).toMatchObject({ state: "waiting" });
  });

  test("that is first in line waits for the end of any holder; that alone is its turn if each one makes enough room", () => {
    expect(waits(read(heavy(20n, 4), heavy(10n, 6)))).toEqual({
      ...{ target: "jobs/", events: "DELETE", holder: true, ahead: 1 },
    });
    expect(waits(read(heavy(20n, 3), heavy(10n, 6)))).toMatchObject({ holder: true });
    expect(waits(read(heavy(20n, 2), heavy(15n, 2), heavy(10n, 6)))).toMatchObject({ holder: false });
    expect(waits(read(heavy(20n, 4), heavy(10n, 6, 9, 30n)))).toMatchObject({ holder: false });
  });

  test("that is further back waits for a put or the end of the one before it, however light itself", () => {
    const light = weighted(10, 1);
    const last = placeAt(50n, light);
    const position = light.positionOf(last, [told([kvOf(last), heavy(30n, 9), heavy(10n, 5)])]);

    expect(waits(position)).toEqual({ target: "jobs/30", events: "ALL", holder: false, ahead: 2 });
    expect(waits(read(heavy(30n, 9, 10, 77n), heavy(10n, 1)))).toMatchObject({ target: "jobs/" });
    expect(waits(join([heavy(30n, 9), heavy(10n, 5)]))).toMatchObject({ target: "jobs/30", ahead: 2 });
  });

  test("counts those before it that wait, as far as an answer shows them", () => {
    const line = [heavy(45n, 9), heavy(40n, 1), heavy(30n, 9), heavy(20n, 2), heavy(10n, 8)];
    expect(waits(read(...line))).toMatchObject({ ahead: 4 });
    expect(waits(join(line))).toMatchObject({ ahead: 4 });
    expect(waits(join(line.slice(0, 1), 15, heavy(10n, 8)))).toMatchObject({ ahead: 7 });
  });

  test("reads all places only where its turn may be next and more are before it than it has asked for", () => {
    const more = (...below: ReturnType<typeof keyValue>[]) =>
      ten.positionOf(mine, [told([own, ...below], 99, true)]);

    expect(more(heavy(40n, 1), heavy(30n, 1))).toBe("unclear");
    expect(more(heavy(40n, 9, 10, 77n), heavy(30n, 9))).toBe("unclear");
    expect(waits(more(heavy(40n, 9), heavy(30n, 9)))).toMatchObject({ target: "jobs/40", events: "ALL" });
  });

  test("is refused without a join when there is no room for all that it takes", () => {
    const { trying } = ten;
    const hasRoom = "hasRoom" in trying ? trying.hasRoom : () => undefined;

    expect(hasRoom(told([]))).toBe(true);
    expect(hasRoom(told([heavy(10n, 6)]))).toBe(true);
    expect(hasRoom(told([heavy(10n, 7)]))).toBe(false);
    expect(hasRoom(told([heavy(10n, 1)], 6, true))).toBe(true);
    expect(hasRoom(told([heavy(10n, 1)], 7, true))).toBe(false);
    expect(hasRoom(told([heavy(10n, 1, 4)]))).toBe(false);
    expect(hasRoom(told([other(10n)]))).toBe(false);
  });

  test("follows the last of its session that waits, not those that hold", () => {
    const [held, waiting] = [placeAt(10n, ten, true), placeAt(20n, weighted(10, 9))];

    expect(ten.follows(mine, [held, waiting])).toBe(waiting);
    expect(ten.follows(mine, [held])).toBeUndefined();
  });
});
