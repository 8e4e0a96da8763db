import { holdOf, tryEntry, watched, type Acquired } from "../hold/acquire.js";
import type { EtcdServices } from "../session/connection.js";
import { ExclusiveHoldHandle, HoldHandle } from "../hold/hold.js";
import { publishRejoin, type LockAbout } from "../hold/events.js";
import type { AcquireTarget } from "../hold/trace-acquire.js";
import type { EntryValue } from "../keys.js";
import { NO_LOCK_OPTIONS } from "../options/lock.js";
import { writer } from "../queue/lock-mode.js";
import type { Lease } from "../session/lease.js";
import { LockTable } from "../queue/lock-table.js";
import type { JoinOptions, Queue } from "../queue/queue.js";
import { reader } from "../queue/reader-mode.js";
import type { LeaseSource } from "../session/session-source.js";
import { settleWithin } from "../async/settle-within.js";
import type { Waiter } from "../queue/waiter.js";
import { closedError, type LockRequestArguments } from "./arguments.js";
import { RequestQueue, type QueuedRequest, type AcquireMode } from "./request-queue.js";
import { queueNameOf } from "./names.js";
import { RequestRegistry, type RegisteredRequest } from "./registry.js";
import { stealFromEarlier } from "./steal.js";
import { isOfSession } from "../hold/with-lease.js";

/** One manager, as the client of its requests. */
export interface WebLockClient {
  readonly services: EtcdServices;
  readonly source: LeaseSource;
  readonly clientId: string;
  /** Prefix of the keys of all its locks. */
  readonly prefix: string;
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
  readonly way: AcquireMode;
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
    this.way = args.steal ? "steal" : args.ifAvailable ? "try" : "wait";
    this.answered = new Promise((resolve) => (this.answer = resolve));
    this.acquired = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#hooks = client;
    this.#line = RequestQueue.of(client.services, this.#queueName);
  }

  /** Lines up behind the earlier requests. */
  begin(hooks: RequestHooks): void {
    this.#hooks = hooks;
    this.#lease = this.#openSession();
    const registry = RequestRegistry.of(this.client.services);
    this.#earlier = registry.answered;
    registry.add(this);
    this.#line.add(this);
  }

  /** What events say of it: the name as its caller gave it. */
  get about(): LockAbout {
    return { kind: "web lock", name: this.args.name, options: NO_LOCK_OPTIONS };
  }

  get pending(): boolean {
    return !this.#over && this.way !== "try";
  }

  async join(): Promise<void> {
    try {
      const lease = await (this.#lease ??= this.#openSession());
      this.#used = lease;
      if (this.#over) return;
      if (this.way === "try") this.#acquire(await this.#try(lease));
      else await this.#joinWith(LockTable.of(lease).queue(this.#queueName));
    } catch (error) {
      this.#fail(error);
    }
  }

  mustWait(): void {
    if (this.way === "try") this.#acquire(undefined);
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
    const lease = this.#hooks.source.lease(UNLIMITED);
    lease.catch(() => undefined);
    return lease;
  }

  async #try(lease: Lease): Promise<HoldHandle | undefined> {
    const { services } = this.client;
    const source = { services, reopens: false, lease: () => Promise.resolve(lease) };
    const target = { source, ...this.#entry(lease), name: this.#queueName };
    return tryEntry(target, UNLIMITED, (acquired) => this.#holdOf(acquired));
  }

  async #joinWith(queue: Queue): Promise<void> {
    queue.lease.assertOpen();
    const waiter = await this.#joinQueue(queue);
    if (this.#over || waiter.stage.at === "end") return;
    this.answer();
    const { revision } = waiter;
    if (this.way === "steal" && revision !== undefined) await this.#steal(queue, waiter, revision);
  }

  /** Resolves when its entry is in the queue, or never will be. */
  #joinQueue(queue: Queue): Promise<Waiter> {
    return new Promise((resolve) => {
      this.#onJoined = () => resolve(waiter);
      const waiter = queue.join({ ...this.#entry(queue.lease), onJoined: this.#onJoined });
      this.#waiter = waiter;
      const granted = waiter.granted.then((grant) => this.#grant({ queue, grant }));
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
  #holdOf(acquired: Acquired): HoldHandle {
    return holdOf(watched(acquired), this.args.mode === "shared" ? HoldHandle : ExclusiveHoldHandle);
  }

  #grant(acquired: Acquired): void {
    const hold = this.#holdOf(acquired);
    if (this.#over) void hold.release();
    else this.#acquire(hold);
  }

  /** The standard calls back in the order of the calls, whatever their names, if all locks can be granted at once. */
  #acquire(hold: HoldHandle | undefined): void {
    // Other requests may join meanwhile.
    this.#line.remove(this);
    const { services } = this.client;
    const limit = { signal: undefined, timeoutMs: ORDER_MS };
    const onTimeout = (): Error => new Error("an earlier request is still undecided");
    const inOrder = settleWithin(this.#earlier, limit, services, { onTimeout });
    void inOrder
      .catch(() => RequestRegistry.of(services).pass(this))
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
