import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Cluster, connect, Election, lockAll, Mutex, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startTcpProxy, type TcpProxy } from "../../support/proxies/tcp-proxy.js";

let etcd: EtcdCluster;
let proxy: TcpProxy;
let cluster: Cluster;
/** A cluster that never answers. */
let silent: Cluster;
const timeoutMs = 200;

beforeAll(async () => {
  etcd = await startEtcd();
  proxy = await startTcpProxy({ port: etcd.member.clientPort });
  await proxy.mode("blackhole");
  cluster = connect({ hosts: etcd.member.endpoint });
  silent = connect({ hosts: proxy.endpoint, requestTimeoutMs: 100, connectTimeoutMs: 100 });
}, 60_000);

afterAll(async () => {
  await Promise.all([cluster.close({ drainMs: 0 }), silent.close({ drainMs: 0 })]);
  await proxy.stop();
  await etcd.stop();
});

/** Calls that reject in time, each from an async function of this file. */
const CALLS: Readonly<Record<string, () => Promise<unknown>>> = {
  lock: async function callerOfLock() {
    return await new Mutex(cluster, "stack").lock({ timeoutMs });
  },
  withLock: async function callerOfWithLock() {
    return await new Mutex(cluster, "stack").withLock(() => undefined, { timeoutMs });
  },
  lockAll: async function callerOfLockAll() {
    return await lockAll(cluster, ["stack", "stack-2"], { timeoutMs });
  },
  campaign: async function callerOfCampaign() {
    return await new Election(cluster, "leader-stack").campaign("me", { timeoutMs });
  },
  "lock, with no session yet": async function callerOfFirstLock() {
    return await new Mutex(silent, "stack").lock({ timeoutMs });
  },
  tryLock: async function callerOfTryLock() {
    return await new Mutex(silent, "stack").tryLock({ timeoutMs });
  },
  "cluster.session": async function callerOfSession() {
    return await silent.session({ timeoutMs });
  },
  "Session.open": async function callerOfOpen() {
    return await Session.open(silent, { timeoutMs });
  },
  "Session.adopt": async function callerOfAdopt() {
    return await Session.adopt(silent, 77n, { timeoutMs });
  },
  leader: async function callerOfLeader() {
    return await new Election(silent, "stack").leader({ timeoutMs });
  },
};

const errorOf = (call: () => Promise<unknown>): Promise<Error> =>
  call().then(
    () => Promise.reject(new Error("it was expected to reject")),
    (error: unknown) => error as Error,
  );

test.each(Object.entries(CALLS))(
  "an error of %s has the line of its caller in its stack",
  async (_, call) => {
    const held = await new Mutex(cluster, "stack").lock();
    const leadership = await new Election(cluster, "leader-stack").campaign("other");
    const error = await errorOf(call);
    await Promise.all([held.release(), leadership.resign()]);

    expect(error).toMatchObject({
      code: expect.stringMatching(/^(LOCK_TIMEOUT|ETCD_UNAVAILABLE)$/) as string,
    });
    const [first, ...frames] = error.stack!.split("\n");
    expect(first).toBe(`${error.name}: ${error.message}`);
    const ours = frames.filter((frame) => frame.includes(path.basename(import.meta.filename)));
    expect(ours[0]).toContain(call.name);
  },
);

test("each of the callers that share the opening of a session has its own line", async () => {
  const errors = await Promise.all([
    errorOf(async function firstOfTwo() {
      return await silent.session({ timeoutMs });
    }),
    errorOf(async function secondOfTwo() {
      return await silent.session({ timeoutMs });
    }),
  ]);

  expect(errors.map(({ stack }) => /\b(first|second)OfTwo/.exec(stack!)?.[0])).toEqual([
    ...["firstOfTwo", "secondOfTwo"],
  ]);
});
