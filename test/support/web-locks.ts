import { afterAll, beforeAll, expect } from "vitest";
import {
  type Cluster,
  ClusterLockManager,
  connect,
  type WebLock,
  type WebLockOptions,
} from "../../src/index.js";
import { type EtcdCluster, startEtcd } from "./etcd.js";

/** An etcd of its own for a file of tests, and two managers on it, as of two processes. */
export interface TwoManagers {
  etcd: EtcdCluster;
  cluster: Cluster;
  otherCluster: Cluster;
  locks: ClusterLockManager;
  other: ClusterLockManager;
}

/** Filled before the first test of the file runs. */
export function twoManagers(ttlSeconds: number): TwoManagers {
  const two = {} as TwoManagers;
  beforeAll(async () => {
    two.etcd = await startEtcd();
    const open = () => connect({ hosts: two.etcd.endpoints, session: { ttlSeconds } });
    two.cluster = open();
    two.otherCluster = open();
    two.locks = new ClusterLockManager(two.cluster);
    two.other = new ClusterLockManager(two.otherCluster);
    await Promise.all([two.cluster.session(), two.otherCluster.session()]);
  }, 60_000);
  afterAll(async () => {
    await Promise.all([two.cluster.close({ drainMs: 0 }), two.otherCluster.close({ drainMs: 0 })]);
    await two.etcd.stop();
  });
  return two;
}

export interface HeldForTest {
  readonly lock: WebLock;
  /** Ends the callback, and resolves when the request has settled. */
  release(): Promise<unknown>;
  /** Of the request. */
  readonly settled: Promise<unknown>;
}

/** Requests a lock whose callback runs until the test ends it. */
export function holding(
  manager: ClusterLockManager,
  name: string,
  options: WebLockOptions = {},
): Promise<HeldForTest> {
  return new Promise((resolve, reject) => {
    const settled: Promise<unknown> = manager.request(name, options, (lock) => {
      return new Promise<void>((end) => {
        const release = () => {
          end();
          return settled;
        };
        resolve({ lock: lock as WebLock, release, settled });
      });
    });
    settled.catch(reject);
  });
}

/** How many of a name are held and pending, as the manager tells. */
export async function counted(manager: ClusterLockManager, name: string): Promise<readonly [number, number]> {
  const { held, pending } = await manager.query();
  const count = (list: readonly { readonly name: string }[]) => list.filter((it) => it.name === name).length;
  return [count(held), count(pending)];
}

/** Waits until so many are held and pending. */
export const counts = (manager: ClusterLockManager, name: string, held: number, pending: number) =>
  expect.poll(() => counted(manager, name), { timeout: 10_000 }).toEqual([held, pending]);

/** What a promise rejects with: its class or name, and the name of its cause. */
export async function failure(promise: Promise<unknown>): Promise<unknown> {
  const reason = await promise.then(
    (value) => Promise.reject(new Error(`resolved to ${String(value)}`)),
    (error: unknown) => error,
  );
  return reason;
}
