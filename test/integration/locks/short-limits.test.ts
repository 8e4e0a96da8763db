// Limits that are too short for an answer of an etcd that is in order.
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect, lockAll, LockTimeoutError, Mutex, type Cluster } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { freePorts } from "../../support/servers/ports.js";

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

const TIMES = Array.from({ length: 20 }, (_, n) => n);

/** The code of the error; undefined: it was in time. */
async function codeOf(locking: Promise<{ release(): Promise<void> }>): Promise<unknown> {
  try {
    await (await locking).release();
    return undefined;
  } catch (error) {
    return (error as { code?: unknown }).code;
  }
}

const each = async (run: (n: number) => Promise<unknown>) => {
  const codes = new Set<unknown>();
  for (const n of TIMES) codes.add(await run(n));
  codes.delete(undefined);
  return [...codes];
};

const lock = (cluster: Cluster, n: number) => new Mutex(cluster, `short/${n}`).lock({ timeoutMs: 1 });

test("a lock with a limit of 1 ms is in time or a timeout, never an etcd that did not answer", async () => {
  await using cluster = connect({ hosts: etcd.endpoints });
  // Whether the first session is there in time is a matter of luck.
  const cold = await each((n) => codeOf(lock(cluster, n)));
  await cluster.session();
  const warm = await each((n) => codeOf(lock(cluster, n)));
  const all = await each((n) => codeOf(lockAll(cluster, [`short/${n}`, `all/${n}`], { timeoutMs: 1 })));
  for (const codes of [cold, warm, all]) expect([[], ["LOCK_TIMEOUT"]]).toContainEqual(codes);
});

test("the error of one says that etcd had no time to answer", async () => {
  await using cluster = connect({ hosts: etcd.endpoints });
  let error: unknown;
  // Now and then, all the answers are there when the timer runs.
  for (let n = 0; n < 50 && !(error instanceof Error); n++)
    error = await lock(cluster, n).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(LockTimeoutError);
  expect(error).toMatchObject({
    message: 'Lock "short/0" not acquired within 1 ms: etcd had no time to answer',
    ...{ holder: undefined, ahead: undefined },
  });
});

test("with a host that refuses connections it is an etcd that does not answer, as soon as an attempt has failed", async () => {
  const [port] = await freePorts(1);
  await using cluster = connect({ hosts: `127.0.0.1:${port}` });
  await expect(new Mutex(cluster, "short").lock({ timeoutMs: 200 })).rejects.toMatchObject({
    code: "ETCD_UNAVAILABLE",
  });
  await expect(lock(cluster, 0)).rejects.toMatchObject({ code: "ETCD_UNAVAILABLE" });
});
