import { AsyncLocalStorage } from "node:async_hooks";
import type {
  Cluster,
  Hold,
  Leadership,
  Lock,
  MultiLock,
  OnceResult,
  Session,
  SessionOptions,
  StickyLockOptions,
  WaitOptions,
  WebLock,
  WebLockOptions,
  WriteLock,
} from "../../../src/index.js";
import type { load } from "./leasehold.js";
import type { Random } from "./random.js";
import type { LabTime } from "./time.js";

const LOCK_KINDS = [
  ...(["mutex", "rwlock", "semaphore", "lockall", "election", "once"] as const),
  ...(["reentrant", "leader", "weblock", "weighted", "priority"] as const),
] as const;
/** What a lane calls for. */
export type LockKind = (typeof LOCK_KINDS)[number];
/** What the lanes of a run can acquire. */
export const SUBJECTS = [...LOCK_KINDS, "shards", "results", "rendezvous"] as const;
export type Of = (typeof SUBJECTS)[number];

/** Users of a semaphore with different limits, as during the rollout of a new limit. */
const PERMITS = [2, 3] as const;
/** The same of a weighted one, with weights from 1 on. */
const WEIGHTED_PERMITS = [4, 6] as const;
/** Of calls with priorities, whose clients may disagree. */
const AGING_MS = [1, 50, 1000] as const;
/** The share of mutexes of the same name among the calls of the other kinds. */
const MUTEX = 0.25;

/** One key that the hold owns. */
export interface Gripped {
  readonly name: string;
  readonly key: string;
  /** Its fence, or its revision where holders share. */
  readonly token: bigint;
  /** Of an exclusive hold of one name. */
  readonly turn?: number;
  /** What guards its writes; default: the key and its revision. */
  readonly guard?: Pick<Hold, "key" | "revision">;
}

/** What a call was granted. */
export interface Grip {
  readonly hold: Pick<Hold, "held" | "signal" | "release"> & Partial<Pick<Hold, "onWanted">>;
  readonly places: readonly Gripped[];
  /** Other shared holds may exist at the same time: it writes nothing. */
  readonly shared: boolean;
  readonly leadership?: Leadership;
  /** A writer that becomes a reader: from the call on, it writes nothing. */
  readonly downgrade?: () => Promise<void>;
  /** Calls for the name again, in the async context that holds it. Only while its signal has not aborted. */
  readonly enter?: (work: (again: Pick<Hold, "held">) => void) => Promise<void>;
}

/** One lock of some kind, or several at once, behind one interface. */
export interface Subject {
  readonly names: readonly string[];
  /** Of its places, if not that of the lane. */
  readonly owner?: string;
  /** How many permits it takes. */
  readonly weight?: number;
  /** Calls without a limit are those of `during`. */
  readonly inside?: true;
  /** `maxWaiting`: of one name only; `supersede`: of a mutex. */
  lock(options?: WaitOptions & { readonly maxWaiting?: number; readonly supersede?: boolean }): Promise<Grip>;
  tryLock?(options: WaitOptions): Promise<Grip | undefined>;
  readonly during?: (work: (grip: Grip) => Promise<void>) => Promise<void>;
}

export interface Choice {
  readonly leasehold: Awaited<ReturnType<typeof load>>;
  readonly source: Cluster | Session;
  readonly locks: readonly string[];
  readonly random: Random;
  readonly time: LabTime;
  /** The value that this particular call campaigns with. */
  readonly value: string;
  readonly sticky?: boolean;
  readonly cluster: Cluster;
  /** Of the cluster's standing session. */
  readonly shared: string;
  /** Of a session that the call opens. */
  readonly session: SessionOptions;
}

export function subjectOf(of: LockKind, choice: Choice): Subject {
  return CHOOSE[of](choice);
}

const CHOOSE: Record<LockKind, (choice: Choice) => Subject> = {
  mutex,
  rwlock: (choice) => {
    const { leasehold, source, locks, random } = choice;
    if (random.chance(MUTEX)) return mutex(choice);
    const name = random.pick(locks);
    const lock = new leasehold.RwLock(source, name, stickyOf(choice));
    if (random.chance(0.4))
      return {
        names: [name],
        lock: async (options) => single(await lock.writeLock(options)),
        tryLock: async (options) => single(await lock.tryWriteLock(options)),
        during: (work) => lock.withWriteLock((hold) => work(single(hold))),
      };
    return {
      names: [name],
      lock: async (options) => single(await lock.readLock(options)),
      tryLock: async (options) => single(await lock.tryReadLock(options)),
      during: (work) => lock.withReadLock((hold) => work(single(hold))),
    };
  },
  semaphore: (choice) => {
    const { leasehold, source, locks, random } = choice;
    const name = random.pick(locks);
    const semaphore = new leasehold.Semaphore(source, name, random.pick(PERMITS), stickyOf(choice));
    return {
      names: [name],
      lock: async (options) => single(await semaphore.acquire(options)),
      tryLock: async (options) => single(await semaphore.tryAcquire(options)),
      during: (work) => semaphore.withPermit((hold) => work(single(hold))),
    };
  },
  weighted: (choice) => {
    const { leasehold, source, locks, random } = choice;
    const [name, permits] = [random.pick(locks), random.pick(WEIGHTED_PERMITS)];
    const weight = random.between(1, permits);
    const semaphore = new leasehold.Semaphore(source, name, permits, { weighted: true });
    return {
      ...{ names: [name], weight },
      lock: async (options) => single(await semaphore.acquire({ ...options, weight })),
      tryLock: async (options) => single(await semaphore.tryAcquire({ ...options, weight })),
      during: (work) => semaphore.withPermit((hold) => work(single(hold)), { weight }),
    };
  },
  priority: (choice) => {
    const { leasehold, source, locks, random } = choice;
    const [name, agingMs] = [random.pick(locks), random.pick(AGING_MS)];
    const priority = random.between(-2, 2);
    const lock = new leasehold.Mutex(source, name, { priorities: { agingMs } });
    return {
      names: [name],
      lock: async (options) => single(await lock.lock({ ...options, priority })),
      tryLock: async (options) => single(await lock.tryLock(options)),
      during: (work) => lock.withLock((hold) => work(single(hold)), { priority }),
    };
  },
  lockall: (choice) => {
    const { leasehold, source, locks, random } = choice;
    if (random.chance(MUTEX)) return mutex(choice);
    const names = several(locks, random);
    return { names, lock: async (options) => multiple(await leasehold.lockAll(source, names, options)) };
  },
  election: (choice) => election(choice, choice.random.pick(choice.locks)),
  once: (choice) => {
    const { leasehold, source, locks, random } = choice;
    const name = random.pick(locks);
    const slot = random.between(0, Number.MAX_SAFE_INTEGER);
    const during = async (work: (grip: Grip) => Promise<void>): Promise<void> => {
      const { ran } = await leasehold.once(source, name, slot, (lock) => work(single(lock)));
      if (ran) await assertDone(leasehold.once(source, name, slot, () => undefined, { ifHeld: "skip" }));
    };
    return { ...mutex(choice, name), during };
  },
  reentrant: (choice) => {
    const { leasehold, source, locks, random } = choice;
    const name = random.pick(locks);
    const lock = new leasehold.Mutex(source, name);
    const during = (work: (grip: Grip) => Promise<void>, options?: WaitOptions): Promise<void> =>
      lock.withLock((hold) => {
        const inside = AsyncLocalStorage.snapshot();
        const enter: Grip["enter"] = (entered) => inside(() => lock.withLock(entered, { reentrant: true }));
        return work({ ...single(hold), enter });
      }, options);
    return {
      ...mutex(choice, name),
      lock: (options) => opened<Grip>((work) => during(work, options)),
      during,
    };
  },
  leader: (choice) => {
    const name = choice.random.pick(choice.locks);
    return { ...election(choice, name), inside: true, during: (work) => term(choice, name, work) };
  },
  weblock,
};

/** One term of `lead()`. A campaign that fails is not repeated. */
async function term(
  { leasehold, cluster, session, value }: Choice,
  name: string,
  work: (grip: Grip) => Promise<void>,
): Promise<void> {
  const stop = new AbortController();
  let [failure, term] = [undefined as Error | undefined, undefined as Leadership | undefined];
  const run = async (leadership: Leadership): Promise<void> => {
    term = leadership;
    await work({ ...single(leadership), leadership });
    stop.abort();
  };
  const onRetry = (error: Error): void => {
    failure = error;
    stop.abort();
  };
  await leasehold.lead(cluster, name, run, { ...session, value, signal: stop.signal, onRetry });
  // A loss ends a term, and is no failure of `lead`.
  const reason = term?.signal.reason as (Error & { readonly code?: string }) | undefined;
  if (reason?.code === "LOCK_LOST") throw reason;
  if (failure !== undefined) throw failure;
}

/** Calls `giveUp` as the options of a wait say. Returns a function that cancels it. */
function givesUp(
  { signal, timeoutMs }: WaitOptions,
  { time, giveUp }: { readonly time: LabTime; readonly giveUp: (reason: Error) => void },
): () => void {
  const abort = (): void => giveUp(signal?.reason as Error);
  signal?.addEventListener("abort", abort);
  const late = (): void => giveUp(new DOMException("the wait was too long", "TimeoutError"));
  const cancel = timeoutMs === undefined ? undefined : time.after(timeoutMs, late);
  return () => (signal?.removeEventListener("abort", abort), cancel?.());
}

/** A lock of `ClusterLockManager`, in the queue of readers and writers that has its name. */
function weblock({ leasehold, cluster, shared, locks, random, time }: Choice): Subject {
  const lock = random.pick(locks);
  const at = lock.lastIndexOf("/");
  const [prefix, name] = [lock.slice(0, at), lock.slice(at + 1)];
  const locksOf = new leasehold.ClusterLockManager(cluster, { prefix });
  const queue = `${prefix}/${Buffer.from(name, "utf16le").toString("base64url")}`;
  const mode = random.chance(0.3) ? "shared" : "exclusive";
  const gripOf = (granted: WebLock): Grip => ({
    // It has no `held`: to read its signal compares the clocks, as to read `held` does.
    hold: {
      release: () => Promise.resolve(),
      get held() {
        return !granted.signal.aborted;
      },
      get signal() {
        return granted.signal;
      },
    },
    places: [{ name: queue, key: granted.key, token: granted.revision }],
    shared: mode === "shared",
  });
  const request = async (
    options: WebLockOptions,
    work: (grip: Grip | undefined) => Promise<void>,
  ): Promise<void> =>
    locksOf.request(name, { mode, ...options }, (it) => work(it === null ? undefined : gripOf(it)));
  const waiting = (options: WaitOptions = {}) => {
    const stop = new AbortController();
    const cancel = givesUp(options, { time, giveUp: (reason) => stop.abort(reason) });
    return opened<Grip | undefined>((work) => request({ signal: stop.signal }, work).finally(cancel));
  };
  return {
    ...{ names: [queue], owner: shared },
    lock: (options) => waiting(options) as Promise<Grip>,
    tryLock: () => opened<Grip | undefined>((work) => request({ ifAvailable: true }, work)),
    async during(work) {
      let working: Promise<void> | undefined;
      // If the lock is lost, the request rejects while its callback goes on.
      await request({}, (grip) => (working = work(grip as Grip))).finally(() => working);
    },
  };
}

/** A hold that lasts as long as a callback, as one that is released by a call. */
function opened<G extends Grip | undefined>(
  during: (work: (grip: G) => Promise<void>) => Promise<void>,
): Promise<G> {
  return new Promise((resolve, reject) => {
    const over: Promise<void> = during(
      (grip) =>
        new Promise((end) => {
          if (grip === undefined) end();
          else Object.assign(grip, { hold: endedBy(grip.hold, () => (end(), over)) });
          resolve(grip);
        }),
    );
    over.catch(reject);
  });
}

const endedBy = (hold: Grip["hold"], release: () => Promise<void>): Grip["hold"] => ({
  release,
  get held() {
    return hold.held;
  },
  get signal() {
    return hold.signal;
  },
});

/** A slot that was run without a mark, or that would run again, ends the process. */
async function assertDone(again: Promise<OnceResult<undefined>>): Promise<void> {
  const found = await again.catch(() => undefined);
  if (!found || (!found.ran && found.reason === "done")) return;
  void Promise.reject(new Error(`a slot that was run is ${found.ran ? "run again" : found.reason}`));
}

function mutex(choice: Choice, name = choice.random.pick(choice.locks)): Subject {
  const lock = new choice.leasehold.Mutex(choice.source, name, stickyOf(choice));
  return {
    names: [name],
    lock: async (options) => single(await lock.lock(options)),
    tryLock: async (options) => single(await lock.tryLock(options)),
    during: (work) => lock.withLock((hold) => work(single(hold))),
  };
}

function election({ leasehold, source, value }: Choice, name: string): Subject {
  const candidate = new leasehold.Election(source, name);
  const lead = async (options?: WaitOptions): Promise<Grip> => {
    const leadership = await candidate.campaign(value, options);
    return { ...single(leadership), leadership };
  };
  return { names: [name], lock: lead };
}

/** In any order, and none nested under another one. */
function several(locks: readonly string[], random: Random): readonly string[] {
  const rest = [...locks];
  const names: string[] = [];
  for (let left = random.between(2, 3); left > 0 && rest.length > 0; left--) {
    const name = rest.splice(random.between(0, rest.length - 1), 1)[0] as string;
    const apart = (other: string) =>
      !`${other}/`.startsWith(`${name}/`) && !`${name}/`.startsWith(`${other}/`);
    if (names.every(apart)) names.push(name);
  }
  return names;
}

function single(hold: Hold): Grip;
function single(hold: Hold | undefined): Grip | undefined;
function single(hold: Hold | undefined): Grip | undefined {
  if (hold === undefined) return undefined;
  const { name, key, revision } = hold;
  const { fence, turn } = hold as Partial<Lock>;
  const place = { name, key, token: fence ?? revision, guard: hold, ...(turn !== undefined && { turn }) };
  const downgrade = "downgrade" in hold && { downgrade: () => (hold as WriteLock).downgrade() };
  return { hold, places: [place], shared: fence === undefined, ...downgrade };
}

/** Some pass a key that others wait for on in their process. */
function stickyOf({ sticky, random }: Choice): StickyLockOptions | undefined {
  if (!sticky) return undefined;
  return random.chance(0.7) ? { sticky } : { sticky, local: { turns: random.between(1, 5), ms: 50 } };
}

function multiple(lock: MultiLock): Grip {
  const { names, keys, fence } = lock;
  const places = names.map((name, n) => ({ name, key: keys[n] ?? "", token: fence }));
  return { hold: lock, places, shared: false };
}
