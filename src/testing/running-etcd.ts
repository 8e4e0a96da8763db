import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { Admin } from "./admin.js";
import type { Link } from "./link.js";
import type { Fleet, Member } from "./member.js";
import { checkCut, checkLease, checkLosable, checkMember, checkPrefixOfKeys, checkQuiet } from "./options.js";
import type { Leftovers, Losable, TestEtcd } from "./test-etcd.js";

const RESTART_MS = 30_000;
const NOTICE_MS = 10_000;
const POLL_MS = 20;

/** A member with its link. */
interface Linked {
  readonly member: Member;
  readonly link: Link;
}

export class RunningEtcd implements TestEtcd {
  readonly hosts: readonly string[];
  readonly env: TestEtcd["env"];
  readonly version: string | undefined;
  readonly #fleet: Fleet;
  readonly #linked: readonly Linked[];
  readonly #admin: Admin;
  readonly #paused = new Set<Member>();
  readonly #over = new AbortController();
  /** What `stop()` waits for: none of it may start a process after it. */
  readonly #underWay = new Set<Promise<unknown>>();
  #stopping: Promise<void> | undefined;

  /** `links` in the order of the members. */
  constructor(fleet: Fleet, links: readonly Link[]) {
    this.#fleet = fleet;
    this.#linked = links.map((link, index) => ({ link, member: fleet.members[index] as Member }));
    this.hosts = links.map(({ host }) => host);
    this.env = { ETCDCTL_ENDPOINTS: this.hosts.join(",") };
    this.version = fleet.version;
    this.#admin = new Admin(fleet.members, (member) => this.#paused.has(member), this.#over.signal);
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
    return this.#during(() => this.#admin.leader());
  }

  async expire(session: { readonly leaseId: bigint } | bigint): Promise<void> {
    const leaseId = checkLease(session);
    await this.#during(() => this.#admin.revoke(leaseId));
  }

  async lose(lock: Losable): Promise<void> {
    const { keys, revision, signal } = checkLosable(lock);
    await this.#during(async () => {
      const [key = ""] = keys;
      const had = await this.#admin.remove(keys, revision);
      if (!had)
        throw new Error(`etcd has no key ${key} of revision ${revision}: the lock was over before lose()`);
      if (signal.aborted) return;
      const limit = AbortSignal.any([AbortSignal.timeout(NOTICE_MS), this.#over.signal]);
      await once(signal, "abort", { signal: limit }).catch(() => {
        this.#over.signal.throwIfAborted();
        throw new Error(`The key ${key} is deleted, and its holder has not noticed within ${NOTICE_MS} ms`);
      });
    });
  }

  async keys(prefix?: string): Promise<string[]> {
    const checked = checkPrefixOfKeys(prefix);
    return this.#during(() => this.#admin.keys(checked));
  }

  leftovers(): Promise<Leftovers> {
    return this.#during(() => this.#admin.leftovers());
  }

  async isQuiet(options?: { readonly timeoutMs?: number | undefined }): Promise<boolean> {
    const timeoutMs = checkQuiet(options);
    return this.#during(async () => {
      for (const until = performance.now() + timeoutMs; ; await delay(POLL_MS)) {
        const { keys, leases, watches } = await this.#admin.leftovers();
        if (keys.length + leases.length + watches === 0) return true;
        if (performance.now() >= until || this.#over.signal.aborted) return false;
      }
    });
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
    await this.#during(async () => {
      const ends = await Promise.allSettled(chosen.map(action));
      for (const end of ends) if (end.status === "rejected") throw end.reason;
    });
  }

  async #during<T>(work: () => Promise<T>): Promise<T> {
    this.#over.signal.throwIfAborted();
    const promise = work();
    this.#underWay.add(promise);
    try {
      return await promise;
    } finally {
      this.#underWay.delete(promise);
    }
  }
}
