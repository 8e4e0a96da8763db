import {
  Mutex,
  RwLock,
  Semaphore,
  type Cluster,
  type Hold,
  type QueueWaitOptions,
  type WaitOptions,
} from "../../index.js";
import type { Teller } from "./teller.js";
import { tellWaiting } from "./waiting.js";

/** What is to be taken, and how long to wait for it. */
export interface Wanted {
  readonly name: string;
  readonly shared: boolean;
  readonly permits: number | undefined;
  /** 0: do not wait. undefined: no limit. */
  readonly waitMs: number | undefined;
}

interface Ways {
  readonly wait: (options: QueueWaitOptions) => Promise<Hold>;
  readonly attempt: (options: WaitOptions) => Promise<Hold | undefined>;
}

/** Resolves with undefined if the lock is taken and `waitMs` is 0. */
export async function acquire(
  cluster: Cluster,
  wanted: Wanted,
  { teller, signal }: { readonly teller: Teller; readonly signal: AbortSignal },
): Promise<Hold | undefined> {
  const { wait, attempt } = waysOf(cluster, wanted);
  if (wanted.waitMs === 0) return attempt({ signal });
  // An outage that costs the waiter its lease costs it its place, not the wait.
  const limits = { signal, timeoutMs: wanted.waitMs, rejoin: true };
  return whileTelling(cluster, wanted.name, { teller, call: () => wait(limits) });
}

/** Tells who holds until `call` settles, or calls `over`. */
export async function whileTelling<T>(
  cluster: Cluster,
  name: string,
  { teller, call }: { readonly teller: Teller; readonly call: (over: () => Promise<void>) => Promise<T> },
): Promise<T> {
  const over = new AbortController();
  const told = tellWaiting(cluster, name, { teller, signal: over.signal });
  const end = async (): Promise<void> => {
    over.abort();
    await told;
    teller.clear();
  };
  try {
    return await call(end);
  } finally {
    await end();
  }
}

function waysOf(cluster: Cluster, { name, shared, permits }: Wanted): Ways {
  if (permits !== undefined) {
    const semaphore = new Semaphore(cluster, name, permits);
    return { wait: (o) => semaphore.acquire(o), attempt: (o) => semaphore.tryAcquire(o) };
  }
  if (shared) {
    const readers = new RwLock(cluster, name);
    return { wait: (o) => readers.readLock(o), attempt: (o) => readers.tryReadLock(o) };
  }
  const mutex = new Mutex(cluster, name);
  return { wait: (o) => mutex.lock(o), attempt: (o) => mutex.tryLock(o) };
}
