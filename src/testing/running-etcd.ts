import type { Lock, Session } from "../index.js";
import {
  checkAdvance,
  type CutMode,
  checkCut,
  checkLease,
  checkLosable,
  checkMember,
  checkPrefixOfKeys,
  checkQuiet,
} from "./options.js";
import { newController } from "../base/util/abort.js";

export interface StartLimits {
  readonly signal: AbortSignal | undefined;
  readonly timeoutMs: number;
}

/** A member of the cluster: a process, a container, or a part of this process. */
export interface Member {
  readonly name: string;
  readonly running: boolean;
  /** Also after `kill()`. Resolves when it answers, which requires a majority. */
  start(limits: StartLimits): Promise<void>;
  kill(): Promise<void>;
  pause(): Promise<void>;
  resume(): Promise<void>;
}

/** The members of one cluster. */
export interface Fleet<M extends Member = Member> {
  readonly members: readonly M[];
  /** The version of etcd, as far as it is known. */
  readonly version: string | undefined;
  /** Kills the members, and removes their data. */
  remove(): Promise<void>;
}

/** The keys, leases and watches that etcd still has. */
export interface Leftovers {
  /** Sorted. */
  readonly keys: readonly string[];
  readonly leases: readonly bigint[];
  /** The number of watches that clients have open. */
  readonly watches: number;
  /** Bigints become decimal strings. */
  toJSON(): Readonly<Record<string, unknown>>;
}

/** A lock, a permit, a leadership or another hold; `lockAll()` has several keys. */
export type Losable = Pick<Lock, "revision" | "signal"> &
  (Pick<Lock, "key"> | { readonly keys: readonly string[] });

/**
 * An etcd of your own, and what can happen to it. Members have the indices 0 to 2; a call that names no member is about all of
 * them. Every method but `stop()` rejects after `stop()`, and with a `RangeError` for a member that does not exist.
 */
export interface TestEtcd extends AsyncDisposable {
  /**
   * For `connect({ hosts })`, in the order of the members. They lead to the members through links, which `cut()` cuts.
   */
  readonly hosts: readonly string[];
  /** The environment for `etcdctl` and for child processes that call `connect(fromEnv())`: ETCDCTL_ENDPOINTS. */
  readonly env: { readonly ETCDCTL_ENDPOINTS: string };
  /** The version of etcd, such as "3.4.23"; undefined for an image. */
  readonly version: string | undefined;

  /**
   * Suspends the process of a member (SIGSTOP), or its container. Connections stay open, and nothing is answered. Resolves when it
   * is suspended.
   */
  pause(member?: number): Promise<void>;
  /** Ends `pause()`. Does nothing for a member that runs. */
  resume(member?: number): Promise<void>;
  /**
   * Cuts the link between the clients and a member; the members still reach each other.
   *
   * With "silent", the default, connections stay open and new ones are accepted, but every byte is dropped in both directions, as
   * by a firewall that drops packets. With "reset", open connections and new ones are reset at once.
   */
  cut(member?: number, options?: { readonly how?: "silent" | "reset" | undefined }): Promise<void>;
  /**
   * Ends `cut()`. Connections that were silent are reset, so that clients connect again: what they sent meanwhile never reaches
   * etcd.
   */
  heal(member?: number): Promise<void>;
  /** Kills the process of a member (SIGKILL), or its container. Its data stays for `restart()`. */
  kill(member?: number): Promise<void>;
  /**
   * Kills a member if it runs, and starts it with its data. Resolves when it answers, for which most members must run: restart
   * those together by naming none.
   * @throws an `Error` with what etcd printed if it does not answer within 30 s.
   */
  restart(member?: number): Promise<void>;
  /** The index of the member that leads. Waits up to 10 s for an election. */
  leader(): Promise<number>;
  /**
   * Lets so many milliseconds pass, at most a year: resolves when the time has come. Calls that overlap share the time:
   * `advance(2000)` during an `advance(5000)` resolves when two of the five seconds have passed. `stop()` rejects those under way.
   *
   * The time of `memoryEtcd({ time: "virtual" })` stands still otherwise. There, the call moves it, for etcd and for all clusters that
   * are connected to it, and runs what is due meanwhile: renewals, expiries, time limits, `maxHoldMs`, pauses between attempts.
   * After each event, what your code does because of it comes first, as far as it takes no time and no I/O. A lost lock has
   * `held` false at its deadline to the millisecond; its signal aborts one millisecond later, or when your code reads `held`.
   * @throws {TypeError | RangeError} for a bad number.
   */
  advance(ms: number): Promise<void>;

  /**
   * Revokes the lease of a session behind its back, as an operator could. Resolves when etcd has the lease and its keys no more;
   * the session learns of it later: wait for its `signal`.
   * @throws an `Error` if etcd has no such lease, or if no member answers within 10 s.
   */
  expire(session: Pick<Session, "leaseId"> | bigint): Promise<void>;
  /**
   * Deletes the key of a lock behind its back. Resolves when its holder knows: when `lock.signal` has aborted.
   * @throws an `Error` if etcd does not have the key any more, if no member answers within 10 s, or if the holder has not noticed
   *   10 s later, for example because its link is cut.
   */
  lose(lock: Losable): Promise<void>;

  /** The keys in etcd that start with `prefix`, sorted. @throws an `Error` if no member answers within 10 s. */
  keys(prefix?: string): Promise<string[]>;
  /** Resolves with what is left in etcd now. The watches of members that are paused or killed are not counted. */
  leftovers(): Promise<Leftovers>;
  /**
   * Whether etcd has no key, no lease and no watch: true as soon as that is so, false after `timeoutMs`, which is 2000 unless
   * told. A client that was closed a moment ago may still have a watch there. The marks of `once` are keys that stay: after it, look
   * at `keys(prefix)` instead.
   */
  isQuiet(options?: { readonly timeoutMs?: number | undefined }): Promise<boolean>;

  /**
   * Kills the members and removes their data, whatever state they are in. What was under way rejects. Idempotent. Without it, the
   * members end with this process.
   */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

const RESTART_MS = 30_000;
const NOTICE_MS = 10_000;

/** The way of clients to one member. */
export interface ClientLink {
  readonly host: string;
  cut(how: CutMode): void;
  heal(): void;
  close(): Promise<void>;
}

/** What a test does behind the back of etcd's clients. */
export interface Backdoor {
  /** @throws an `Error` if there is no such lease. */
  revoke(leaseId: bigint): Promise<void>;
  /** Deletes the keys if they have this create revision. @returns whether they had */
  remove(keys: readonly string[], revision: bigint): Promise<boolean>;
  keys(prefix: string): Promise<string[]>;
  leftovers(): Promise<Leftovers>;
  leader(): Promise<number>;
}

/** What differs between an etcd outside of this process and one inside. `over` aborts when it is stopped. */
export interface Surroundings {
  readonly backdoor: (isPaused: (member: Member) => boolean, over: AbortSignal) => Backdoor;
  /** Whether `is()` becomes true within so long. Rejects with the reason of `over`. */
  readonly until: (
    is: () => boolean | Promise<boolean>,
    limitMs: number,
    over: AbortSignal,
  ) => Promise<boolean>;
}

/** A member with its link. */
interface Linked {
  readonly member: Member;
  readonly link: ClientLink;
}

export class RunningEtcd implements TestEtcd {
  readonly hosts: readonly string[];
  readonly env: TestEtcd["env"];
  readonly version: string | undefined;
  readonly #fleet: Fleet;
  readonly #linked: readonly Linked[];
  readonly #admin: Backdoor;
  readonly #until: Surroundings["until"];
  readonly #paused = new Set<Member>();
  /** Each call that waits adds a listener. */
  readonly #over = newController();
  /** What `stop()` waits for: none of it may start a process after it. */
  readonly #underWay = new Set<Promise<unknown>>();
  #stopping: Promise<void> | undefined;

  /** `links` in the order of the members. */
  constructor(fleet: Fleet, links: readonly ClientLink[], { backdoor, until }: Surroundings) {
    this.#fleet = fleet;
    this.#linked = links.map((link, index) => ({ link, member: fleet.members[index] as Member }));
    this.hosts = links.map(({ host }) => host);
    this.env = { ETCDCTL_ENDPOINTS: this.hosts.join(",") };
    this.version = fleet.version;
    this.#admin = backdoor((member) => this.#paused.has(member), this.#over.signal);
    this.#until = until;
  }

  pause(member?: number): Promise<void> {
    return this.#each(member, async (one) => {
      this.#paused.add(one.member);
      await one.member.pause();
    });
  }

  resume(member?: number): Promise<void> {
    return this.#each(member, async (one) => {
      if (!this.#paused.has(one.member)) return;
      await one.member.resume();
      this.#paused.delete(one.member);
    });
  }

  async cut(member?: number, options?: { readonly how?: "silent" | "reset" | undefined }): Promise<void> {
    const how = checkCut(options);
    await this.#each(member, ({ link }) => Promise.resolve(link.cut(how)));
  }

  heal(member?: number): Promise<void> {
    return this.#each(member, ({ link }) => Promise.resolve(link.heal()));
  }

  kill(member?: number): Promise<void> {
    return this.#each(member, (one) => this.#kill(one));
  }

  restart(member?: number): Promise<void> {
    return this.#each(member, async (one) => {
      await this.#kill(one);
      const { signal } = this.#over;
      signal.throwIfAborted();
      await one.member.start({ signal, timeoutMs: RESTART_MS });
    });
  }

  leader(): Promise<number> {
    return this.during(() => this.#admin.leader());
  }

  async advance(ms: number): Promise<void> {
    const checked = checkAdvance(ms);
    await this.during((over) => this.#until(() => false, checked, over));
  }

  async expire(session: { readonly leaseId: bigint } | bigint): Promise<void> {
    const leaseId = checkLease(session);
    await this.during(() => this.#admin.revoke(leaseId));
  }

  async lose(lock: Losable): Promise<void> {
    const { keys, revision, signal } = checkLosable(lock);
    await this.during(async () => {
      const [key = ""] = keys;
      const had = await this.#admin.remove(keys, revision);
      if (!had)
        throw new Error(`etcd has no key ${key} of revision ${revision}: the lock was over before lose()`);
      if (await this.#until(() => signal.aborted, NOTICE_MS, this.#over.signal)) return;
      throw new Error(`The key ${key} is deleted, and its holder has not noticed within ${NOTICE_MS} ms`);
    });
  }

  async keys(prefix?: string): Promise<string[]> {
    const checked = checkPrefixOfKeys(prefix);
    return this.during(() => this.#admin.keys(checked));
  }

  leftovers(): Promise<Leftovers> {
    return this.during(() => this.#admin.leftovers());
  }

  async isQuiet(options?: { readonly timeoutMs?: number | undefined }): Promise<boolean> {
    const timeoutMs = checkQuiet(options);
    const isQuiet = async (): Promise<boolean> => {
      const { keys, leases, watches } = await this.#admin.leftovers();
      return keys.length + leases.length + watches === 0;
    };
    return this.during(() => this.#until(isQuiet, timeoutMs, this.#over.signal));
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #stop(): Promise<void> {
    this.#over.abort(new Error("This etcd was stopped"));
    await Promise.allSettled(this.#underWay);
    await Promise.all(this.#linked.map(({ link }) => link.close()));
    await this.#fleet.remove();
  }

  async #kill({ member }: Linked): Promise<void> {
    await member.kill();
    this.#paused.delete(member);
  }

  /** Resolves when the action has ended at all members, or rejects with its first failure then. */
  async #each(member: unknown, action: (one: Linked) => Promise<void>): Promise<void> {
    const chosen = checkMember(this.#linked, member);
    await this.during(async () => {
      const ends = await Promise.allSettled(chosen.map(action));
      for (const end of ends) if (end.status === "rejected") throw end.reason;
    });
  }

  /** `stop()` waits for what it does. Rejects after `stop()`. */
  protected async during<T>(work: (over: AbortSignal) => Promise<T>): Promise<T> {
    this.#over.signal.throwIfAborted();
    const promise = work(this.#over.signal);
    this.#underWay.add(promise);
    try {
      return await promise;
    } finally {
      this.#underWay.delete(promise);
    }
  }
}

/** `toJSON` is not enumerable, so that logs and comparisons show only the data. */
export function asLeftovers(found: Omit<Leftovers, "toJSON">): Leftovers {
  const toJSON = (): Record<string, unknown> => ({ ...found, leases: found.leases.map(String) });
  return Object.defineProperty(found, "toJSON", { value: toJSON }) as Leftovers;
}
