import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type Cluster,
  connect,
  type ConnectOptions,
  Election,
  lockAll,
  Mutex,
  once,
} from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";
import { meter as countsOf } from "../../support/fixtures/spent.js";
import { startWithUsers, WORKER } from "../../support/fixtures/users.js";
import { FlightMeter } from "../../support/proxies/flights.js";
import { chosenTransport } from "../../support/transport.js";

/** A machine that stands still for a moment may cut a flight in two, and never makes one of two. */
const ATTEMPTS = 10;
/** grpc-js waits for the settings of the member. */
const COLD = chosenTransport() === "etcd3" ? 3 : 2;

let etcd: EtcdCluster;
let meter: FlightMeter;
beforeAll(async () => {
  etcd = await startEtcd();
  meter = await FlightMeter.start(etcd.member.clientPort);
});
afterAll(async () => {
  await meter[Symbol.asyncDispose]();
  await etcd.stop();
});

/**
 * A call to count. It gets the number of the attempt, for names, and undoes what it has done by what it returns. What it does before
 * `begin` does not count.
 */
type Call = (n: number, begin: () => void) => Promise<(() => Promise<unknown>) | void>;

/** The round trips of a call, which is repeated while they are more than `expected`. */
async function roundTrips(expected: number, call: Call, counter: FlightMeter = meter): Promise<number> {
  let fewest = Infinity;
  for (let n = 0; n < ATTEMPTS && fewest > expected; n++) {
    let before = counter.flights;
    const undo = await call(n, () => (before = counter.flights));
    fewest = Math.min(fewest, counter.flights - before);
    await undo?.();
  }
  return fewest;
}

const cold = (): Cluster => connect({ hosts: meter.endpoint });

function toFirstLock(expected: number, options: ConnectOptions, counter?: FlightMeter): Promise<number> {
  const lock: Call = async (n) => {
    const cluster = connect(options);
    await new Mutex(cluster, `jobs/first-${n}`).lock();
    return () => cluster.close({ drainMs: 0 });
  };
  return roundTrips(expected, lock, counter);
}

/** Of a cluster that is connected. */
const CALLS: Readonly<Record<string, (cluster: Cluster, ...counted: Parameters<Call>) => ReturnType<Call>>> =
  {
    lock: async (cluster, n) => {
      const held = await new Mutex(cluster, `lock-${n}`).lock();
      return () => held.release();
    },
    "lock together with a release that isn't awaited": async (cluster, n, begin) => {
      const mutex = new Mutex(cluster, `again-${n}`);
      const held = await mutex.lock();
      begin();
      void held.release();
      const next = await mutex.lock();
      return () => next.release();
    },
    tryLock: async (cluster, n) => {
      const held = await new Mutex(cluster, `try-${n}`).tryLock();
      return () => held!.release();
    },
    lockAll: async (cluster, n) => {
      const held = await lockAll(
        cluster,
        ["a", "b", "c", "d", "e"].map((name) => `${name}-${n}`),
      );
      return () => held.release();
    },
    "20 locks of 20 names at once": async (cluster, n) => {
      const locks = Array.from({ length: 20 }, (_, i) => new Mutex(cluster, `at-once-${n}-${i}`).lock());
      const held = await Promise.all(locks);
      return () => Promise.all(held.map((each) => each.release()));
    },
    campaign: async (cluster, n) => {
      const leadership = await new Election(cluster, `election-${n}`).campaign("me");
      return () => leadership.resign();
    },
  };

describe("round trips", () => {
  test(`${COLD}, from connect() to the first lock, and to a try that finds it taken`, async () => {
    expect(await toFirstLock(COLD, { hosts: meter.endpoint })).toBe(COLD);

    await using holder = connect({ hosts: etcd.endpoints });
    await using taken = await new Mutex(holder, "taken").lock();
    expect(
      await roundTrips(COLD, async () => {
        const cluster = cold();
        expect(await new Mutex(cluster, taken.name).tryLock()).toBeUndefined();
        return () => cluster.close({ drainMs: 0 });
      }),
    ).toBe(COLD);
  });

  test("one more, with user and password", async () => {
    const server = await startWithUsers();
    try {
      await using counter = await FlightMeter.start(server.etcd.member.clientPort);
      const options = { hosts: counter.endpoint, auth: WORKER };
      expect(await toFirstLock(COLD + 1, options, counter)).toBe(COLD + 1);
    } finally {
      await server.stop();
    }
  });

  test("one more, over TLS 1.3", async () => {
    const authority = makeAuthority("the authority");
    const files = await writeServerFiles(authority, authority.issue("etcd"));
    const server = await startEtcd({ clientTls: { ...files, clientCertAuth: false } });
    try {
      await using counter = await FlightMeter.start(server.member.clientPort);
      const hosts = counter.endpoint.replace("http://127.0.0.1", "https://localhost");
      const options = { hosts, credentials: { rootCertificate: authority.certificate } };
      expect(await toFirstLock(COLD + 1, options, counter)).toBe(COLD + 1);
    } finally {
      await server.stop();
      await files.remove();
    }
  });

  test.each(Object.keys(CALLS))("one, for %s after that", async (call) => {
    await using cluster = cold();
    await (await new Mutex(cluster, "warm").lock()).release();

    expect(await roundTrips(1, (n, begin) => CALLS[call]!(cluster, n, begin))).toBe(1);
  });

  test("two, for a new slot of once: the lock and the mark, and the mark of the run with the release", async () => {
    await using cluster = cold();
    await cluster.session();

    expect(await roundTrips(2, async (n) => void (await once(cluster, "slots", n, () => n)))).toBe(2);
  });

  test("one, to proclaim, to release, and to close", async () => {
    const clusters = Array.from({ length: ATTEMPTS }, cold);
    const held = await Promise.all(clusters.map((cluster, n) => new Mutex(cluster, `held-${n}`).lock()));
    const leader = await new Election(clusters[0]!, "proclaimed").campaign("me");

    expect(await roundTrips(1, (n) => leader.proclaim(`${n}`))).toBe(1);
    expect(await roundTrips(1, (n) => held[n]!.release())).toBe(1);
    expect(await roundTrips(1, (n) => clusters[n]!.close({ drainMs: 0 }))).toBe(1);
    await Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 })));
  });

  test("one, from a release to the grant elsewhere", async () => {
    await using holder = cold();
    await using waiter = cold();
    await Promise.all([holder.session(), waiter.session()]);
    const counted = await countsOf(etcd.member);

    expect(
      await roundTrips(1, async (n, begin) => {
        const held = await new Mutex(holder, `handed-over-${n}`).lock();
        await counted.lap({ Txn: 1 });
        const next = new Mutex(waiter, held.name).lock();
        // It has watched the holder's key and its own, and has read the queue after that.
        await counted.lap({ Range: 1, Watch: 2 });
        begin();
        await held.release();
        const lock = await next;
        return () => lock.release();
      }),
    ).toBe(1);
  });

  test("two, for a lock that another process keeps, and nobody holds", async () => {
    await using keeper = cold();
    await using counter = await FlightMeter.start(etcd.member.clientPort);
    await using stranger = connect({ hosts: counter.endpoint });
    await Promise.all([keeper.session(), stranger.session()]);
    const counted = await countsOf(etcd.member);

    const taking = await roundTrips(
      2,
      async (n, begin) => {
        const mutex = new Mutex(keeper, `kept-${n}`, { sticky: true });
        for (let times = 0; times < 2; times++) await (await mutex.lock()).release();
        // The first lock is plain. Then the queue is watched, and read after that.
        await counted.lap({ Txn: 3, Range: 1, Watch: 1 });
        // The join; then the watch with the read, while the other process deletes its key.
        begin();
        const lock = await new Mutex(stranger, mutex.name).lock();
        return () => lock.release();
      },
      counter,
    );

    expect(taking).toBe(2);
  });
});
