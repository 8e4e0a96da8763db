import { once } from "node:events";
import http from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import type { Lock, Session } from "../index.js";
import type { Address, Link } from "./link.js";
import { checkCut, checkLease, checkLosable, checkMember, checkPrefixOfKeys, checkQuiet } from "./options.js";

export interface StartLimits {
  readonly signal: AbortSignal | undefined;
  readonly timeoutMs: number;
}

/** A member of the cluster: a process, or a container. */
export interface Member {
  readonly name: string;
  readonly running: boolean;
  /** Where it answers, past the link. */
  readonly address: Address;
  /** Also after `kill()`. Resolves when it answers, which requires a majority. */
  start(limits: StartLimits): Promise<void>;
  kill(): Promise<void>;
  pause(): Promise<void>;
  resume(): Promise<void>;
}

/** The members of one cluster. */
export interface Fleet {
  readonly members: readonly Member[];
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
   * told. A client that was closed a moment ago may still have a watch there.
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

/** etcd has answered, and refused. */
class RefusedError extends Error {}

const ANSWER_MS = 2_000;

/** One request on its own connection: a pooled one may lead to a process that has been killed since. */
function send({ host, port }: Address, path: string, body?: object): Promise<string> {
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(ANSWER_MS);
    const method = body === undefined ? "GET" : "POST";
    const request = http.request({ host, port, path, method, signal, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => (text += chunk));
      response.on("error", reject);
      response.on("end", () => {
        if (response.statusCode === 200) resolve(text);
        else reject(new RefusedError(`${path}: ${response.statusCode} ${text}`));
      });
    });
    request.on("error", reject);
    request.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

/** POST to etcd's JSON gateway, with keys in base64 and numbers of 64 bits as text. */
async function ask<T>(address: Address, path: string, body: object): Promise<T> {
  return JSON.parse(await send(address, path, body)) as T;
}

/** What is wrong with the member; empty if it has confirmed a read with a majority. */
export async function wrongWith(address: Address): Promise<string> {
  return ask(address, "/v3/kv/range", { key: base64("\0") }).then(() => "", String);
}

/** One of etcd's metrics; 0 if it has none of this name. */
async function metric(address: Address, name: string): Promise<number> {
  const lines = (await send(address, "/metrics")).split("\n");
  return Number(lines.find((line) => line.startsWith(`${name} `))?.slice(name.length + 1) ?? 0);
}

const base64 = (text: string): string => Buffer.from(text).toString("base64");
const fromBase64 = (text: string): string => Buffer.from(text, "base64").toString();

/** How long a request looks for a member that answers. */
const LIMIT_MS = 10_000;
const PAUSE_MS = 50;
const FINAL = /not found|user name is empty|permission denied/;

interface Answer<T> {
  readonly value: T;
  /** Whether an attempt before may have been executed too. */
  readonly repeated: boolean;
}

/** Requests to the members past the links: what a test does behind its client's back. */
class Admin {
  readonly #members: readonly Member[];
  readonly #isPaused: (member: Member) => boolean;
  readonly #over: AbortSignal;

  /** `over` ends the search for a member that answers. */
  constructor(members: readonly Member[], isPaused: (member: Member) => boolean, over: AbortSignal) {
    this.#members = members;
    this.#isPaused = isPaused;
    this.#over = over;
  }

  async revoke(leaseId: bigint): Promise<void> {
    const path = "/v3/lease/revoke";
    await this.#ask(path, { ID: String(leaseId) }).catch((error: unknown) => {
      if (!(error instanceof NotFoundError)) throw error;
      if (!error.repeated) throw new Error(`etcd has no lease ${leaseId.toString(16)}`, { cause: error });
    });
  }

  /** Deletes the keys if they have this create revision. @returns whether they had */
  async remove(keys: readonly string[], revision: bigint): Promise<boolean> {
    const body = {
      compare: keys.map((key) => ({
        ...{ target: "CREATE", result: "EQUAL", key: base64(key) },
        create_revision: String(revision),
      })),
      success: keys.map((key) => ({ request_delete_range: { key: base64(key) } })),
    };
    const { value, repeated } = await this.#ask<{ succeeded?: boolean }>("/v3/kv/txn", body);
    return value.succeeded === true || repeated;
  }

  async keys(prefix: string): Promise<string[]> {
    const body = { key: base64(prefix || "\0"), range_end: endOf(prefix), keys_only: true };
    const { value } = await this.#ask<{ kvs?: { key: string }[] }>("/v3/kv/range", body);
    return (value.kvs ?? []).map(({ key }) => fromBase64(key));
  }

  async leftovers(): Promise<Leftovers> {
    const keys = await this.keys("");
    const { value } = await this.#ask<{ leases?: { ID: string }[] }>("/v3/lease/leases", {});
    const watches = await Promise.all(
      this.#awake().map(({ address }) => metric(address, "etcd_debugging_mvcc_watcher_total").catch(() => 0)),
    );
    const found: Omit<Leftovers, "toJSON"> = {
      keys,
      leases: (value.leases ?? []).map(({ ID }) => BigInt(ID)),
      watches: watches.reduce((sum, count) => sum + count, 0),
    };
    const toJSON = (): Record<string, unknown> => ({ ...found, leases: found.leases.map(String) });
    // Not enumerable, so that logs and comparisons show only the data.
    return Object.defineProperty(found, "toJSON", { value: toJSON }) as Leftovers;
  }

  /** The index of the member that says that it leads in the highest term. */
  async leader(): Promise<number> {
    for (const until = performance.now() + LIMIT_MS; performance.now() < until; await this.#pause()) {
      const views = await Promise.all(this.#awake().map((member) => statusOf(member)));
      const known = views.flatMap((view) => view ?? []).sort((a, b) => b.term - a.term);
      const found = known.find(({ leads, term }) => leads && term === known[0]?.term);
      if (found) return this.#members.indexOf(found.member);
    }
    throw new Error(`No member leads within ${LIMIT_MS} ms`);
  }

  #awake(): readonly Member[] {
    return this.#members.filter((member) => member.running && !this.#isPaused(member));
  }

  /** Asks one member after the other, until one of them answers. */
  async #ask<T>(path: string, body: object): Promise<Answer<T>> {
    let failure: unknown = new Error("every member is paused or killed");
    let repeated = false;
    for (const until = performance.now() + LIMIT_MS; performance.now() < until; await this.#pause()) {
      const members = this.#awake();
      if (members.length === 0) break;
      for (const { address } of members) {
        try {
          return { value: await ask<T>(address, path, body), repeated };
        } catch (error) {
          if (error instanceof RefusedError && FINAL.test(error.message))
            throw new NotFoundError(error, repeated);
          [failure, repeated] = [error, true];
        }
      }
    }
    throw new Error(`No answer of etcd: ${(failure as Error).message}`, { cause: failure });
  }

  async #pause(): Promise<void> {
    await delay(PAUSE_MS, undefined, { signal: this.#over }).catch(() => {
      throw this.#over.reason;
    });
  }
}

/** etcd's last word. */
class NotFoundError extends Error {
  constructor(
    cause: Error,
    readonly repeated: boolean,
  ) {
    super(`etcd has refused: ${cause.message}`, { cause });
  }
}

interface Status {
  readonly header: { readonly member_id: string; readonly raft_term: string };
  readonly leader: string;
}

async function statusOf(member: Member) {
  try {
    const { header, leader } = await ask<Status>(member.address, "/v3/maintenance/status", {});
    return [{ member, leads: header.member_id === leader, term: Number(header.raft_term) }];
  } catch {
    return undefined;
  }
}

/** The end of the range of keys with this prefix, in base64; "\0" is etcd's word for no end. */
function endOf(prefix: string): string {
  const bytes = Buffer.from(prefix);
  for (let last = bytes.length - 1; last >= 0; last--) {
    const byte = bytes[last] ?? 0;
    if (byte === 0xff) continue;
    bytes[last] = byte + 1;
    return bytes.subarray(0, last + 1).toString("base64");
  }
  return base64("\0");
}
