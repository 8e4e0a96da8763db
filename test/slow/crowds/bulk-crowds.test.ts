// Thousands of waiting calls of one process come, give up and are served: only here are stalls and requests counted at that number.
import { execFileSync, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { crowdOf } from "../../support/fixtures/scale.js";
import { meter } from "../../support/fixtures/spent.js";
import { owned } from "../../support/programs/owned.js";
import { Said } from "../../support/programs/said.js";

const BUILD = fileURLToPath(new URL("../../../scripts/build.js", import.meta.url));
const PROGRAM = fileURLToPath(new URL("../../support/programs/bulk-program.js", import.meta.url));
const BULK = crowdOf(10_000, 2000);
/** A hand-over is a separate write: those of the whole crowd would take minutes on a slow disk. */
const DRAINED = crowdOf(2000, 500);
const KIB = 1024;
/** CPU time: 300 ms for 10,000 on a machine without other load, three times as much on a busy one. */
const STALL_MS = crowdOf(3000, 1000);

interface Came {
  readonly longestTurnMs: number;
  readonly heapEach: number;
  readonly outcome: Record<string, number>;
  readonly held: number;
  readonly core: number;
}

let etcd: EtcdCluster;
beforeAll(() => {
  execFileSync(process.execPath, [BUILD], { timeout: 120_000 });
}, 150_000);
beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());

/** A separate process for this many; it is killed at the end of the scope. */
async function start(count: number) {
  const child = owned(fork(PROGRAM, [etcd.endpoints.join(), String(count)], { execArgv: ["--expose-gc"] }));
  const said = new Said(child);
  await said.next();
  const tell = (step: string) => {
    child.send(step);
    return said.next<Came>();
  };
  // Processes that reach their end are closed before: none of their leases ends while another test counts.
  return { tell, [Symbol.dispose]: () => child.kill("SIGKILL") };
}

describe(`${BULK} waiters of one process on one name`, { timeout: 120_000 }, () => {
  it("cost less than 4 KiB of heap each, and no turn of the event loop is a stall when they come and give up", async () => {
    using crowd = await start(BULK);

    const joined = await crowd.tell("wait");
    const aborted = await crowd.tell("abort");

    expect(joined.heapEach).toBeLessThan(4 * KIB);
    await crowd.tell("close");
    expect(aborted.outcome).toEqual({ AbortError: BULK });
    expect(Math.max(joined.longestTurnMs, aborted.longestTurnMs)).toBeLessThan(STALL_MS);
  });

  it("are all told at once, without a stall, that their session is closed", async () => {
    using crowd = await start(BULK);
    await crowd.tell("wait");

    const closed = await crowd.tell("close");

    expect(closed.outcome).toEqual({ SessionClosedError: BULK });
    expect(closed.longestTurnMs).toBeLessThan(STALL_MS);
  });
});

describe(`${DRAINED} waiters of one process on one name`, { timeout: 120_000 }, () => {
  it("are served with at most 3 requests each and one more per hundred, without a stall", async () => {
    using crowd = await start(DRAINED);
    const spent = await meter(etcd.member);

    const joined = await crowd.tell("wait");
    const drained = await crowd.tell("drain");

    expect(drained.outcome).toEqual({ served: DRAINED });
    const { revisions = 0, ...requests } = await spent.read();
    const sum = Object.values(requests).reduce((a, b) => a + b, 0);
    expect(sum).toBeLessThanOrEqual(3 * DRAINED + DRAINED / 100);
    // One put and one delete for each place, and for the first holder.
    expect(revisions).toBe(2 * (DRAINED + 1));
    await crowd.tell("close");
    expect(Math.max(joined.longestTurnMs, drained.longestTurnMs)).toBeLessThan(STALL_MS);
  });
});

/** The names above those of the locks: each is asked about once. */
const ABOVE = 2;

describe(`${BULK} locks of one session on names of their own`, { timeout: 180_000 }, () => {
  it("are watched and read once each, and then nothing but the renewals of their lease is sent", async () => {
    using holder = await start(BULK);
    const spent = await meter(etcd.member);

    const locked = await holder.tell("hold");
    expect(locked.held).toBe(BULK);
    const reads = async () => (await spent.read())["Range"];
    await expect.poll(reads, { timeout: 90_000, interval: 500 }).toBe(BULK + ABOVE);

    await holder.tell("rest");
    await spent.lap({ LeaseKeepAlive: 1 }, { timeoutMs: 60_000 });
    // Lists of all keys of the lease: one falls into this span; after a join in doubt, on a slow machine, several with
    // growing pauses.
    const { LeaseTimeToLive = 0, ...idle } = await spent.lap({ LeaseKeepAlive: 2 }, { timeoutMs: 60_000 });
    const { core } = await holder.tell("rested");

    expect(idle).toEqual({ LeaseKeepAlive: 2 });
    expect(LeaseTimeToLive).toBeLessThanOrEqual(6);
    expect(core).toBeLessThan(0.02);
    expect(locked.longestTurnMs).toBeLessThan(STALL_MS);
    const closed = await holder.tell("close");
    expect(closed.held).toBe(0);
    expect(closed.longestTurnMs).toBeLessThan(STALL_MS);
  });
});
