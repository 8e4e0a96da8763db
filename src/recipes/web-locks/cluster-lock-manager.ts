import { channel } from "node:diagnostics_channel";
import { EtcdUnavailableError, LockLostError, SessionClosedError } from "../../errors.js";
import type { KeyValue, RangeAnswer } from "../../etcd/port.js";
import { traceAcquire } from "../../lock/hold/events.js";
import type { HoldHandle } from "../../lock/hold/hold.js";
import { parseEntryValue, pathOf } from "../../keys.js";
import { checkDrain, checkName, checkOptions } from "../../base/options/check.js";
import { queueRange } from "../../lock/queue/lock-mode.js";
import { withoutDelayKeys } from "../../lock/queue/seen-entry.js";
import { type Cluster, leaseSourceOf, servicesOf } from "../../lock/session/cluster.js";
import type { CloseOptions } from "../../lock/session/session-options.js";
import { acquireChannel } from "../../base/telemetry/channels.js";
import { type Clock, pause } from "../../base/util/clock.js";
import { atCaller } from "../../base/util/own-context.js";
import { settleWithin } from "../../base/util/settle.js";
import {
  checkArguments,
  closedError,
  convertArguments,
  heldAndPending,
  type LockRequestArguments,
  namedEntryOf,
  type WebLock,
  type WebLockMode,
  type WebLockOptions,
} from "./arguments.js";
import { LockRequest, type RequestHooks, RequestRegistry, type WebLockClient } from "./request.js";

// The channels of Node's own `navigator.locks`, since Node.js 24.15 and 25.9, with the same messages: a subscriber needs no
// change to see the locks of a cluster. https://nodejs.org/api/diagnostics_channel.html#web-locks
const startChannel = channel("locks.request.start");
const grantChannel = channel("locks.request.grant");
const missChannel = channel("locks.request.miss");
const endChannel = channel("locks.request.end");

/** A request has begun: its arguments are valid. */
function publishStart({ name, mode }: LockRequestArguments): void {
  if (startChannel.hasSubscribers) startChannel.publish({ name, mode });
}

/** The callback is about to be called with the lock. */
function publishGrant({ name, mode }: LockRequestArguments): void {
  if (grantChannel.hasSubscribers) grantChannel.publish({ name, mode });
}

/** The callback is about to be called with null. */
function publishMiss({ name, mode }: LockRequestArguments): void {
  if (missChannel.hasSubscribers) missChannel.publish({ name, mode });
}

/** The promise of the request is about to settle: `error` is undefined, or what it rejects with. */
function publishEnd(args: LockRequestArguments, error?: unknown): void {
  if (!endChannel.hasSubscribers) return;
  const { name, mode, ifAvailable, steal } = args;
  endChannel.publish({ name, mode, ifAvailable, steal, error });
}

type Callback = LockRequestArguments["callback"];

/** The argument of the callback. */
class GrantedLock implements WebLock {
  readonly #args: LockRequestArguments;
  readonly #hold: HoldHandle;

  constructor(args: LockRequestArguments, hold: HoldHandle) {
    this.#args = args;
    this.#hold = hold;
  }

  get name(): string {
    return this.#args.name;
  }

  get mode(): WebLockMode {
    return this.#args.mode;
  }

  get signal(): AbortSignal {
    return this.#hold.signal;
  }

  get revision(): bigint {
    return this.#hold.revision;
  }

  get key(): string {
    return this.#hold.key;
  }
}

/** Calls the callback. What it throws synchronously becomes a rejection, too. */
// eslint-disable-next-line @typescript-eslint/require-await
async function invoke(callback: Callback, lock: WebLock | null): Promise<unknown> {
  return callback(lock);
}

/** A granted lock, held until the result of its callback has settled or the lock is lost. */
class HeldWebLock {
  readonly #lost: Promise<never>;
  #lose: (loss: LockLostError) => void = () => {};

  constructor(
    private readonly args: LockRequestArguments,
    private readonly hold: HoldHandle,
    /** Called when the release begins, or the lock is lost. */
    private readonly onEnd: () => void,
  ) {
    this.#lost = new Promise((_, reject) => {
      this.#lose = (loss) => {
        onEnd();
        reject(abortError(loss));
      };
    });
  }

  /** Settles with the callback's result after the release. Rejects as soon as the lock is lost; the callback continues. */
  async run(): Promise<unknown> {
    const { signal } = this.hold;
    const ended = (): void => {
      if (signal.reason instanceof LockLostError) this.#lose(signal.reason);
    };
    signal.addEventListener("abort", ended, { once: true });
    ended();
    const work = signal.aborted ? this.#lost : this.#work();
    // After a loss, nothing else handles a rejection of `work`.
    work.catch(() => undefined);
    return Promise.race([work, this.#lost]);
  }

  /** Called when the manager is closed and no longer waits for the callback. */
  async end(): Promise<void> {
    const loss = new LockLostError(this.hold.name, this.hold.key, "closed");
    this.#lose(loss);
    this.hold.ended("closed", loss);
    await this.hold.release().catch(() => undefined);
  }

  async #work(): Promise<unknown> {
    let result: unknown;
    publishGrant(this.args);
    try {
      result = await invoke(this.args.callback, new GrantedLock(this.args, this.hold));
    } catch (error) {
      this.onEnd();
      await this.hold.release().catch(() => undefined);
      throw error;
    }
    this.onEnd();
    await this.hold.release().catch((loss: LockLostError) => {
      throw abortError(loss);
    });
    return result;
  }
}

const abortError = (loss: LockLostError): DOMException =>
  new DOMException(loss.message, { name: "AbortError", cause: loss });

export interface WebLockInfo {
  name: string;
  mode: WebLockMode;
  /** Client ID of the requesting manager; for another kind of client, its lease ID in hexadecimal digits. */
  clientId: string;
}

/** The requests of one name are in the order of their arrival. */
export interface WebLockSnapshot {
  held: WebLockInfo[];
  pending: WebLockInfo[];
}

interface Listed {
  readonly info: WebLockInfo;
  readonly mode: WebLockMode;
  /** ID of a request of this process; undefined for other entries. */
  readonly id: string | undefined;
  readonly foreign: boolean;
}

/** `kvs`: all keys below the client's prefix, oldest first. */
function snapshotOf(client: WebLockClient, kvs: readonly KeyValue[]): WebLockSnapshot {
  const { live } = client.requests;
  const path = pathOf(client.services, client.prefix);
  const leaseIds = new Set([...client.services.leases].map(({ leaseId }) => leaseId));
  const keys = kvs.map((kv) => ({ kv, bytes: kv.key, createRevision: kv.createRevision }));
  const listed = withoutDelayKeys(keys)
    .map(({ kv }) => listedOf(path, kv, leaseIds))
    .filter((entry) => entry !== undefined)
    // An entry that this process has given up or released is already being deleted.
    .filter(({ id }) => id === undefined || live.has(id));
  const seen = new Set(listed.map(({ id }) => id));
  // These wait in this process for their turn to join the queue.
  const outside = [...live.values()].filter(
    ({ pending, id, client: { prefix } }) => pending && prefix === client.prefix && !seen.has(id),
  );
  const queues = queuesOf(listed).map((entries) => heldAndPending(entries));
  return {
    held: queues.flatMap(({ held }) => infosOf(held)),
    pending: [
      ...queues.flatMap(({ pending }) => infosOf(pending)),
      ...outside.map(({ args: { name, mode }, client: { clientId } }) => ({ name, mode, clientId })),
    ],
  };
}

function listedOf(path: string, kv: KeyValue, leaseIds: ReadonlySet<bigint>): Listed | undefined {
  const entry = namedEntryOf(path, kv);
  if (entry === undefined) return undefined;
  const { name, mode, foreign } = entry;
  const { client, id } = parseEntryValue(kv.value);
  const info = { name, mode, clientId: client ?? kv.leaseId.toString(16) };
  const isRequest = client !== undefined && leaseIds.has(kv.leaseId);
  return { info, mode, foreign, id: isRequest ? id : undefined };
}

function queuesOf(entries: readonly Listed[]): readonly (readonly Listed[])[] {
  const byName = new Map<string, Listed[]>();
  for (const entry of entries) {
    const queue = byName.get(entry.info.name);
    if (queue) queue.push(entry);
    else byName.set(entry.info.name, [entry]);
  }
  return [...byName.values()];
}

const infosOf = (entries: readonly Listed[]): WebLockInfo[] =>
  entries.filter(({ foreign }) => !foreign).map(({ info }) => info);

const PREFIX = "web-locks";
const QUERY_TIMEOUT_MS = 10_000;

/**
 * The `LockManager` of the Web Locks API, with locks shared by all processes that use the same prefix on the same etcd.
 * An exclusive lock is a writer of an RwLock, a shared one a reader. Unlike in the standard, a lock can be lost with its
 * lease, and etcd can be unavailable. It publishes to the channels `locks.request.start`, `grant`, `miss` and `end` of
 * `node:diagnostics_channel`, as the `navigator.locks` of Node.js does.
 */
export class ClusterLockManager implements AsyncDisposable {
  readonly #client: WebLockClient;
  readonly #held = new Set<HeldWebLock>();
  /** Aborts with InvalidStateError. */
  readonly #closing = new AbortController();
  readonly #drained = new AbortController();

  /**
   * `prefix` (default "web-locks") begins the keys of all locks: managers with different prefixes share no locks.
   * @throws {TypeError | RangeError} if `cluster` is not a Cluster, or `prefix` is not 1..1024 bytes of well-formed Unicode
   * without "/" at its ends and without "//".
   */
  constructor(cluster: Cluster, options?: { readonly prefix?: string | undefined }) {
    const services = servicesOf(cluster);
    const { prefix: given = PREFIX } = checkOptions("ClusterLockManager", options, ["prefix"]);
    const prefix = checkName(given, "prefix");
    this.#client = {
      services,
      source: leaseSourceOf(cluster),
      clientId: uuid(services.clock),
      prefix,
      requests: RequestRegistry.of(services),
    };
  }

  /**
   * Calls `callback` when the lock is granted, holds the lock until the callback's result has settled, and settles with
   * that result when the lock is released. Requests are granted in order; those of one manager in the order of the calls,
   * even under several names, unless etcd decides an earlier one more than 250 ms later. A request that is waiting when the
   * session is lost joins the queue again with the next session, and rejects with EtcdUnavailableError if none opens within 10 s. Waiters
   * whose entries a steal has deleted join again, at the end. Unknown options are ignored, as everywhere on the web.
   * On abort before the lock is granted: rejects with the reason of `options.signal`.
   * @throws what the callback throws.
   * @throws {DOMException} AbortError if the lock is lost or stolen while the callback runs, which continues: `cause` is
   * the LockLostError, and `lock.signal` is aborted. NotSupportedError for a name that begins with "-", and for options
   * that exclude each other. InvalidStateError if the manager is closed.
   * @throws {EtcdUnavailableError} if no session could be opened or, with `ifAvailable`, etcd does not answer in time.
   * @throws {EtcdRefusedError} if etcd rejects the request.
   * @throws {TypeError | RangeError} on bad arguments, including a name of more than 4096 code units.
   */
  request<T>(name: string, callback: (lock: WebLock | null) => T): Promise<Awaited<T>>;
  request<T>(
    name: string,
    options: WebLockOptions,
    callback: (lock: WebLock | null) => T,
  ): Promise<Awaited<T>>;
  async request(name: unknown, second: unknown, ...rest: readonly unknown[]): Promise<unknown> {
    const args = convertArguments(name, second, rest);
    this.#closing.signal.throwIfAborted();
    checkArguments(args);
    return this.#request(new LockRequest(this.#client, args));
  }

  /**
   * The held and the pending requests at one moment, after the earlier requests of this process.
   * @throws {DOMException} InvalidStateError if the manager is closed.
   * @throws {EtcdUnavailableError} if etcd does not answer within 10 s.
   * @throws {EtcdRefusedError} if etcd rejects the request.
   */
  async query(): Promise<WebLockSnapshot> {
    const { services } = this.#client;
    const what = "query the locks";
    const limits = { signal: this.#closing.signal, timeoutMs: QUERY_TIMEOUT_MS };
    limits.signal.throwIfAborted();
    const settled = settleWithin(this.#read(what), limits, services, {
      onTimeout: () => new EtcdUnavailableError(what, services.client.hosts.whyUnanswered(QUERY_TIMEOUT_MS)),
    });
    const { kvs } = await atCaller(settled);
    return snapshotOf(this.#client, kvs);
  }

  /**
   * Rejects new and waiting requests at once with InvalidStateError. Waits up to `drainMs` (default 5000) for callbacks
   * that hold a lock, then releases their locks. The cluster and its session stay open. Idempotent.
   * @throws {TypeError | RangeError} on bad options, and nothing else.
   */
  async close(options?: CloseOptions): Promise<void> {
    const drainMs = checkDrain("close", options);
    if (!this.#closing.signal.aborted) this.#closing.abort(closedError());
    this.#endDrain();
    await pause(this.#client.services.clock, drainMs, this.#drained.signal);
    await Promise.all([...this.#held].map((held) => held.end()));
  }

  /** Same as `close()`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #request(request: LockRequest): Promise<unknown> {
    publishStart(request.args);
    try {
      const hold = await this.#acquire(request);
      this.#assertWanted(request, hold);
      const outcome = this.#callBack(request, hold);
      request.answer();
      const result = await outcome;
      publishEnd(request.args);
      return result;
    } catch (error) {
      publishEnd(request.args, error);
      throw error;
    } finally {
      request.answer();
      this.#client.requests.live.delete(request.id);
    }
  }

  #acquire(request: LockRequest): Promise<HoldHandle | undefined> {
    const { source } = this.#client;
    if (!acquireChannel.hasSubscribers) return this.#acquired(request, { source });
    const call = { tries: request.mode === "try", signal: request.args.signal };
    return traceAcquire({ ...request.about, source }, call, (traced) => this.#acquired(request, traced));
  }

  async #acquired(request: LockRequest, hooks: RequestHooks): Promise<HoldHandle | undefined> {
    request.begin(hooks);
    const { aborts } = this.#client.services;
    const { signal } = request.args;
    const ends = [signal, this.#closing.signal];
    const stops = ends.map((each) => aborts.add(each, () => request.giveUp(each?.reason)));
    // A subscriber of the start may have aborted one of them.
    const ended = ends.find((each) => each?.aborted);
    if (ended) request.giveUp(ended.reason);
    try {
      const hold = await request.acquired;
      this.#assertWanted(request, hold);
      // Its request reports a loss, also one that is known before it listens to the signal.
      void hold?.signal;
      hold?.started(request.about);
      return hold;
    } finally {
      for (const stop of stops) stop();
    }
  }

  /** Called in the same turn as the callback, because an abort may follow the grant. The standard also checks again. */
  #assertWanted({ args }: LockRequest, hold: HoldHandle | undefined): void {
    const aborted = [args.signal, this.#closing.signal].find((each) => each?.aborted);
    if (aborted) void hold?.release();
    aborted?.throwIfAborted();
  }

  /** Calls the callback synchronously. */
  async #callBack({ id, args }: LockRequest, hold: HoldHandle | undefined): Promise<unknown> {
    if (hold === undefined) {
      publishMiss(args);
      return invoke(args.callback, null);
    }
    const held = new HeldWebLock(args, hold, () => this.#client.requests.live.delete(id));
    this.#held.add(held);
    try {
      return await held.run();
    } finally {
      this.#held.delete(held);
      this.#endDrain();
    }
  }

  #endDrain(): void {
    if (this.#closing.signal.aborted && this.#held.size === 0) this.#drained.abort();
  }

  async #read(what: string): Promise<RangeAnswer> {
    const { client, closed } = this.#client.services;
    await this.#client.requests.answered;
    try {
      closed.throwIfAborted();
      const range = {
        ...queueRange(pathOf(this.#client.services, this.#client.prefix)),
        order: "oldest first",
      } as const;
      return await client.range(range, { what, giveUpMs: QUERY_TIMEOUT_MS, signal: closed });
    } catch (error) {
      throw error instanceof SessionClosedError ? closedError(error) : error;
    }
  }
}

/** A random UUID, of version 4. */
function uuid(clock: Clock): string {
  const id = (): string => clock.randomId().toString(16).padStart(16, "0");
  const [a, b] = [id(), id()];
  return `${a.slice(0, 8)}-${a.slice(8, 12)}-4${a.slice(13)}-8${b.slice(1, 4)}-${b.slice(4)}`;
}
