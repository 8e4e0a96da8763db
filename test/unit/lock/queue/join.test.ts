// How entries are put: of one name, or of several in one transaction.
import { describe, expect, test } from "vitest";
import type { Txn } from "../../../../src/etcd/port.js";
import { MultiWaiter } from "../../../../src/lock/lock-all.js";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import { txnsOf } from "../../../support/fakes/airport.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER, LEASE_ID } from "../../../support/fakes/fake-connection.js";
import { type FakeCall, keyValue } from "../../../support/fakes/fake-member.js";

interface Put {
  readonly key: string;
  readonly value: string;
}

const putsOf = ({ request }: FakeCall): readonly Put[] =>
  (request as Txn).success.flatMap((each) =>
    each.kind === "put" ? [{ key: each.key.toString(), value: each.value }] : [],
  );

/** A key of our lease, as etcd shows it. */
const found = ({ key, value }: Put, createRevision: bigint) => ({
  header: HEADER,
  kvs: [{ ...keyValue({ key, createRevision, modRevision: createRevision }), value, leaseId: LEASE_ID }],
  count: 1,
  more: false,
});

const NOTHING = { header: HEADER, kvs: [], count: 0, more: false };

/** A session, and the transactions that it has sent. */
function world() {
  const cluster = new FakeCluster();
  const lease = cluster.lease();
  const sent = async (): Promise<readonly FakeCall[]> => {
    await settle();
    return cluster.member.of("txn");
  };
  /** Answers the last one: its compares do not hold, and its keys are these. */
  const failed = async (...ranges: readonly (typeof NOTHING | ReturnType<typeof found>)[]) => {
    (await sent()).at(-1)!.answer({ succeeded: false, header: HEADER, ranges });
    await settle();
  };
  const executed = async () => {
    (await sent()).at(-1)!.answer({ succeeded: true, header: HEADER, ranges: [] });
    await settle();
  };
  /** What the last one puts. */
  const puts = async () => putsOf((await sent()).at(-1)!) as readonly [Put, Put];
  const deleted = async () => {
    await settle();
    const txns = (["txn", "batch"] as const).flatMap((method) => cluster.member.of(method).flatMap(txnsOf));
    return txns.flatMap(({ success }) =>
      success.flatMap((each) => (each.kind === "delete" ? [each.key] : [])),
    );
  };
  return { clock: cluster.clock, lease, sent, failed, executed, puts, deleted };
}

describe("several names", () => {
  test("are held by an earlier attempt that put them into empty queues, without another request", async () => {
    const { lease, sent, failed, puts } = world();
    const waiter = new MultiWaiter(lease, { names: ["a", "b"] });
    const [a, b] = await puts();

    await failed(found(a, 90n), found(b, 90n));
    const holds = await waiter.granted;

    expect(holds.map(({ key, revision }) => [key, revision])).toEqual([
      ["a/77", 90n],
      ["b/77", 90n],
    ]);
    expect(await sent()).toHaveLength(1);
  });

  test("whose keys were not put together are given back, and joined anew", async () => {
    const { clock, lease, failed, puts, deleted } = world();
    const waiter = new MultiWaiter(lease, { names: ["a", "b"] });
    await failed(NOTHING, NOTHING);
    const [a, b] = await puts();

    await failed(found(a, 90n), found(b, 91n));
    await clock.pass(1000);

    expect(waiter.joined).toBe(false);
    expect(await deleted()).toEqual([a.key, b.key]);
  });

  test("join under another number where a key is another client's, and give the others back", async () => {
    const { clock, lease, failed, executed, puts, deleted } = world();
    void new MultiWaiter(lease, { names: ["a", "b"] });
    await failed(NOTHING, NOTHING);
    const [a, b] = await puts();

    await failed(found(a, 90n), found({ ...b, value: "another's" }, 80n));
    expect(await deleted()).toEqual([a.key]);
    await executed();
    await clock.pass(100);

    expect((await puts()).map(({ key }) => key)).toEqual(["a/77", "b/77-2"]);
  });
});

describe("a try", () => {
  test("that finds its key with another value gives the next one another number", async () => {
    const { lease, failed, puts } = world();
    const queue = LockTable.of(lease).queue("a");
    const first = queue.tryJoin({});
    const [a] = await puts();

    await failed(found({ ...a, value: "another's" }, 80n));
    expect(await first).toBeUndefined();
    void queue.tryJoin({}).catch(() => undefined);

    expect((await puts()).map(({ key }) => key)).toEqual(["a/77-2"]);
  });
});

describe("a join that follows a release", () => {
  /** A name whose only entry is being released, and the next caller. */
  async function following() {
    const { clock, lease, sent, puts } = world();
    const queue = LockTable.of(lease).queue("jobs");
    const holder = queue.join();
    const [put] = await puts();
    const { kvs, count } = found(put, HEADER.revision);
    const range = { kvs, count, more: false };
    (await sent()).at(-1)!.answer({ succeeded: true, header: HEADER, ranges: [undefined, range] });
    const entry = await holder.granted;
    void queue.leave(entry).catch(() => undefined);
    const next = queue.join();
    next.granted.catch(() => undefined);
    const requests = async () =>
      (await sent()).map(({ request }) => (request as Txn).success.map(({ kind }) => kind));
    return { clock, lease, sent, requests, next };
  }
  const BEFORE = [["put", "range"], ["delete"]];

  test("is sent 2 ms later, and reads the queue", async () => {
    const { clock, requests } = await following();
    expect(await requests()).toEqual(BEFORE);

    // Transactions that follow another one leave together, after the events that are pending: the next timer comes after those.
    clock.after(3, () => undefined);
    await clock.pass(3);

    expect(await requests()).toEqual([...BEFORE, ["put", "range"]]);
  });

  test("is sent when the release is answered, if that is sooner", async () => {
    const { sent, requests } = await following();

    (await sent()).at(-1)!.answer({ succeeded: true, header: HEADER, ranges: [] });

    expect(await requests()).toEqual([...BEFORE, ["put", "range"]]);
  });

  test("is not sent if the session has ended meanwhile, unnoticed since the process was suspended", async () => {
    const { clock, lease, requests, next } = await following();

    clock.freeze(lease.ttlMs);
    await clock.pass(2);

    expect(await requests()).toEqual(BEFORE);
    await expect(next.granted).rejects.toMatchObject({ code: "SESSION_LOST" });
  });
});

test("a try that ends before its request is sent, which takes along another join, deletes its key", async () => {
  const cluster = new FakeCluster({ hosts: "a:1" });
  cluster.reachable = false;
  const table = LockTable.of(cluster.lease());
  const tried = table.queue("a").tryJoin({ giveUpMs: 100 });
  void table.queue("b").join();
  await settle();
  const [request] = cluster.member.of("batch");
  expect(txnsOf(request!)).toHaveLength(2);

  await Promise.all([expect(tried).rejects.toThrow(), cluster.clock.pass(100)]);
  // The connection opens.
  const answer = { succeeded: true, header: HEADER, ranges: [] };
  request!.answer([answer, answer]);
  cluster.clock.after(0, () => undefined);
  await cluster.clock.pass(0);

  const deletes = (["txn", "batch"] as const)
    .flatMap((method) => cluster.member.of(method).flatMap(txnsOf))
    .flatMap(({ success }) => success.flatMap((each) => (each.kind === "delete" ? [each.key] : [])));
  expect(deletes).toEqual([`a/${LEASE_ID.toString(16)}`]);
});

describe("a call with maxWaiting", () => {
  const foreign = (key: string, createRevision: bigint) => ({ key: `jobs/${key}`, createRevision });
  const shows = (...keys: { key: string; createRevision: bigint }[]) => {
    const kvs = keys.map((key) => keyValue({ ...key, modRevision: key.createRevision, leaseId: 5n }));
    return { header: HEADER, kvs, count: kvs.length, more: false };
  };
  const holder = foreign("5", 10n);

  /** Others have joined whenever it tries to. */
  async function starved() {
    const { lease, sent, failed, deleted } = world();
    const waiter = LockTable.of(lease).queue("jobs").join({ maxWaiting: 2 });
    for (let n = 0; n < 21; n++) await failed(NOTHING, shows(holder), shows(holder));
    const compared = (await sent()).map(({ request }) => (request as Txn).compare.map(({ kind }) => kind));
    expect(compared[20]).toContain("nothing since");
    expect(compared[21]).toEqual(["created at"]);
    /** Its join is answered, behind these. */
    const joined = async (...before: { key: string; createRevision: bigint }[]) => {
      const all = [...before, { key: "jobs/77", createRevision: 20n }];
      const ranges = [undefined, shows(...all.toReversed()), shows(...before.slice(0, 2)), shows(...all)];
      (await sent()).at(-1)!.answer({ succeeded: true, header: { ...HEADER, revision: 20n }, ranges });
      await settle();
    };
    return { waiter, joined, deleted };
  }

  test("joins in any case if others join all the time, and stays if few wait before it", async () => {
    const { waiter, joined, deleted } = await starved();
    await joined(holder, foreign("6", 12n));
    expect([waiter.stage.at, waiter.revision]).toEqual(["turn", 20n]);
    expect(await deleted()).toEqual([]);
  });

  test("leaves again if so many wait before it", async () => {
    const { waiter, joined, deleted } = await starved();
    await joined(holder, foreign("6", 12n), foreign("7", 15n));
    await expect(waiter.granted).rejects.toMatchObject({ code: "QUEUE_FULL", waiting: 2 });
    expect(await deleted()).toEqual(["jobs/77"]);
  });
});
