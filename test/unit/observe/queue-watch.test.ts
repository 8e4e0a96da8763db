// A watch that begins again in the past may be of an etcd that was compacted at the very revision of a deletion, which it never reports.
import { expect, test } from "vitest";
import type { KeyValue, Range } from "../../../src/etcd/port.js";
import { type QueueChange, QueueWatch } from "../../../src/observe/queue-watch.js";
import { settle } from "../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER } from "../../support/fakes/fake-connection.js";
import { keyValue } from "../../support/fakes/fake-member.js";

const PREFIX = "group/";
const KEYS = ["group/a", "group/b"];
const AT = HEADER.revision;
/** Longer than a soon read waits, and much shorter than a slow one. */
const SOON_MS = 1000;
const LATEST_EVENT_MS = 10_000;
const SLOW_MS = 30_000;

/** A watch that has seen two keys, and then lost its stream. */
async function world({ isShared = true } = {}) {
  const cluster = new FakeCluster();
  cluster.clock.nextRandom = 0.5;
  let shown: readonly string[] = [];
  const watch = new QueueWatch<KeyValue>(
    {
      services: cluster.services,
      range: { key: PREFIX, end: "group0" },
      what: "look",
      isShared,
      keep: (kv) => kv,
    },
    {
      changed: ({ keys }: QueueChange<KeyValue>) => void (shown = [...keys.keys()]),
      failed: (error) => {
        throw error;
      },
    },
  );
  const reads = () => cluster.connected.flatMap((member) => member.of("range"));
  const answer = async (revision: bigint, keys: readonly string[]) => {
    const kvs = keys.map((key) => keyValue({ key, createRevision: 5n, modRevision: 5n }));
    const header = { ...HEADER, revision };
    reads().at(-1)?.answer({ header, kvs, count: kvs.length, more: false });
    await settle();
  };
  const stream = () => cluster.member.watches.at(-1)!;
  const created = async (revision: bigint) => {
    await cluster.clock.pass(100);
    stream().created(PREFIX, revision);
    await settle();
  };
  const broken = async () => {
    stream().end();
    await settle();
    await cluster.clock.pass(100);
  };
  await settle();
  await answer(AT, KEYS);
  await created(AT);
  await broken();
  return { cluster, watch, reads, answer, stream, created, broken, shown: () => shown };
}

test("a shared watch that begins in the past reads soon, and shows what it has missed", async () => {
  const { cluster, reads, answer, created, shown } = await world();
  await created(AT + 2n);
  await cluster.clock.pass(SOON_MS);
  expect(reads()).toHaveLength(2);

  await answer(AT + 2n, ["group/a"]);
  await cluster.clock.pass(LATEST_EVENT_MS);
  await answer(AT + 3n, ["group/a"]);

  expect(shown()).toEqual(["group/a"]);
});

test("it reads soon although the watch breaks before, and the next one begins at the last revision", async () => {
  const { cluster, reads, answer, stream, created, broken, shown } = await world();
  await created(AT + 2n);
  stream().deleted("group/c", AT + 2n);
  await broken();
  await created(AT + 2n);
  await cluster.clock.pass(SOON_MS);
  expect(reads()).toHaveLength(2);

  await answer(AT + 2n, ["group/a"]);
  await cluster.clock.pass(LATEST_EVENT_MS);
  await answer(AT + 3n, ["group/a"]);

  expect(shown()).toEqual(["group/a"]);
});

test("it reads again soon if an event has come before the answer, until an answer can be compared, and not after that", async () => {
  const { cluster, reads, answer, stream, created } = await world();
  await created(AT + 2n);
  await cluster.clock.pass(SOON_MS);
  stream().deleted("group/c", AT + 3n);
  await answer(AT + 2n, ["group/a"]);
  await cluster.clock.pass(SOON_MS);
  expect(reads()).toHaveLength(3);

  await answer(AT + 3n, ["group/a", "group/b"]);
  await cluster.clock.pass(LATEST_EVENT_MS + SOON_MS);

  expect(reads()).toHaveLength(3);
});

test("a read that checks the watch gets no values, and one that does follows if a key differs", async () => {
  const { cluster, reads, answer, created } = await world();
  const ofValues = () => reads().map(({ request }) => (request as Range).keysOnly !== true);
  await created(AT + 2n);
  await cluster.clock.pass(SOON_MS);
  await answer(AT + 2n, KEYS);
  await cluster.clock.pass(LATEST_EVENT_MS);
  expect(ofValues()).toEqual([true, false]);

  await cluster.clock.pass(SLOW_MS);
  await answer(AT + 2n, ["group/a"]);
  await cluster.clock.pass(LATEST_EVENT_MS);
  expect(ofValues()).toEqual([true, false, false, true]);
});

test("one that isn't shared reads no sooner", async () => {
  const { cluster, reads, created } = await world({ isShared: false });
  await created(AT + 2n);
  await cluster.clock.pass(LATEST_EVENT_MS);
  expect(reads()).toHaveLength(1);
});
