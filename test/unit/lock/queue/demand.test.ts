// What a real etcd shows only by chance: several events in one answer, streams that move, a member that lags.
import { expect, test, vi } from "vitest";
import type { KeyValue, WatchEvent } from "../../../../src/etcd/port.js";
import type { Watch } from "../../../../src/etcd/watch-hub.js";
import { Demand } from "../../../../src/lock/queue/demand.js";
import { type JoinedEntry, QueueEntry } from "../../../../src/lock/queue/entry.js";
import { exclusive, GRANTED } from "../../../../src/lock/queue/lock-mode.js";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

const MINE = 50n;
const QUEUE = "jobs/";

const keyOf = (n: bigint): string => `jobs/${n.toString(16)}`;
const kv = (n: bigint): KeyValue => keyValue({ key: keyOf(n), createRevision: n, modRevision: n });
const put = (n: bigint): WatchEvent => ({ kind: "PUT", kv: kv(n) });
const left = (n: bigint, at: bigint): WatchEvent => ({ kind: "DELETE", kv: { ...kv(n), modRevision: at } });

/** A hold of the entry of revision 50 that listens; etcd has created its watch at 60, and shows no other entry. */
class Listening {
  readonly cluster = new FakeCluster();
  readonly entry: QueueEntry;
  readonly demand: Demand;
  readonly hold = { held: true, revision: MINE };
  readonly told: bigint[] = [];
  readonly stop: () => void;

  constructor() {
    const lease = this.cluster.lease();
    const entry = new QueueEntry({ lease, name: "jobs", n: 1, mode: exclusive, sticky: true }).confirmed(
      MINE,
    );
    this.entry = entry;
    this.demand = Demand.of(LockTable.of(lease).queue("jobs"), entry);
    this.stop = this.listen();
  }

  static async begin(): Promise<Listening> {
    const listening = new Listening();
    listening.cluster.clock.advance(0);
    listening.stream.created(QUEUE, 60n);
    await listening.answer([], 60n);
    return listening;
  }

  listen(told: (revision: bigint) => void = (revision) => void this.told.push(revision)): () => void {
    return this.demand.listen(this.hold, { told: ({ revision }) => told(revision), over: () => undefined });
  }

  get stream() {
    return this.cluster.connected.flatMap(({ watches }) => watches).at(-1)!;
  }

  get reads() {
    return this.cluster.connected.flatMap((member) => member.of("range"));
  }

  /** The latest read shows our entry, and these. */
  answer(others: readonly bigint[], revision: bigint): Promise<void> {
    const own = keyValue({ key: this.entry.key, createRevision: MINE, modRevision: MINE });
    return this.answerWith([own, ...others.map(kv)], revision);
  }

  async answerWith(kvs: readonly KeyValue[], revision: bigint, more = false): Promise<void> {
    await settle();
    this.reads.at(-1)!.answer({ header: { ...HEADER, revision }, kvs, more, count: kvs.length });
    await settle();
  }

  /** One answer of the watch. */
  async events(...events: readonly WatchEvent[]): Promise<void> {
    const { watchId } = this.stream.creates[0]!;
    this.stream.answer({ watchId, events: [...events] }, events.at(-1)!.kv.modRevision);
    await settle();
  }

  get wanted(): boolean {
    return this.demand.wanted(this.hold);
  }
}

test("a waiter that came and went in one answer wants nothing", async () => {
  const it = await Listening.begin();

  await it.events(put(61n), left(61n, 62n));

  expect([it.told, it.wanted, it.reads.length]).toEqual([[], false, 1]);
});

test("of several in one answer, the newest that still waits is told, and no read is needed", async () => {
  const it = await Listening.begin();

  await it.events(put(61n), put(62n), put(63n), left(63n, 64n));

  expect([it.told, it.wanted, it.reads.length]).toEqual([[62n], true, 1]);
});

test("what a lagging member reports from before an answer is known", async () => {
  const it = await Listening.begin();

  await it.events(put(58n));
  expect([it.told, it.wanted]).toEqual([[], false]);
  await it.events(put(MINE));

  expect([it.told, it.wanted]).toEqual([[], false]);
});

test("a waiter is told once, though the stream moves and a read shows it again", async () => {
  const it = await Listening.begin();
  await it.events(put(61n));
  it.cluster.clock.advance(1000);
  await it.events(put(62n));

  it.stream.end();
  it.cluster.clock.advance(5000);
  await settle();
  it.stream.created(QUEUE, 70n);
  await it.answer([61n, 62n], 70n);
  it.cluster.clock.advance(5000);

  expect([it.told, it.wanted]).toEqual([[61n, 62n], true]);
});

test("one that joins while the stream moves is told, also after a restore with lower revisions", async () => {
  const it = await Listening.begin();

  it.stream.end();
  it.cluster.clock.advance(5000);
  await settle();
  it.stream.created(QUEUE, 52n);
  await it.answer([51n], 53n);
  await it.events(left(51n, 54n), put(55n));
  await it.answer([55n], 55n);
  it.cluster.clock.advance(1000);

  expect([it.told, it.wanted]).toEqual([[51n, 55n], true]);
});

test("later ones are told a second after the last one, and only the newest; whoever comes after a vacancy, at once", async () => {
  const it = await Listening.begin();
  await it.events(put(61n));
  await it.events(put(62n));
  await it.events(put(63n));
  expect(it.told).toEqual([61n]);
  it.cluster.clock.advance(1000);
  expect(it.told).toEqual([61n, 63n]);

  await it.events(left(61n, 64n), left(62n, 65n), left(63n, 66n));
  await it.answer([], 66n);
  expect(it.wanted).toBe(false);
  await it.events(put(67n));

  expect(it.told).toEqual([61n, 63n, 67n]);
});

test("a listener that adds itself again in its own call hears of the next waiter, and stops nothing", async () => {
  const it = await Listening.begin();
  let calls = 0;
  let stop = (): void => undefined;
  const again = (): void => {
    calls++;
    stop();
    stop = it.listen(again);
  };
  stop = it.listen(again);

  await it.events(put(61n));

  expect([calls, it.told]).toEqual([1, [61n]]);
});

test("a hold that is not the first to listen is told only of a waiter that is there since then, as one read shows", async () => {
  const it = await Listening.begin();
  await it.events(put(61n));
  const told: bigint[] = [];
  const next = { held: true, revision: MINE };
  it.demand.listen(next, { told: ({ revision }) => told.push(revision), over: () => undefined });
  // Its end was executed by then, but not reported.
  it.cluster.clock.advance(0);
  expect(told).toEqual([]);

  await it.answer([63n], 63n);

  expect([it.told, told, it.reads.length]).toEqual([[61n], [63n], 2]);
});

test("a later hold that listens while nobody is known to wait costs no read, and is told of whom the read after the next join shows", async () => {
  const it = await Listening.begin();
  const told: bigint[] = [];
  const later = { held: true, revision: MINE };
  it.demand.listen(later, { told: ({ revision }) => told.push(revision), over: () => undefined });
  it.cluster.clock.advance(0);
  await settle();
  expect(it.reads.length).toBe(1);

  // It may have left before that hold began.
  await it.events(put(61n));
  expect([it.told, told, it.reads.length]).toEqual([[61n], [], 2]);
  await it.answer([], 62n);
  expect(told).toEqual([]);
  await it.events(put(63n));

  // The first one has left.
  expect([it.told, told, it.reads.length]).toEqual([[61n, 63n], [63n], 2]);
});

test("a hold in doubt is told when it is held again", async () => {
  const it = await Listening.begin();
  it.hold.held = false;
  await it.events(put(61n));
  expect(it.told).toEqual([]);

  it.hold.held = true;
  it.cluster.clock.advance(1000);

  expect(it.told).toEqual([61n]);
});

test("a refused read ends what listens with the reason", async () => {
  const it = await Listening.begin();
  const over: unknown[] = [];
  it.demand.listen(it.hold, { told: () => undefined, over: (error) => void over.push(error) });
  await it.events(put(61n));
  await it.events(left(61n, 62n));
  await settle();
  for (let tries = 0; tries < 9 && over.length === 0; tries++) {
    const { member } = it.cluster;
    it.reads.at(-1)!.fail(member.failure("no permission"));
    await settle();
    it.cluster.clock.advance(1000);
    await settle();
  }

  expect(over).toMatchObject([{ code: "ETCD_REFUSED" }]);
  expect(it.wanted).toBe(false);
});

/** The key of a sticky lock, and what it heard. */
class Attended {
  readonly heard: string[] = [];

  constructor(readonly of: Listening) {
    const { entry } = of;
    const tell = (what: string) => () => void this.heard.push(what);
    const tenure = {
      entry: entry as JoinedEntry,
      demanded: (isShown?: boolean) => void this.heard.push(isShown ? "demanded, and shown" : "demanded"),
      clear: tell("clear"),
      unwatched: tell("unwatched"),
    };
    of.demand.attend({ held: true, revision: MINE, tenure });
  }

  static async begin(others: readonly bigint[] = [], own = true): Promise<Attended> {
    const attended = new Attended(await Listening.begin());
    await (own ? attended.of.answer(others, 60n) : attended.of.answerWith(others.map(kv), 60n));
    return attended;
  }
}

test("a key that may stay hears that a read has shown it, and nobody of another session behind it", async () => {
  expect((await Attended.begin()).heard).toEqual(["clear"]);
  expect((await Attended.begin([], false)).heard).toEqual(["unwatched"]);
});

test("a key that may stay hears that a read has shown another session behind it, and whether the key is there", async () => {
  expect((await Attended.begin([61n])).heard).toEqual(["demanded, and shown"]);
  expect((await Attended.begin([61n, 62n], false)).heard).toEqual(["demanded"]);
});

test("a hold in doubt whose key may stay is told when it is held again", async () => {
  const { of } = await Attended.begin();
  of.hold.held = false;
  await of.events(put(61n));
  expect(of.told).toEqual([]);

  of.hold.held = true;
  of.cluster.clock.advance(1000);

  expect(of.told).toEqual([61n]);
});

test("a key that may stay leaves if its queue is too long to be read", async () => {
  const { of, heard } = new Attended(await Listening.begin());
  const own = keyValue({ key: of.entry.key, createRevision: MINE, modRevision: MINE });

  // The second one asks for more.
  await of.answerWith([own], 60n, true);
  expect(heard).toEqual([]);
  await of.answerWith([own], 60n, true);

  expect(heard).toEqual(["unwatched"]);
});

test("a key that may stay hears at once of a join of another session, of its own end, and of a stream that moves", async () => {
  const joined = await Attended.begin();
  await joined.of.events(put(61n));
  const deleted = await Attended.begin();
  await deleted.of.events({ kind: "DELETE", kv: keyValue({ key: deleted.of.entry.key, modRevision: 61n }) });
  const moved = await Attended.begin();
  moved.of.stream.end();
  moved.of.cluster.clock.advance(1000);
  await settle();

  expect([joined, deleted, moved].map(({ heard }) => heard)).toEqual([
    ["clear", "demanded"],
    ["clear", "unwatched"],
    ["clear", "unwatched"],
  ]);
});

test("no read counts that was sent before the watch that reports what follows it", async () => {
  const it = await Listening.begin();
  await it.events(put(61n));
  await it.events(left(61n, 62n));
  await settle();
  const before = it.reads.at(-1)!;
  it.stream.end();
  it.cluster.clock.advance(100);
  await settle();
  const heard: string[] = [];
  const tell = (what: string) => () => void heard.push(what);
  const tenure = { entry: it.entry as JoinedEntry, demanded: tell("demanded"), clear: tell("clear") };
  it.demand.attend({ held: true, revision: MINE, tenure: { ...tenure, unwatched: tell("unwatched") } });
  const kvs = [keyValue({ key: it.entry.key, createRevision: MINE, modRevision: MINE })];
  before.answer({ header: { ...HEADER, revision: 62n }, kvs, more: false, count: 1 });
  await it.answer([], 62n);
  expect(heard).toEqual([]);

  // A stranger has joined in between.
  it.stream.created(QUEUE, 63n);
  await it.answer([63n], 63n);
  expect(heard).toEqual(["demanded"]);
});

test("a key that stays is taken again when a read after the watch has shown it, and not before", async () => {
  const it = new Listening();
  const queue = LockTable.of(it.entry.lease).queue("jobs");
  const entry = it.entry as JoinedEntry;
  queue.own.add(entry);
  queue.grant(entry, GRANTED);
  expect(queue.keep(entry)).toBe(true);
  expect(queue.takeKept()).toBeUndefined();

  it.cluster.clock.advance(0);
  it.stream.created(QUEUE, 60n);
  expect(queue.takeKept()).toBeUndefined();
  await it.answer([], 60n);

  expect(queue.takeKept()).toBe(entry);
  expect(entry.turn).toBe(2);
});

test("a join that no event reports is found by a read, one in five minutes in which a key that stays is used", async () => {
  const cluster = new FakeCluster();
  const lease = cluster.lease();
  const entry = new QueueEntry({ lease, name: "jobs", n: 1, mode: exclusive, sticky: true }).confirmed(MINE);
  const { timers, watches, client } = lease.services;
  // Time passes only between the turns of the event loop.
  vi.spyOn(timers, "turnMs").mockReturnValue(0);
  let created = (): void => undefined;
  vi.spyOn(watches, "watch").mockImplementation((_, listener) => {
    created = () => listener.created(60n);
    return { cancel: () => undefined } as Watch;
  });
  const kvs = [keyValue({ key: entry.key, createRevision: MINE, modRevision: MINE })];
  const reads = vi
    .spyOn(client, "ranges")
    .mockImplementation(() =>
      Promise.resolve({ header: { ...HEADER, revision: 61n }, ranges: [{ kvs, more: false, count: 1 }] }),
    );
  const queue = LockTable.of(lease).queue("jobs");
  queue.own.add(entry);
  queue.grant(entry, GRANTED);
  queue.keep(entry);
  created();
  await settle();

  const use = async (seconds: number): Promise<void> => {
    for (let left = seconds; left > 0; left--) {
      expect(queue.takeKept()).toBe(entry);
      queue.keep(entry);
      lease.renewed(cluster.clock.now(), 60);
      cluster.clock.advance(1000);
      await settle();
    }
  };
  await use(298);
  expect(reads).toHaveBeenCalledTimes(1);
  await use(4);
  expect(reads).toHaveBeenCalledTimes(2);
  await use(290);
  expect(reads).toHaveBeenCalledTimes(2);
  kvs.push(kv(61n));
  await use(5);
  for (let left = 10; left > 0 && queue.takeKept() === entry; left--) {
    queue.keep(entry);
    cluster.clock.advance(1000);
    await settle();
  }

  expect([reads.mock.calls.length, queue.takeKept()]).toEqual([3, undefined]);
});
