import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Cluster, connect, Election, lockAll, Mutex, once } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { FlightMeter } from "../../support/proxies/flights.js";
import { chosenTransport } from "../../support/transport.js";

/** A machine that stands still for a moment may cut a flight in two, and never makes one of two. */
const ATTEMPTS = 5;
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

/** The round trips of a call. `call` gets the number of the attempt, for names, and undoes what it has done by what it returns. */
async function roundTrips(call: (n: number) => Promise<(() => Promise<unknown>) | void>): Promise<number> {
  let fewest = Infinity;
  for (let n = 0; n < ATTEMPTS; n++) {
    const before = meter.flights;
    const undo = await call(n);
    fewest = Math.min(fewest, meter.flights - before);
    await undo?.();
  }
  return fewest;
}

const cold = (): Cluster => connect({ hosts: meter.endpoint });

describe("round trips", () => {
  test(`${COLD}, from connect() to the first lock, and to a try that finds it taken`, async () => {
    expect(
      await roundTrips(async (n) => {
        const cluster = cold();
        await new Mutex(cluster, `first-${n}`).lock();
        return () => cluster.close({ drainMs: 0 });
      }),
    ).toBe(COLD);

    await using holder = connect({ hosts: etcd.endpoints });
    await using taken = await new Mutex(holder, "taken").lock();
    expect(
      await roundTrips(async () => {
        const cluster = cold();
        expect(await new Mutex(cluster, taken.name).tryLock()).toBeUndefined();
        return () => cluster.close({ drainMs: 0 });
      }),
    ).toBe(COLD);
  });

  test("one, for each call after that", async () => {
    await using cluster = cold();
    await (await new Mutex(cluster, "warm").lock()).release();
    const names = (n: number): string[] => ["a", "b", "c", "d", "e"].map((name) => `${name}-${n}`);

    const lock = await roundTrips(async (n) => {
      const held = await new Mutex(cluster, `lock-${n}`).lock();
      return () => held.release();
    });
    const several = await roundTrips(async (n) => {
      const held = await lockAll(cluster, names(n));
      return () => held.release();
    });
    const campaign = await roundTrips(async (n) => {
      const leadership = await new Election(cluster, `election-${n}`).campaign("me");
      return () => leadership.resign();
    });
    const held = await Promise.all([1, 2, 3, 4, 5].map((n) => new Mutex(cluster, `held-${n}`).lock()));
    const release = await roundTrips((n) => held[n]!.release());

    // The lock and the mark; the mark of the run and the release.
    const slot = await roundTrips(async (n) => void (await once(cluster, "slots", n, () => n)));
    expect(slot).toBe(2);
    expect({ lock, several, campaign, release }).toEqual({ lock: 1, several: 1, campaign: 1, release: 1 });
  });
});
