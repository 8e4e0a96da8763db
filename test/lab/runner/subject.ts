import type {
  Cluster,
  Hold,
  Leadership,
  Lock,
  MultiLock,
  OnceResult,
  Session,
  WaitOptions,
} from "../../../src/index.js";
import type { load } from "./leasehold.js";
import type { Random } from "./random.js";

/** What the lanes of a run can acquire. */
export const SUBJECTS = ["mutex", "rwlock", "semaphore", "lockall", "election", "once"] as const;
export type Of = (typeof SUBJECTS)[number];

/** Users of a semaphore with different limits, as during the rollout of a new limit. */
const PERMITS = [2, 3] as const;
/** The share of mutexes of the same name among the calls of the other kinds. */
const MUTEX = 0.25;

/** One key that the hold owns. */
export interface Gripped {
  readonly name: string;
  readonly key: string;
  /** Its fence, or its revision where holders share. */
  readonly token: bigint;
}

/** What a call was granted. */
export interface Grip {
  readonly hold: Pick<Hold, "held" | "signal" | "release">;
  readonly places: readonly Gripped[];
  /** Other shared holds may exist at the same time: it writes nothing. */
  readonly shared: boolean;
  readonly leadership?: Leadership;
}

/** One lock of some kind, or several at once, behind one interface. */
export interface Subject {
  readonly names: readonly string[];
  lock(options?: WaitOptions): Promise<Grip>;
  tryLock?(options: WaitOptions): Promise<Grip | undefined>;
  readonly during?: (work: (grip: Grip) => Promise<void>) => Promise<void>;
}

export interface Choice {
  readonly leasehold: Awaited<ReturnType<typeof load>>;
  readonly source: Cluster | Session;
  readonly locks: readonly string[];
  readonly random: Random;
  /** The value that this particular call campaigns with. */
  readonly value: string;
}

export function subjectOf(of: Of, choice: Choice): Subject {
  return CHOOSE[of](choice);
}

const CHOOSE: Record<Of, (choice: Choice) => Subject> = {
  mutex,
  rwlock: (choice) => {
    const { leasehold, source, locks, random } = choice;
    if (random.chance(MUTEX)) return mutex(choice);
    const name = random.pick(locks);
    const lock = new leasehold.RwLock(source, name);
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
  semaphore: ({ leasehold, source, locks, random }) => {
    const name = random.pick(locks);
    const semaphore = new leasehold.Semaphore(source, name, random.pick(PERMITS));
    return {
      names: [name],
      lock: async (options) => single(await semaphore.acquire(options)),
      tryLock: async (options) => single(await semaphore.tryAcquire(options)),
      during: (work) => semaphore.withPermit((hold) => work(single(hold))),
    };
  },
  lockall: (choice) => {
    const { leasehold, source, locks, random } = choice;
    if (random.chance(MUTEX)) return mutex(choice);
    const names = several(locks, random);
    return { names, lock: async (options) => multiple(await leasehold.lockAll(source, names, options)) };
  },
  election: ({ leasehold, source, locks, random, value }) => {
    const name = random.pick(locks);
    const election = new leasehold.Election(source, name);
    const lead = async (options?: WaitOptions): Promise<Grip> => {
      const leadership = await election.campaign(value, options);
      return { ...single(leadership), leadership };
    };
    return { names: [name], lock: lead };
  },
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
};

/** A slot that was run without a mark, or that would run again, ends the process. */
async function assertDone(again: Promise<OnceResult<undefined>>): Promise<void> {
  const found = await again.catch(() => undefined);
  if (!found || (!found.ran && found.reason === "done")) return;
  void Promise.reject(new Error(`a slot that was run is ${found.ran ? "run again" : found.reason}`));
}

function mutex({ leasehold, source, locks, random }: Choice, name = random.pick(locks)): Subject {
  const lock = new leasehold.Mutex(source, name);
  return {
    names: [name],
    lock: async (options) => single(await lock.lock(options)),
    tryLock: async (options) => single(await lock.tryLock(options)),
    during: (work) => lock.withLock((hold) => work(single(hold))),
  };
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
  const { fence } = hold as Partial<Lock>;
  return { hold, places: [{ name, key, token: fence ?? revision }], shared: fence === undefined };
}

function multiple(lock: MultiLock): Grip {
  const { names, keys, fence } = lock;
  const places = names.map((name, n) => ({ name, key: keys[n] ?? "", token: fence }));
  return { hold: lock, places, shared: false };
}
