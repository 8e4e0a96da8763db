import { describe, expect, test } from "vitest";
import { EtcdRefusedError } from "../../../../src/errors.js";
import type { Range, Txn } from "../../../../src/etcd/port.js";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import type { SessionEntries } from "../../../../src/lock/queue/session-entries.js";
import type { JoinedEntry, QueueEntry } from "../../../../src/lock/queue/entry.js";
import { FakeCluster, HEADER, LEASE_ID } from "../../../support/fakes/fake-connection.js";
import { type FakeCall, keyValue } from "../../../support/fakes/fake-member.js";

const KEY = "jobs/77";
/**
 * The first list comes after this time, and the second one after twice as long, with the fake clock's random numbers.
 */
const SOON_MS = 375;
/** Longer than a key in doubt is withheld from new entries. */
const DOUBT_OVER_MS = 300_000;
/** No renewal falls into a test. */
const TTL_SECONDS = 86_400;

type Kv = ReturnType<typeof keyValue>;

/** A session whose keys are in an etcd that answers lists and reads automatically. */
function session() {
  const cluster = new FakeCluster();
  const lease = cluster.lease(TTL_SECONDS);
  const own = LockTable.of(lease).queue("jobs").own;
  const stored = new Map<string, Kv>();
  let refusal: Error | undefined;
  const answerTo: Partial<Record<FakeCall["method"], (call: FakeCall) => void>> = {
    timeToLive: (call) => {
      const keys = [...stored.values()].map(({ key }) => key);
      if (refusal) call.fail(refusal);
      else call.answer({ header: HEADER, ttlSeconds: 9, keys });
    },
    range: (call) => {
      const kv = stored.get(String((call.request as Range).key));
      call.answer({ header: HEADER, kvs: kv ? [kv] : [], more: false, count: kv ? 1 : 0 });
    },
    txn: (call) => {
      for (const each of (call.request as Txn).success)
        if (each.kind === "delete") stored.delete(String(each.key));
      call.answer({ header: HEADER, succeeded: true, ranges: [undefined] });
    },
  };
  cluster.onCall = (call) => queueMicrotask(() => answerTo[call.method]?.(call));
  const put = ({ key, value }: Pick<QueueEntry, "key" | "value">, revision: bigint, leaseId = LEASE_ID) =>
    stored.set(key, keyValue({ key, value, leaseId, createRevision: revision, modRevision: revision }));
  const of = (method: FakeCall["method"]) => cluster.connected.flatMap((member) => member.of(method));
  /** The keys whose deletion was requested, with the create revision that guards it. */
  const deletes = () =>
    of("txn").map(({ request }) => {
      const { compare, success } = request as Txn;
      return [success.map((each) => (each.kind === "delete" ? String(each.key) : each.kind)), compare];
    });
  const refuse = (error: Error) => (refusal = error);
  return { cluster, clock: cluster.clock, lease, own, stored, put, of, deletes, refuse };
}

/** Its first entry under the name was put, but not answered. */
function doubting() {
  const doubtful = session();
  const late = doubtful.own.make();
  late.attemptUnanswered();
  doubtful.own.doubt(late);
  return { ...doubtful, late };
}

function joined(own: SessionEntries, revision: bigint): JoinedEntry {
  const entry = own.make().confirmed(revision);
  own.add(entry);
  return entry;
}

const guardedDelete = (key: string, revision: bigint) => [
  [key],
  [{ kind: "created at", key: Buffer.from(key), revision }],
];

describe("a put that was sent and never answered", () => {
  test("makes the session list its keys soon, by one request and no watch, whatever the number of names", async () => {
    const { cluster, clock, lease, of } = session();
    for (let n = 0; n < 300; n++) {
      const own = LockTable.of(lease).queue(`jobs/${n}`).own;
      const late = own.make();
      late.attemptUnanswered();
      own.release(late);
    }

    await clock.pass(SOON_MS);

    expect(of("timeToLive").map(({ request }) => request)).toEqual([LEASE_ID]);
    expect(of("range")).toEqual([]);
    expect(cluster.connected.flatMap(({ watches }) => watches)).toEqual([]);
  });

  test("is deleted, guarded by its create revision, when it is applied late after all", async () => {
    const { clock, put, deletes, late, own } = doubting();
    own.release(late);

    put(late, 200n);
    await clock.pass(SOON_MS);

    expect(deletes()).toEqual([guardedDelete(late.key, 200n)]);
  });

  test("is looked for ever more rarely, but to the end of the lease", async () => {
    const { clock, of, own, late } = doubting();
    own.release(late);
    clock.nextRandom = 0.5;

    const lists = async (ms: number) => {
      const before = of("timeToLive").length;
      await clock.pass(ms);
      return of("timeToLive").length - before;
    };

    expect(await lists(120_000)).toBe(7);
    expect(await lists(3_600_000)).toBe(13);
  });

  test("is found within about as long again as it was late", async () => {
    const { clock, put, deletes, late, own } = doubting();
    own.release(late);
    await clock.pass(20_000);

    put(late, 200n);
    await clock.pass(20_000);

    expect(deletes()).toEqual([guardedDelete(late.key, 200n)]);
  });

  test("lends its key to no other place for some minutes, and then does", async () => {
    const { clock, own, late } = doubting();

    own.release(late);
    const beside = [own.make(), own.make()];
    for (const entry of beside) own.release(entry);
    await clock.pass(DOUBT_OVER_MS);

    expect(beside.map(({ key }) => key)).toEqual([`${KEY}-2`, `${KEY}-3`]);
    expect(own.make().key).toBe(KEY);
  });

  test("costs no place of ours: confirmed ones are spared, and one whose put is under way", async () => {
    const { clock, own, put, deletes } = doubting();
    const underWay = own.make();

    put(joined(own, 160n), 160n);
    put(underWay, 170n);
    await clock.pass(DOUBT_OVER_MS);

    expect(deletes()).toEqual([]);
  });

  test("is not a key of ours that another session made", async () => {
    const { clock, put, deletes, late, own } = doubting();
    own.release(late);

    put({ ...late, key: `${KEY}-9` }, 200n, 0x88n);
    await clock.pass(SOON_MS);

    expect(deletes()).toEqual([]);
  });

  test("is looked for by itself when etcd refuses to list the keys", async () => {
    const { clock, own, late, put, of, deletes, refuse } = doubting();
    refuse(new EtcdRefusedError("permission", "a:1", "etcdserver: permission denied"));
    own.release(late);

    put(late, 200n);
    await clock.pass(SOON_MS);

    expect(of("range").map(({ request }) => (request as Range).key)).toEqual([late.key]);
    expect(deletes()).toEqual([guardedDelete(late.key, 200n)]);
  });

  test("is looked for no longer when the lease is over", async () => {
    const { clock, lease, put, deletes, late, own } = doubting();
    own.release(late);

    lease.abandon();
    put(late, 200n);
    await clock.pass(DOUBT_OVER_MS);

    expect(deletes()).toEqual([]);
    expect(clock.timers).toBe(0);
  });
});

describe("a key of our lease that is no place of ours", () => {
  test("is deleted when the same put was applied again after the release, though every attempt was answered", async () => {
    const { clock, own, put, deletes } = session();
    const entry = joined(own, 160n);
    own.release(entry);

    put(entry, 180n);
    await clock.pass(40_000);

    expect(deletes()).toEqual([guardedDelete(KEY, 180n)]);
  });

  test("is looked for when the lease is renewed over a new stream: etcd may have been restored", async () => {
    const { cluster, clock, lease, own, put, of, deletes } = session();
    const entry = joined(own, 160n);
    own.release(entry);
    void lease.renewNow().catch(() => undefined);
    await clock.pass(DOUBT_OVER_MS);
    put(entry, 160n);
    const lists = of("timeToLive").length;

    cluster.member.keepalives[0]!.end();
    await clock.pass(10 * SOON_MS);

    expect(of("timeToLive").length).toBeGreaterThan(lists);
    expect(deletes()).toEqual([guardedDelete(KEY, 160n)]);
  });

  test("is not taken by a new place while it is being deleted", async () => {
    const { clock, own, put, stored, late } = doubting();
    own.release(late);
    put({ ...late, key: `${KEY}-2` }, 200n);

    await clock.pass(SOON_MS);
    expect([...stored.keys()]).toEqual([]);

    expect([own.make().key, own.make().key]).toEqual([`${KEY}-3`, `${KEY}-4`]);
  });

  test("is spared when this library has not put it: a user may bind keys of the same form", async () => {
    const { clock, put, deletes } = doubting();

    put({ key: "services/77", value: "http://10.0.0.1" }, 200n);
    await clock.pass(DOUBT_OVER_MS);

    expect(deletes()).toEqual([]);
  });

  test("may have any value where the session has had candidates", async () => {
    const { clock, lease, put, deletes } = session();
    const own = LockTable.of(lease).queue("election").own;
    const candidate = own.make({ value: "http://10.0.0.1" }).confirmed(150n);
    own.add(candidate);
    own.release(candidate);

    put(candidate, 200n);
    await clock.pass(40_000);

    expect(deletes()).toEqual([guardedDelete(candidate.key, 200n)]);
  });
});

describe("the number of a place", () => {
  test("is free again when its put was answered", () => {
    const own = LockTable.of(new FakeCluster().lease()).queue("jobs").own;
    const [first, second] = [own.make(), own.make()];

    own.release(first);

    expect([first.key, second.key, own.make().key]).toEqual([KEY, `${KEY}-2`, KEY]);
  });

  test("is not given again at once when its key is there with another value", () => {
    const own = LockTable.of(new FakeCluster().lease()).queue("jobs").own;

    own.takenByAnother(own.make());

    expect(own.make().key).toBe(`${KEY}-2`);
  });

  test("does not tell the order: the predecessor among our own is found by create revision", () => {
    const own = LockTable.of(new FakeCluster().lease()).queue("jobs").own;
    const [a, b, c] = [joined(own, 30n), joined(own, 10n), joined(own, 20n)];

    expect([a, c, b].map((entry) => own.followedBy(entry))).toEqual([c, b, undefined]);
    own.remove(c);
    expect(own.followedBy(a)).toBe(b);
  });
});
