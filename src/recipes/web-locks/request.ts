import { holdOf, isOfSession, tryEntry } from "../../lock/hold/acquire.js";
import { type AcquireTarget, type LockAbout, publishRejoin } from "../../lock/hold/events.js";
import { ExclusiveHoldHandle, HoldHandle } from "../../lock/hold/hold.js";
import type { EntryValue } from "../../keys.js";
import { NO_LOCK_OPTIONS } from "../../base/options/lock.js";
import type { JoinedEntry } from "../../lock/queue/entry.js";
import { queueRange, reader, writer } from "../../lock/queue/lock-mode.js";
import { LockTable } from "../../lock/queue/queue.js";
import type { JoinOptions, Queue } from "../../lock/queue/queue.js";
import type { Waiter } from "../../lock/queue/waiter.js";
import type { LeaseSource } from "../../lock/session/cluster.js";
import type { EtcdServices } from "../../lock/session/connection.js";
import type { Lease } from "../../lock/session/lease.js";
import { inOwnContext } from "../../base/util/own-context.js";
import { printable } from "../../base/util/printable.js";
import { settleWithin } from "../../base/util/settle.js";
import {
  closedError,
  heldAndPending,
  type LockRequestArguments,
  queueNameOf,
  type WebLockEntry,
  webLockEntryIn,
} from "./arguments.js";

/** A request as the registry and `query` see it. */
interface RegisteredRequest {
  readonly id: string;
  /** Position of its call among all calls. */
  readonly order: number;
  /** The manager that was called. */
  readonly client: { readonly clientId: string; readonly prefix: string };
  readonly args: LockRequestArguments;
  /** The request waits, whether its entry is in the queue at this moment or not. */
  readonly pending: boolean;
  /** Resolves when `answer` is called: the request is known to wait, is decided, or must not delay later ones any longer. */
  readonly answered: Promise<void>;
  answer(): void;
}

const registries = new WeakMap<EtcdServices, RequestRegistry>();

/** The requests under way in all managers of one cluster in this process. */
export class RequestRegistry {
  /** Requests, by ID, whose callbacks have not settled and whose locks are not lost. */
  readonly live = new Map<string, RegisteredRequest>();
  readonly #lines = new Map<string, RequestQueue>();
  #answered: Promise<void> = Promise.resolve();

  static of(services: EtcdServices): RequestRegistry {
    const registry = registries.get(services) ?? new RequestRegistry();
    registries.set(services, registry);
    return registry;
  }

  /** Resolves when each request so far has been granted and called back, is known to wait, or has ended. */
  get answered(): Promise<void> {
    return this.#answered;
  }

  /** The requests for one name. Names come and go (one per user, for example), so unused lines are not kept. */
  line(name: string): RequestQueue {
    const onIdle = (): void => {
      if (this.#lines.get(name) === line) this.#lines.delete(name);
    };
    const line = this.#lines.get(name) ?? new RequestQueue(onIdle);
    this.#lines.set(name, line);
    return line;
  }

  add(request: RegisteredRequest): void {
    this.live.set(request.id, request);
    this.#answered = this.#answered.then(() => request.answered);
  }

  /** Later requests no longer wait for those before `request`, because etcd is too slow in deciding them. */
  pass({ order }: RegisteredRequest): void {
    for (const earlier of this.live.values()) {
      if (earlier.order < order) earlier.answer();
    }
  }
}

/** How a request joins the queue: to wait, to fail if it would have to wait, or to steal from the entries before it. */
export type AcquireMode = "wait" | "try" | "steal";

/** A request as its `RequestQueue` sees it. */
export interface QueuedRequest {
  /** Position of its call among all calls. */
  readonly order: number;
  readonly mode: AcquireMode;
  /** Resolves when its entry is in the queue, or the request has ended. Never rejects. */
  join(): Promise<void>;
  /** Called when it would have to wait behind an earlier request that is in the queue, which is known without asking etcd. */
  mustWait(): void;
}

/** Half of the entries that one session's queue has at a time: leaves room for a steal, and for locks of other classes. */
const MAX_QUEUED = 50;

/**
 * The requests of one process for one name. They join the queue in the order of their calls: the next one joins when the
 * one before it is in the queue, or has ended.
 */
class RequestQueue {
  #line: QueuedRequest[] = [];
  /** Requests that have joined, and are neither granted nor ended. */
  readonly #queued = new Set<QueuedRequest>();
  #joining = false;

  constructor(private readonly onIdle: () => void) {}

  /** A request that has lost its entry with its session comes before later calls. */
  add(request: QueuedRequest): void {
    this.#queued.delete(request);
    const behind = this.#line.findIndex(({ order }) => order > request.order);
    this.#line.splice(behind === -1 ? this.#line.length : behind, 0, request);
    // One call joins for the others.
    void inOwnContext(() => this.#joinNext());
  }

  /** The request no longer waits. */
  remove(request: QueuedRequest): void {
    this.#line = this.#line.filter((other) => other !== request);
    this.#queued.delete(request);
    void inOwnContext(() => this.#joinNext());
  }

  async #joinNext(): Promise<void> {
    if (this.#joining) return;
    this.#joining = true;
    for (let next = this.#next(); next; next = this.#next()) {
      this.#line.splice(this.#line.indexOf(next), 1);
      this.#queued.add(next);
      await next.join();
    }
    this.#joining = false;
    for (const request of this.#line) request.mustWait();
    if (this.#line.length === 0 && this.#queued.size === 0) this.onIdle();
  }

  #next(): QueuedRequest | undefined {
    // Until a steal holds, a second one would delete it as a waiter, and it would join again behind the second.
    if ([...this.#queued].some(({ mode }) => mode === "steal")) return undefined;
    return this.#queued.size < MAX_QUEUED ? this.#line[0] : this.#line.find(({ mode }) => mode === "steal");
  }
}

/**
 * Deletes the entries before the one with this create revision: those of waiters first, and after that those of holders.
 * If both were deleted at once, a waiter could acquire the lock before it is notified of its own deletion. After that the
 * queue decides whose turn it is, as always.
 */
async function stealFromEarlier(queue: Queue, revision: bigint): Promise<void> {
  const { lease, name, path } = queue;
  const earlier = { ...queueRange(path), order: "oldest first", maxCreateRevision: revision - 1n } as const;
  const { kvs } = await lease.services.client.range(earlier, lease.policy(`steal "${name}"`));
  const { held, pending } = heldAndPending(kvs.map((kv) => webLockEntryIn(path, kv)));
  // From the back, so that no deletion wakes a waiter that is deleted next.
  await remove(queue, pending.toReversed());
  await remove(queue, held);
}

async function remove({ lease, name }: Queue, entries: readonly WebLockEntry[]): Promise<void> {
  const { client } = lease.services;
  const stolen = entries.filter(({ foreign }) => !foreign);
  await Promise.all(
    stolen.map(({ kv: { key, createRevision } }) => {
      const txn = {
        // Only its own key, so that all of them are sent together in one request.
        queues: [key.toString()],
        compare: [{ kind: "created at", key, revision: createRevision }],
        success: [{ kind: "delete", key }],
        failure: [],
      } as const;
      return client.txn(txn, lease.policy(`steal "${name}"`));
    }),
  );
  const gone = new Map(stolen.map(({ kv }) => [kv.key.toString(), kv.createRevision]));
  // A short hold has no watch, so the holds of this session are notified here.
  for (const hold of lease.holds) {
    if (hold instanceof HoldHandle && gone.get(hold.key) === hold.revision) hold.keyDeleted();
  }
}

/** One manager, as the client of its requests. */
export interface WebLockClient {
  readonly services: EtcdServices;
  readonly source: LeaseSource;
  readonly clientId: string;
  /** Prefix of the keys of all its locks. */
  readonly prefix: string;
  readonly requests: RequestRegistry;
}

/** Where a request takes its leases from, and what it reports. */
export type RequestHooks = Pick<AcquireTarget, "source" | "onAhead">;

/** How long the callback of a granted lock waits for earlier requests, also of other names, that etcd has not decided. */
const ORDER_MS = 250;
const UNLIMITED = { signal: undefined, timeoutMs: undefined };

let calls = 0;

/** A call of `request` until its lock is granted, across any number of sessions. */
export class LockRequest implements QueuedRequest, RegisteredRequest {
  readonly order = calls++;
  readonly mode: AcquireMode;
  /** Distinguishes its entry from those of other requests. */
  readonly id: string;
  /** undefined if it would have to wait but must not. Grants follow the order of the calls, unless etcd is late with one. */
  readonly acquired: Promise<HoldHandle | undefined>;
  readonly answered: Promise<void>;
  answer: () => void = () => {};
  readonly #queueName: string;
  readonly #line: RequestQueue;
  #earlier: Promise<void> = Promise.resolve();
  #resolve: (hold: HoldHandle | undefined) => void = () => {};
  #reject: (error: unknown) => void = () => {};
  #hooks: RequestHooks;
  #lease: Promise<Lease> | undefined;
  #used: Lease | undefined;
  #waiter: Waiter | undefined;
  #onJoined: () => void = () => {};
  #over = false;

  /** @throws RangeError when the name is too long */
  constructor(
    readonly client: WebLockClient,
    readonly args: LockRequestArguments,
  ) {
    this.#queueName = queueNameOf(client.prefix, args.name);
    this.id = client.services.clock.randomId().toString(36);
    this.mode = args.steal ? "steal" : args.ifAvailable ? "try" : "wait";
    this.answered = new Promise((resolve) => (this.answer = resolve));
    this.acquired = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#hooks = client;
    this.#line = client.requests.line(this.#queueName);
  }

  /** Lines up behind the earlier requests. */
  begin(hooks: RequestHooks): void {
    this.#hooks = hooks;
    this.#lease = this.#openSession();
    const { requests } = this.client;
    this.#earlier = requests.answered;
    requests.add(this);
    this.#line.add(this);
  }

  /** What events say of it: the name as its caller gave it. */
  get about(): LockAbout {
    return { kind: "web_lock", name: this.args.name, options: NO_LOCK_OPTIONS };
  }

  get pending(): boolean {
    return !this.#over && this.mode !== "try";
  }

  async join(): Promise<void> {
    try {
      const lease = await (this.#lease ??= this.#openSession());
      this.#used = lease;
      if (this.#over) return;
      if (this.mode === "try") this.#acquire(await this.#try(lease));
      else await this.#joinWith(LockTable.of(lease).queue(this.#queueName));
    } catch (error) {
      this.#fail(error);
    }
  }

  mustWait(): void {
    if (this.mode === "try") this.#acquire(undefined);
    else this.answer();
  }

  /** The caller no longer waits; its entry is removed in the background. */
  giveUp(reason: unknown): void {
    const unsent = this.#waiter?.stage.at === "line";
    this.#end(() => this.#reject(reason));
    this.#waiter?.giveUp();
    // A join that was sent is awaited, because it may still put its entry into the queue.
    if (unsent) this.#onJoined();
  }

  /** Called before the request may join: if no session can be opened, the last of many must not wait for all earlier timeouts. */
  #openSession(): Promise<Lease> {
    const lease = (async () => this.#hooks.source.lease(UNLIMITED))();
    lease.catch(() => undefined);
    return lease;
  }

  async #try(lease: Lease): Promise<HoldHandle | undefined> {
    const { services } = this.client;
    const source = { services, reopens: false, lease: () => lease };
    const target = { source, ...this.#entry(lease), name: this.#queueName };
    return tryEntry(target, UNLIMITED, (entry) => this.#holdOf(entry));
  }

  async #joinWith(queue: Queue): Promise<void> {
    queue.lease.assertOpen();
    const waiter = await this.#joinQueue(queue);
    if (this.#over || waiter.stage.at === "end") return;
    this.answer();
    const { revision } = waiter;
    if (this.mode === "steal" && revision !== undefined) await this.#steal(queue, waiter, revision);
  }

  /** Resolves when its entry is in the queue, or never will be. */
  #joinQueue(queue: Queue): Promise<Waiter> {
    return new Promise((resolve) => {
      this.#onJoined = () => resolve(waiter);
      const waiter = queue.join({ ...this.#entry(queue.lease), onJoined: this.#onJoined });
      this.#waiter = waiter;
      const granted = waiter.granted.then((grant) => this.#grant(grant));
      void granted.catch((error: unknown) => this.#fail(error)).then(this.#onJoined);
    });
  }

  async #steal(queue: Queue, waiter: Waiter, revision: bigint): Promise<void> {
    try {
      await stealFromEarlier(queue, revision);
    } catch (error) {
      // The waiter ends with the session, too, and reports the reason.
      if (queue.lease.over) return;
      this.#fail(error);
      waiter.giveUp();
    }
  }

  #entry(lease: Lease): JoinOptions & LockAbout {
    const { services, clientId: client } = this.client;
    const { onAhead } = this.#hooks;
    const since = services.clock.date().toISOString();
    const value: EntryValue = { owner: lease.owner, since, id: this.id, client };
    const mode = this.args.mode === "shared" ? reader : writer;
    const about = { ...this.about, names: [this.args.name] };
    return { ...about, mode, value: JSON.stringify(value), ...(onAhead && { onAhead }) };
  }

  /** Another process may steal the lock at any moment, so its key is watched from the grant on. */
  #holdOf(entry: JoinedEntry): HoldHandle {
    const hold = holdOf(entry, this.args.mode === "shared" ? HoldHandle : ExclusiveHoldHandle, true);
    // The errors of the hold name the lock as the caller did. The name of the entry is encoded.
    return Object.assign(hold, { name: printable(this.args.name) });
  }

  #grant(entry: JoinedEntry): void {
    const hold = this.#holdOf(entry);
    if (this.#over) void hold.release();
    else this.#acquire(hold);
  }

  /** The standard calls back in the order of the calls, whatever their names, if all locks can be granted at once. */
  #acquire(hold: HoldHandle | undefined): void {
    // Other requests may join meanwhile.
    this.#line.remove(this);
    const { services, requests } = this.client;
    const limit = { signal: undefined, timeoutMs: ORDER_MS };
    const onTimeout = (): Error => new Error("an earlier request is still undecided");
    const inOrder = settleWithin(this.#earlier, limit, services, { onTimeout });
    void inOrder
      .catch(() => requests.pass(this))
      .then(() => {
        if (this.#over) void hold?.release();
        this.#end(() => this.#resolve(hold));
      });
  }

  #fail(error: unknown): void {
    if (!isOfSession(error, this.#used)) return this.#end(() => this.#reject(error));
    // A session that its user has closed is replaced, as a lost one is.
    if (!this.client.services.closed.aborted) return this.#joinAnew(error as Error);
    this.#end(() => this.#reject(closedError(error as Error)));
  }

  /** Joins with the next session, before later calls. */
  #joinAnew(error: Error): void {
    if (this.#over) return;
    const facts = { lease: this.#used, error, failures: 1, delayMs: 0 };
    if (this.pending) publishRejoin(this.client.services, this.about, facts);
    // It is not the reason if no session can be opened.
    this.#used = undefined;
    this.#lease = this.#openSession();
    this.#line.add(this);
  }

  #end(settle: () => void): void {
    if (this.#over) return;
    this.#over = true;
    this.#line.remove(this);
    settle();
  }
}
