import { afterAll, beforeAll } from "vitest";
import { type Cluster, connect, Session } from "../../src/index.js";
import { type EtcdCluster, startEtcd } from "./etcd.js";

/** An etcd of its own for a file of tests that count what is asked of it. */
export interface Metered {
  etcd: EtcdCluster;
  cluster: Cluster;
  /** Of so long a lease that no renewal falls into a test. */
  readonly session: (of?: Cluster) => Promise<Session>;
}

/** Filled before the first test of the file runs. */
export function metered(): Metered {
  const of = {
    session: (cluster = of.cluster) => Session.open(cluster, { ttlSeconds: 3600 }),
  } as Metered;
  beforeAll(async () => {
    of.etcd = await startEtcd();
    of.cluster = connect({ hosts: of.etcd.endpoints });
  });
  afterAll(async () => {
    await of.cluster.close({ drainMs: 0 });
    await of.etcd.stop();
  });
  return of;
}

/** The same, `n` times. */
export const times = (n: number, spent: Record<string, number>) =>
  Object.fromEntries(Object.entries(spent).map(([what, sum]) => [what, n * sum]));
