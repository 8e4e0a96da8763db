// The calls of users in the programs. Each function begins one call, reports that it was granted, holds until the program says how
// to end it, and returns or throws what the user gets.
import {
  type Cluster,
  ClusterLockManager,
  Election,
  lead,
  lockAll,
  type LockOptions,
  Mutex,
  once,
  type OnceOptions,
  type QueueWaitOptions,
  RwLock,
  Semaphore,
  type SessionSource,
} from "../../../../src/index.js";
import type { Losable } from "../../../../src/testing/start.js";

/** How the program ends what a call holds: it gives it back, or its work throws. */
export type Leave = "release" | "throw";

type Grant = Losable & { readonly held?: boolean; readonly fence?: bigint };

/** One call, as the primitives see it. */
export interface Asked {
  readonly id: string;
  /** "a" or "b". */
  readonly name: string;
  readonly cluster: Cluster;
  /** The cluster, or a session of its own. */
  readonly source: SessionSource;
  readonly wait: QueueWaitOptions;
  readonly lock: LockOptions;
  readonly stop: AbortSignal;
  /** Resolves when the program ends the hold, or rejects when it is lost. */
  granted(hold: Grant): Promise<Leave>;
  /** What happens beside it. */
  readonly note: (what: string) => void;
}

export type Primitive = (call: Asked) => Promise<unknown>;

type Handle = Grant & { readonly release: () => Promise<void> };

/** For calls that return a handle. */
async function holding(call: Asked, taken: Promise<Handle | undefined>): Promise<string> {
  const hold = await taken;
  if (hold === undefined) return "not granted";
  // Also a hold that is lost is released: users do so in `finally`.
  await call.granted(hold).catch(() => undefined);
  await hold.release();
  return "released";
}

/** For calls that run a function. */
const working =
  (call: Asked) =>
  async (hold: Grant): Promise<string> => {
    if ((await call.granted(hold)) === "throw") throw new Error("of the work");
    return "worked";
  };

const mutex = ({ source, name, lock }: Asked): Mutex => new Mutex(source, `m/${name}`, lock);
const rwlock = ({ source, name, lock }: Asked): RwLock => new RwLock(source, `rw/${name}`, lock);
const semaphore = ({ source, name, lock }: Asked, permits = 2): Semaphore =>
  new Semaphore(source, `s/${name}`, permits, lock);
const tries = ({ wait: { signal } }: Asked) => ({ signal });

const slot =
  (number: number, options: OnceOptions): Primitive =>
  async (call) => {
    const { source, name, wait, lock } = call;
    const all = { ...options, ...wait, ...lock };
    const result = await once(source, `m/${name}`, number, working(call), all);
    if (result.ran) return `ran: ${result.value}`;
    const { reason, run } = result;
    return `${reason}, of ${run?.owner}${run?.failed === true ? ", failed" : ""}`;
  };

async function campaign(call: Asked): Promise<string> {
  const { source, name, id, wait } = call;
  const leadership = await new Election(source, `e/${name}`).campaign(id, wait);
  return holding(call, Promise.resolve(leadership));
}

const web =
  (options: { mode?: "shared"; ifAvailable?: true; steal?: true }): Primitive =>
  async (call) => {
    const { cluster, name, wait } = call;
    const signal = options.ifAvailable || options.steal ? undefined : wait.signal;
    return new ClusterLockManager(cluster).request(name, { ...options, signal }, (lock) =>
      lock === null ? "not granted" : working(call)(lock),
    );
  };

/** Terms of one call of `lead`. After each of them it pauses for twice as long, from 1 s. */
const TERMS = 3;
/** Longer than a restart of etcd on a busy machine. */
const LEAD_TTL_SECONDS = 10;

async function leading(call: Asked): Promise<string> {
  const { cluster, name, id, wait } = call;
  const over = new AbortController();
  wait.signal?.addEventListener("abort", () => over.abort());
  let terms = 0;
  const work = async (leadership: Grant): Promise<void> => {
    if (++terms === TERMS) over.abort();
    if ((await call.granted(leadership)) === "throw") throw new Error("of the work");
  };
  const session = { ttlSeconds: LEAD_TTL_SECONDS, owner: id };
  await lead(cluster, `e/${name}`, work, { ...session, signal: over.signal, value: id });
  return "stopped";
}

/** Every change of the leader. */
async function observing({ cluster, name, wait, stop, note }: Asked): Promise<string> {
  const signal = AbortSignal.any([wait.signal!, stop]);
  for await (const leader of new Election(cluster, `e/${name}`).observe({ signal }))
    note(leader === undefined ? "sees no leader" : `sees ${leader.value}`);
  return "over";
}

const nested =
  (reentrant: boolean): Primitive =>
  (call) =>
    mutex(call).withLock(async (lock) => {
      const inner = mutex(call).withLock(() => "inside", { reentrant });
      call.note(await inner.catch((error: { code: string }) => error.code));
      return working(call)(lock);
    }, call.wait);

/** Primitives that meet in the same queues, with those queues; by what a program draws. */
export interface Family {
  readonly queues: readonly string[];
  readonly calls: Readonly<Record<string, Primitive>>;
}

const MUTEX: Family = {
  queues: ["m/a", "m/b"],
  calls: {
    lock: (call) => holding(call, mutex(call).lock(call.wait)),
    withLock: (call) => mutex(call).withLock(working(call), call.wait),
    tryLock: (call) => holding(call, mutex(call).tryLock(tries(call))),
    reentrant: nested(true),
    deadlock: nested(false),
    lockAll: (call) => holding(call, lockAll(call.source, ["m/a", "m/b"], { ...call.wait, ...call.lock })),
    // The other order cannot lead to a deadlock.
    reverse: (call) => holding(call, lockAll(call.source, ["m/b", "rw/a", "m/a"], call.wait)),
    // A queue that belongs to another primitive.
    wrongKind: (call) => holding(call, new Semaphore(call.source, `m/${call.name}`, 2).acquire(call.wait)),
  },
};

const ONCE: Family = {
  queues: ["m/a"],
  calls: {
    once: slot(1, {}),
    onceAfter: slot(2, { keep: 1 }),
    onceIfLost: slot(3, { rerun: "if_lost" }),
    onceIfFailed: slot(3, { rerun: "if_failed" }),
    onceOrSkip: slot(3, { ifHeld: "skip" }),
    lock: MUTEX.calls["lock"]!,
  },
};

const RWLOCK: Family = {
  queues: ["rw/a", "rw/b"],
  calls: {
    readLock: (call) => holding(call, rwlock(call).readLock(call.wait)),
    writeLock: (call) => holding(call, rwlock(call).writeLock(call.wait)),
    withReadLock: (call) => rwlock(call).withReadLock(working(call), call.wait),
    withWriteLock: (call) => rwlock(call).withWriteLock(working(call), call.wait),
    tryReadLock: (call) => holding(call, rwlock(call).tryReadLock(tries(call))),
    tryWriteLock: (call) => holding(call, rwlock(call).tryWriteLock(tries(call))),
    reverse: MUTEX.calls["reverse"]!,
  },
};

const SEMAPHORE: Family = {
  queues: ["s/a"],
  calls: {
    acquire: (call) => holding(call, semaphore(call).acquire(call.wait)),
    // Clients that disagree on the number: the oldest entry's applies.
    withPermit: (call) => semaphore(call, 1).withPermit(working(call), call.wait),
    tryAcquire: (call) => holding(call, semaphore(call).tryAcquire(tries(call))),
  },
};

const ELECTION: Family = { queues: ["e/a", "e/b"], calls: { campaign, lead: leading, observe: observing } };

const WEB_LOCKS: Family = {
  // The manager encodes the names.
  queues: ["web-locks/YQA"],
  calls: {
    request: web({}),
    shared: web({ mode: "shared" }),
    ifAvailable: web({ ifAvailable: true }),
    steal: web({ steal: true }),
  },
};

export const FAMILIES = [MUTEX, ONCE, RWLOCK, SEMAPHORE, ELECTION, WEB_LOCKS] as const;

/** Its pauses take seconds. */
export const isSlow = (kind: string): boolean => kind === "lead";
