import { describe, expect, test } from "vitest";
import type { Txn } from "../../src/etcd/rpc.js";
import { OwnPlaces } from "../../src/own-places.js";
import { settle } from "../support/fake-clock.js";
import { FakeCluster, HEADER, LEASE_ID } from "../support/fake-connection.js";
import { keyValue } from "../support/fake-member.js";

const RANGE = "jobs/77";

/** A session whose first place under the name was put, and never answered. */
async function doubting() {
  const cluster = new FakeCluster();
  const lease = cluster.lease();
  const own = new OwnPlaces(lease, "jobs");
  const late = own.make();
  late.unanswered = 1;
  own.doubt(late);
  cluster.clock.advance(0);
  await settle();
  const stream = cluster.member.watches[0]!;
  const put = async (key: string, revision: bigint, { value = "", leaseId = LEASE_ID } = {}) => {
    const kv = keyValue({ key, value, leaseId, createRevision: revision, modRevision: revision });
    stream.answer({ watchId: stream.creates[0]!.watchId, events: [{ kind: "PUT", kv }] }, revision);
    await settle();
  };
  const answerRead = async (kvs: ReturnType<typeof keyValue>[]) => {
    cluster.member.of("range").at(-1)!.answer({ header: HEADER, kvs, more: false, count: kvs.length });
    await settle();
  };
  /** Keys that were asked to be deleted, with the create revision that guards it. */
  const deletes = () =>
    cluster.member.of("txn").map(({ request }) => {
      const { when, then } = request as Txn;
      return [then.map((each) => (each.kind === "delete" ? String(each.key) : each.kind)), when];
    });
  return { cluster, clock: cluster.clock, lease, own, late, stream, put, answerRead, deletes };
}

const guardedDelete = (key: string, revision: bigint) => [
  [key],
  [{ kind: "created at", key: Buffer.from(key), revision }],
];

describe("a put that was sent and never answered", () => {
  test("makes the session watch its own keys of the name for puts", async () => {
    const { stream, cluster } = await doubting();

    expect(stream.creates).toMatchObject([
      { key: RANGE, end: `${RANGE}.`, startRevision: 0n, events: "PUT" },
    ]);
    expect(cluster.member.of("range")).toHaveLength(0);
  });

  test("is deleted, guarded by its create revision, when it is applied late after all", async () => {
    const { put, deletes, late, own } = await doubting();

    own.release(late);
    await put(late.key, 200n, { value: late.value });

    expect(deletes()).toEqual([guardedDelete(late.key, 200n)]);
  });

  test("is found by a read when it was applied before the watch began", async () => {
    const { stream, answerRead, deletes, late, own } = await doubting();
    own.release(late);

    stream.created(RANGE, 150n);
    await settle();
    await answerRead([keyValue({ key: late.key, leaseId: LEASE_ID, createRevision: 140n })]);

    expect(deletes()).toEqual([guardedDelete(late.key, 140n)]);
  });

  test("is looked for again after some seconds, in case an event was lost", async () => {
    const { cluster, clock, stream, answerRead } = await doubting();
    stream.created(RANGE, 150n);
    await settle();
    await answerRead([]);

    await clock.pass(5000);

    expect(cluster.connected.flatMap((member) => member.of("range"))).toHaveLength(2);
  });

  test("never lends its key to another place while the session lives", async () => {
    const { own, late } = await doubting();

    own.release(late);

    expect([own.make().key, own.make().key]).toEqual([`${RANGE}-2`, `${RANGE}-3`]);
  });

  test("costs no place of ours: confirmed ones are spared, and one whose put is under way", async () => {
    const { own, put, deletes } = await doubting();
    const held = own.make();
    held.revision = 160n;
    own.add(held);
    const underWay = own.make();

    await put(held.key, 160n, { value: held.value });
    await put(underWay.key, 170n, { value: underWay.value });

    expect(deletes()).toEqual([]);
  });

  test("is not a key of ours that another session made", async () => {
    const { put, deletes } = await doubting();

    await put(`${RANGE}-9`, 200n, { leaseId: 0x88n });

    expect(deletes()).toEqual([]);
  });

  test("that comes after its key was ours and released is deleted: the create revision tells", async () => {
    const { own, put, deletes } = await doubting();
    const held = own.make();
    held.revision = 160n;
    own.add(held);

    await put(held.key, 180n, { value: held.value });

    expect(deletes()).toEqual([guardedDelete(held.key, 180n)]);
  });

  test("is looked for no longer when the lease is over", async () => {
    const { clock, lease, stream, put, deletes, late, own } = await doubting();
    own.release(late);
    stream.created(RANGE, 150n);
    await settle();

    lease.abandon();
    await put(late.key, 200n);
    await clock.pass(10_000);

    expect(deletes()).toEqual([]);
    expect(stream.closed).toBe(true);
    expect(clock.timers).toBe(0);
  });
});

describe("the number of a place", () => {
  test("is free again when its put was answered", () => {
    const own = new OwnPlaces(new FakeCluster().lease(), "jobs");
    const [first, second] = [own.make(), own.make()];

    own.release(first);

    expect([first.key, second.key, own.make().key]).toEqual([RANGE, `${RANGE}-2`, RANGE]);
  });

  test("stays taken when the key is another process's with the same lease", () => {
    const own = new OwnPlaces(new FakeCluster().lease(), "jobs");

    own.stranger(own.make());

    expect(own.make().key).toBe(`${RANGE}-2`);
  });

  test("does not tell the order: the predecessor among our own is found by create revision", () => {
    const own = new OwnPlaces(new FakeCluster().lease(), "jobs");
    const [a, b, c] = [own.make(), own.make(), own.make()];
    [a.revision, b.revision, c.revision] = [30n, 10n, 20n];
    [a, b, c].forEach((place) => own.add(place));

    expect([a, c, b].map((place) => own.followedBy(place))).toEqual([c, b, undefined]);
    own.remove(c);
    expect(own.followedBy(a)).toBe(b);
  });
});
