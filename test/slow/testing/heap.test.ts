// What `memoryEtcd` and `startDevEtcd` keep of locks that were released: the last changes of keys, and nothing else.
import { once } from "node:events";
import { connect as http2 } from "node:http2";
import { describe, expect, test } from "vitest";
import { connect, Mutex, type Cluster } from "../../../src/index.js";
import { encode } from "../../../src/testing/grpc/codec.js";
import * as messages from "../../../src/testing/grpc/messages.js";
import { memoryEtcd, startDevEtcd } from "../../../src/testing/start.js";
import { memoryInUse } from "../../support/fixtures/memory.js";

const LONG = { timeout: 120_000 };

/** As many names at a time as there are lanes. */
async function lockAndRelease(cluster: Cluster, times: number, lanes: number): Promise<void> {
  const lockOne = async (_: unknown, lane: number): Promise<void> => {
    const mutex = new Mutex(cluster, `jobs/${lane}`);
    for (let n = 0; n < times / lanes; n++) await (await mutex.lock()).release();
  };
  await Promise.all(Array.from({ length: lanes }, lockOne));
}

interface Work {
  readonly locks: number;
  readonly more: number;
  readonly lanes?: number;
  /** After all of them. */
  readonly compact?: () => Promise<void>;
}

/** How much the heap has grown after `locks` locks, and after so many more, as a ratio. */
async function growthRatio(cluster: Cluster, { locks, more, lanes = 1, compact }: Work): Promise<number> {
  await lockAndRelease(cluster, 200, lanes);
  const { heap: before } = memoryInUse();
  await lockAndRelease(cluster, locks, lanes);
  const { heap: between } = memoryInUse();
  await lockAndRelease(cluster, more, lanes);
  await compact?.();
  return (memoryInUse().heap - before) / (between - before);
}

/** A lock and its release change a key each, and 12,000 changes are what is kept at most. */
const WINDOW = 6_000;

describe.each([
  { members: 1, time: "real" },
  { members: 3, time: "virtual" },
] as const)("memoryEtcd with $members members, in $time time", (options) => {
  test("has the heap of its last 12,000 changes, however many there were", LONG, async () => {
    const etcd = await memoryEtcd(options);
    const cluster = connect({ hosts: etcd.hosts });
    const ratio = await growthRatio(cluster, { locks: WINDOW, more: 2 * WINDOW });
    await cluster.close();
    await etcd.stop();

    expect(ratio).toBeLessThan(1.3);
  });
});

test("startDevEtcd has no more heap after 10,000 locks and a compaction than after 1,000", LONG, async () => {
  const etcd = await startDevEtcd({ port: 0 });
  const cluster = connect({ hosts: etcd.hosts });
  const session = http2(`http://${etcd.hosts[0]}`);
  const compact = async (): Promise<void> => {
    const { revision } = await new Mutex(cluster, "compacted").lock();
    const stream = session.request({
      ...{ ":method": "POST", ":path": "/etcdserverpb.KV/Compact", "content-type": "application/grpc" },
    });
    stream.end(encode(messages.COMPACTION_REQUEST, { revision })).resume();
    await once(stream, "close");
  };
  const ratio = await growthRatio(cluster, { locks: 1_000, more: 9_000, lanes: 50, compact });
  session.destroy();
  await cluster.close();
  await etcd.stop();

  // What is kept for each lock would make it ten.
  expect(ratio).toBeLessThan(3);
});
