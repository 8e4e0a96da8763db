import { systemClock } from "../../async/clock.js";
import {
  Mutex,
  RwLock,
  Semaphore,
  SessionLostError,
  type Cluster,
  type Hold,
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
  readonly wait: (options: WaitOptions) => Promise<Hold>;
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
  const limits = { signal, timeoutMs: wanted.waitMs };
  return whileTelling(cluster, wanted.name, { teller, call: () => waitAgain(wait, limits) });
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

/** An outage that costs a waiter its lease costs it its place, not the wait. */
export async function waitAgain<T>(
  wait: (options: WaitOptions) => Promise<T>,
  { signal, timeoutMs }: WaitOptions,
): Promise<T> {
  const end = timeoutMs === undefined ? undefined : systemClock.monotonic() + timeoutMs;
  for (;;) {
    const left = end === undefined ? undefined : Math.max(1, Math.ceil(end - systemClock.monotonic()));
    try {
      return await wait({ signal, timeoutMs: left });
    } catch (error) {
      if (!(error instanceof SessionLostError)) throw error;
    }
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
