// Compiled against the packed declarations, by every TypeScript that leasehold supports.
import {
  Cluster,
  type ClusterLockManager,
  connect,
  Election,
  lead,
  lockAll,
  Mutex,
  RwLock,
  Semaphore,
  Session,
  whileHeld,
  type Hold,
  type Lock,
} from "leasehold";
import { acquireChannel } from "leasehold/diagnostics";
import { lockPage } from "leasehold/ui";

// @ts-expect-error -- private: Session.open() makes sessions
new Session();
// @ts-expect-error -- private: connect() makes clusters
new Cluster();
// @ts-expect-error -- private
export class OwnSession extends Session {}

const cluster: Cluster = connect({ hosts: ["http://127.0.0.1:2379"], session: { ttlSeconds: 5 } });
// @ts-expect-error -- no such option
connect({ hosts: "127.0.0.1:2379", timeout: 5 });
// @ts-expect-error -- needs hosts
connect({});

declare const client: { kv: object; leaseClient: object; watchClient: object; auth: object; close(): void };
connect({ etcd3: client, prefix: "prod/", session: { ttlSeconds: 5 } });
// @ts-expect-error -- the client has the hosts
connect({ etcd3: client, hosts: "127.0.0.1:2379" });
// @ts-expect-error -- and the password
connect({ etcd3: client, auth: { username: "root", password: "secret" } });
// @ts-expect-error -- a namespace has no `auth`
connect({ etcd3: { kv: client.kv, leaseClient: client.leaseClient, watchClient: client.watchClient } });

export async function locks(): Promise<bigint> {
  await using session = await Session.open(cluster, { timeoutMs: 1_000 });
  await using lock = await new Mutex(session, "jobs").lock({ signal: AbortSignal.timeout(1_000) });
  const held: Lock = lock;
  const guard: readonly [string, "Create", "==", string] = whileHeld(held);
  void guard;
  const fence: bigint = lock.fence;
  // @ts-expect-error -- a bigint is no number
  takesNumber(lock.fence);
  return fence;
}
declare function takesNumber(value: number): void;

export async function others(): Promise<number> {
  const rwlock = new RwLock(cluster, "config");
  await using reader = await rwlock.readLock();
  const hold: Hold = reader;
  // @ts-expect-error -- a reader has no fence
  void hold.fence;
  await using maybe = await new Mutex(cluster, "jobs").tryLock();
  // @ts-expect-error -- undefined if the lock is taken
  void maybe.fence;
  await using both = await lockAll(cluster, ["a", "b"]);
  const value: number = await new Semaphore(cluster, "exports", 3).withPermit(() => 42);
  await lead(cluster, "reports", async (leadership) => void (await leadership.proclaim("x")));
  for await (const leader of new Election(cluster, "reports").observe()) if (leader) return value;
  return both.remainingMs();
}

export const page: unknown = lockPage(cluster);
export const channel: unknown = acquireChannel;

/** An option may be given as undefined, also under `exactOptionalPropertyTypes`. */
export function undefinedOptions(manager: ClusterLockManager): Promise<boolean> {
  const options = { mode: undefined, ifAvailable: undefined, steal: undefined, signal: undefined };
  return manager.request("a", options, (lock) => lock === null);
}
