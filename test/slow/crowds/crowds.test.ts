import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connect, Mutex, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { Crowd } from "../../support/programs/crowd.js";
import { crowdOf } from "../../support/fixtures/scale.js";
import { judge } from "../../lab/checker/judge.js";
import type { Run, Step } from "../../lab/runner/history.js";
import { Observer } from "../../lab/runner/observer.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

async function observe(prefix: string) {
  const { revision } = await etcd.member.status();
  return new Observer(etcd.members, prefix, revision + 1n);
}

const outcomes = (history: readonly Step[], p: string, k: "ok" | "fail") =>
  history.flatMap((step) => (step.p === p && step.k === k && step.f === "acquire" ? [step] : []));

const PROCESSES = crowdOf(10, 4);
/** The number of places of one process in etcd: its other calls wait locally behind them. */
const PLACES = 100;
const CALLS = 150;

describe(`${PROCESSES * CALLS} waiters of ${PROCESSES} processes on one name`, () => {
  const ABORT_EVERY = 7;
  const ABORTED = Math.ceil(CALLS / ABORT_EVERY);
  const KILLED = "p3";
  let run: Run;
  let names: string[];
  let left: string[];

  beforeAll(async () => {
    const name = "crowd/jobs";
    const observer = await observe("crowd/");
    const cluster = connect({ hosts: etcd.endpoints });
    const first = await new Mutex(cluster, name).lock();
    const task = { hosts: etcd.endpoints, name, calls: CALLS, abortEvery: ABORT_EVERY, ttlSeconds: 3 };
    await using crowd = await Crowd.start({ ...task, processes: PROCESSES });
    await crowd.all("waiting");
    await observer.untilLiving("crowd/", (count) => count === PROCESSES * PLACES + 1, { timeoutMs: 60_000 });

    const drained = crowd.all("drained");
    crowd.tell("abort");
    await first.release();
    await observer.untilLiving("crowd/", (count) => count < 0.7 * PROCESSES * PLACES, { timeoutMs: 60_000 });
    await crowd.kill(KILLED);
    await drained;
    left = await observer.untilLiving("crowd/", (count) => count === 0, { timeoutMs: 10_000 });
    crowd.tell("close");
    await crowd.ended();

    names = crowd.names;
    const setting = { ttlSeconds: 3, locks: "crowd/", registers: "none/" };
    run = { history: crowd.history, server: observer.events, setting };
    await cluster.close();
    await observer.stop();
  }, 180_000);

  it("are all served but those that gave up, also when one process is killed -9 on the way", () => {
    for (const p of names) {
      if (p === KILLED) continue;
      expect(outcomes(run.history, p, "fail"), p).toHaveLength(ABORTED);
      expect(outcomes(run.history, p, "ok"), p).toHaveLength(CALLS - ABORTED);
    }
  });

  it("never hold two at a time", () => {
    expect(judge(run, ["I1", "I2", "I3"]).violations).toEqual({});
  });

  it("are served in the order in which etcd created their places", () => {
    expect(judge(run, ["I6"]).violations).toEqual({});
  });

  it("are served in the order of their calls within each process", () => {
    for (const p of names) {
      const calls = outcomes(run.history, p, "ok").map(({ id }) => id);
      expect(calls, p).toEqual([...calls].sort((a, b) => a - b));
    }
  });

  it("leave no key behind", () => {
    expect(left).toEqual([]);
  });
});

describe("with etcd out of reach", () => {
  it("a waiter that aborts rejects before any call is answered, and its key is gone once etcd is back", async () => {
    await using far = await behindProxy("away/");
    const { proxy, observer, session } = far;
    const holder = await new Mutex(far.direct, "away/job").lock();
    const controller = new AbortController();
    const waiting = new Mutex(session, "away/job").lock({ signal: controller.signal });
    const [, place] = await observer.untilLiving("away/", (count) => count === 2, { timeoutMs: 10_000 });

    await proxy.mode("blackhole");
    const answered = bytesAnswered(proxy);
    const reason = new Error("not wanted any more");
    controller.abort(reason);
    await expect(waiting).rejects.toBe(reason);
    expect(bytesAnswered(proxy)).toBe(answered);
    expect(observer.living("away/")).toContain(place);

    await proxy.mode("pass");
    const rest = await observer.untilLiving("away/", (count) => count === 1, { timeoutMs: 20_000 });
    expect(rest).toEqual([holder.key]);
    expect(session.signal.aborted).toBe(false);
    await holder.release();
  }, 60_000);

  it("a call that aborts while its place is being asked for rejects at once and leaves no place", async () => {
    await using far = await behindProxy("asked/");
    const { proxy, observer, session } = far;
    await (await new Mutex(session, "asked/job").lock()).release();

    await proxy.mode("blackhole");
    const controller = new AbortController();
    const waiting = new Mutex(session, "asked/job").lock({ signal: controller.signal });
    const reason = new Error("not wanted any more");
    controller.abort(reason);
    await expect(waiting).rejects.toBe(reason);
    await proxy.mode("pass");

    // The next hold of the same session comes after whatever happened to the first call, and is the only one.
    const next = await new Mutex(session, "asked/job").lock();
    await observer.until(() => observer.revision >= next.revision, { timeoutMs: 10_000 });
    const rest = await observer.untilLiving("asked/", (count) => count === 1, { timeoutMs: 20_000 });
    expect(rest).toEqual([next.key]);
    await next.release();
    await observer.untilLiving("asked/", (count) => count === 0, { timeoutMs: 20_000 });
    expect(session.signal.aborted).toBe(false);
  }, 60_000);
});

type Proxy = Awaited<ReturnType<typeof startTcpProxy>>;
const bytesAnswered = (proxy: Proxy) => proxy.connections.reduce((sum, { bytes }) => sum + bytes.answers, 0);

/** A session behind a proxy, and a cluster and an observer that bypass it. */
async function behindProxy(prefix: string) {
  const proxy = await startTcpProxy({ port: etcd.member.clientPort });
  const observer = await observe(prefix);
  const direct = connect({ hosts: etcd.endpoints });
  const cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 500 });
  const session = await Session.open(cluster, { ttlSeconds: 30 });
  const end = async () => {
    await Promise.all([session.close(), direct.close()]);
    await cluster.close();
    await observer.stop();
    await proxy.stop();
  };
  return { proxy, observer, direct, session, [Symbol.asyncDispose]: end };
}
