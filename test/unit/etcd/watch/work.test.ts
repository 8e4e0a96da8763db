import { describe, expect, test, vi } from "vitest";
import type { Watch } from "../../../../src/etcd/watch-hub.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";
import { type FakeWatch, keyValue } from "../../../support/fakes/fake-member.js";

const TIMES = 10;
const FEW = 2000;
const MANY = TIMES * FEW;
/** If the work for one watch grows with the number of all watches, the result is almost 10. */
const LIMIT = 4;
const MIN_ROUNDS = 3;
const MAX_ROUNDS = 20;

interface Watching {
  readonly cluster: FakeCluster;
  readonly watches: readonly Watch[];
  readonly streams: () => readonly FakeWatch[];
}

/** Watches that are not sent yet. */
function unsent(count: number): Watching {
  const cluster = new FakeCluster();
  const listener = { created() {}, events() {}, interrupted() {}, refused() {} };
  const watches = Array.from({ length: count }, (_, n) =>
    cluster.services.watches.watch({ key: `k${n}`, events: "DELETE" }, listener),
  );
  return { cluster, watches, streams: () => cluster.member.watches };
}

function sent(count: number): Watching {
  const watching = unsent(count);
  watching.cluster.clock.advance(0);
  return watching;
}

function created(count: number): Watching {
  const watching = sent(count);
  answerCreates(watching);
  return watching;
}

function answerCreates({ streams }: Watching): void {
  for (const stream of streams())
    for (const { watchId } of stream.creates) stream.answer({ watchId, created: true });
}

function deletions({ streams }: Watching) {
  return streams().flatMap((stream) =>
    stream.creates.map(({ watchId, key }) => {
      const kv = keyValue({ key: key.toString(), modRevision: 200n });
      return { stream, answer: { watchId, events: [{ kind: "DELETE" as const, kv }] } };
    }),
  );
}

const cancelAll = ({ watches }: Watching): void => [...watches].reverse().forEach((watch) => watch.cancel());

/** CPU time of this process in ms: other processes do not add to it by taking turns. */
function worked<Each>(all: readonly Each[], work: (each: Each) => void): number {
  const before = process.cpuUsage();
  for (const each of all) work(each);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

/**
 * The work for the watches of one cluster, relative to that for as many watches of ten clusters, by the minimum of each:
 * garbage collection and other processes' use of the caches can only add to it. Stops as soon as the result is clear.
 */
function growth<Each>(prepare: (count: number) => Each, work: (each: Each) => void): number {
  let [apart, together] = [Infinity, Infinity];
  for (let round = 1; round <= MAX_ROUNDS; round++) {
    const clusters = Array.from({ length: TIMES }, () => prepare(FEW));
    apart = Math.min(apart, worked(clusters, work));
    together = Math.min(together, worked([prepare(MANY)], work));
    if (round >= MIN_ROUNDS && together / apart < LIMIT) break;
  }
  return together / apart;
}

describe("the work for one watch is the same among 20,000 as among 2,000:", () => {
  test.each<[string, (count: number) => Watching, (watching: Watching) => void]>([
    ["to take it back before it is sent", unsent, cancelAll],
    ["to send it", unsent, ({ cluster }) => cluster.clock.advance(0)],
    ["to take it back before it is created", sent, cancelAll],
    ["to hear that it is created", sent, answerCreates],
    ["to cancel it", created, cancelAll],
    ["to move it", created, ({ streams }) => streams()[0]?.end()],
  ])("%s", (_, prepare, work) => {
    expect(growth(prepare, work)).toBeLessThan(LIMIT);
  });

  test("to tell it an event", () => {
    const prepare = (count: number) => deletions(created(count));

    const ratio = growth(prepare, (all) => all.forEach(({ stream, answer }) => stream.answer(answer)));

    expect(ratio).toBeLessThan(LIMIT);
  });
});

test("an event is compared with the bytes of a key that were made once, for its first event", () => {
  const events = deletions(created(100));
  for (const { stream, answer } of events) stream.answer(answer);

  const made = vi.spyOn(Buffer, "from");
  for (const { stream, answer } of events) stream.answer(answer);
  const times = made.mock.calls.length;
  made.mockRestore();

  expect(times).toBe(0);
});
