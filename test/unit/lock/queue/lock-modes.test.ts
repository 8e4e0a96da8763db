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
