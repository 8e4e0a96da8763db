import { afterAll, beforeAll, expect } from "vitest";
import { type Cluster, connect, Session } from "../../src/index.js";
import { type EtcdCluster, startEtcd } from "./etcd.js";
import { placesOf } from "./server-view.js";

/** An etcd of its own for a file of tests, and two sessions on it, as of two processes. */
export interface TwoSessions {
  etcd: EtcdCluster;
  cluster: Cluster;
  holder: Session;
  session: Session;
  readonly places: (name: string) => ReturnType<typeof placesOf>;
  /** Waits until etcd has so many places under the name. */
  readonly queued: (name: string, count: number) => Promise<unknown>;
}

/** Filled before the first test of the file runs. */
export function twoSessions(ttlSeconds: number): TwoSessions {
  const places = (name: string) => placesOf(two.etcd.member, name);
  const two = {
    places,
    queued: async (name: string, count: number) => expect.poll(() => places(name)).toHaveLength(count),
  } as TwoSessions;
  beforeAll(async () => {
    two.etcd = await startEtcd();
    two.cluster = connect({ hosts: two.etcd.endpoints });
    [two.holder, two.session] = await Promise.all([
      Session.open(two.cluster, { ttlSeconds, owner: "the holder" }),
      Session.open(two.cluster, { ttlSeconds }),
    ]);
  }, 60_000);
  afterAll(async () => {
    await two.cluster.close();
    await two.etcd.stop();
  });
  return two;
}

/** What a promise rejects with; undefined if it does not. */
export const reasonOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(() => undefined).catch((reason: unknown) => reason);
