import { EtcdRefusedError } from "../errors.js";
import type { CheckedConnect } from "../base/options/connect.js";
import { callChannel } from "../base/telemetry/channels.js";
import type { CallMessage } from "../base/telemetry/messages.js";
import { tracePromise, withJson } from "../base/telemetry/publish.js";
import { AbortFanOut } from "../base/util/abort.js";
import type { Clock } from "../base/util/clock.js";
import { Batcher } from "./batch.js";
import { Hosts } from "./hosts.js";
import { type Connect, MemberPool } from "./member-pool.js";
import {
  type CallOptions,
  type Header,
  type Member,
  NotSentError,
  type Range,
  type RangeAnswer,
  type Txn,
  type TxnAnswer,
} from "./port.js";
import { type RangesAnswer, readRanges } from "./ranges.js";
import { type AttemptLimits, Call, type CallPolicy, retry, type RetryContext } from "./retry.js";

/**
 * The highest raft term in an answer that needed a quorum. A keepalive answer with a lower one comes from a deposed leader.
 * Answers without a quorum do not count: the raft term of an isolated member keeps growing.
 */
class RaftTermFloor {
  #cell: BigUint64Array = new BigUint64Array(1);
  #probe: Range | undefined;
  #onProbe: (probe: Range) => void = () => {};

  get term(): bigint {
    return Atomics.load(this.#cell, 0);
  }

  /** A read of a key that this user has requested before, and so may read; `undefined` until a request was sent. */
  get probe(): Range | undefined {
    return this.#probe;
  }

  /** Has the term in memory that another thread shares, and tells it of the probe. */
  share(cell: BigUint64Array, onProbe: (probe: Range) => void): void {
    this.#cell = cell;
    this.#onProbe = onProbe;
  }

  sent(key: string | Buffer | undefined): void {
    if (key === undefined || this.#probe !== undefined) return;
    this.#probe = { key, limit: 1 };
    this.#onProbe(this.#probe);
  }

  observed({ raftTerm }: Header): void {
    for (let { term } = this; raftTerm > term;) {
      const found = Atomics.compareExchange(this.#cell, 0, term, raftTerm);
      if (found === term) return;
      term = found;
    }
  }

  /** Takes the current term from an explicit probe, even if it is lower than before, as after a restore. */
  reset({ raftTerm }: Header): void {
    Atomics.store(this.#cell, 0, raftTerm);
  }
}

type Attempt<T> = (limits: AttemptLimits) => Promise<T>;

/** Like `EtcdClient.#retry()`, for subscribers of the channel `leasehold.call`. */
function retryTraced<T>(attempt: Attempt<T>, policy: CallPolicy, context: RetryContext): Promise<T> {
  const { clock, hosts } = context;
  const start = clock.monotonic();
  const { what } = policy;
  const begun: CallMessage = {
    hosts: hosts.names,
    what,
    host: undefined,
    attempts: 0,
    durationMs: undefined,
  };
  const message = withJson(begun);
  const counted: Attempt<T> = (limits) => {
    message.attempts++;
    limits.answered = (host) => (message.host = host);
    return attempt(limits);
  };
  return tracePromise(callChannel, message, async () => {
    try {
      return await retry(counted, new Call(policy, context));
    } catch (error) {
      if (error instanceof EtcdRefusedError) message.host = error.host;
      throw error;
    } finally {
      message.durationMs = clock.monotonic() - start;
    }
  });
}

/** Attempts at a time: enough to keep etcd busy, and few enough to be answered soon even if etcd is slow. */
const MAX_AT_ONCE = 256;

/**
 * Limits the attempts at a time; the others wait in order of arrival. Attempts that are all sent at once only wait for each
 * other while their time limits run: thousands would time out together, again and again, on a healthy etcd.
 */
export class ConcurrencyLimit {
  #free = MAX_AT_ONCE;
  readonly #aborts = new AbortFanOut("all");
  /** Each returns whether it takes the slot. */
  readonly #waiting = new Set<() => boolean>();

  /** False: no slot is free; wait for one with `acquire()`. */
  tryAcquire(): boolean {
    if (this.#free === 0) return false;
    this.#free--;
    return true;
  }

  /** True: a slot is acquired. False: it was no longer `wanted` when its turn came. Rejects with the signal's reason. */
  acquire(signal: AbortSignal | undefined, wanted: () => boolean): Promise<boolean> {
    return new Promise((resolve, reject) => {
      const go = (): boolean => {
        stop();
        const still = wanted();
        resolve(still);
        return still;
      };
      const leave = (): void => {
        this.#waiting.delete(go);
        reject(signal?.reason as Error);
      };
      this.#waiting.add(go);
      const stop = this.#aborts.add(signal, leave);
    });
  }

  release(): void {
    this.#free++;
    for (const go of this.#waiting) {
      if (this.#free === 0) return;
      this.#waiting.delete(go);
      if (go()) this.#free--;
    }
  }
}

type Ask<T> = (member: Member, options: CallOptions) => Promise<T>;

/** Time limit of requests that may have no waiting caller any more. */
const BACKGROUND_MS = 10_000;

/**
 * The calls of a cluster. Each is repeated on the next member, on a new connection, until one answers. So every call that
 * changes something must be idempotent by its own guard.
 */
export class EtcdClient {
  /** What is known of the hosts. */
  readonly hosts: Hosts;
  /** The member in use: all streams and calls start there. */
  readonly pool: MemberPool;
  /** A keepalive answer with a lower raft term does not count. */
  readonly floor = new RaftTermFloor();
  readonly #limit = new ConcurrencyLimit();
  readonly #batcher: Batcher;
  readonly #retryContext: RetryContext;

  constructor(
    private readonly options: CheckedConnect,
    clock: Clock,
    connect: Connect,
  ) {
    const { requestTimeoutMs, auth, pingIntervalMs } = options;
    this.hosts = new Hosts(options.hosts, clock, pingIntervalMs);
    const pool = (this.pool = new MemberPool(options, clock, connect, this.hosts));
    const authenticates = auth !== undefined;
    this.#retryContext = { clock, requestTimeoutMs, hosts: this.hosts, authenticates };
    this.#batcher = new Batcher(pool, { clock, sharesRequests: !authenticates, floor: this.floor });
    pool.listen({ left: () => this.#batcher.memberLeft() });
  }

  /** Resolves when a stream can be opened without further loading. Calls wait for that themselves. */
  async loaded(): Promise<void> {
    await this.pool.loaded();
  }

  get requestTimeoutMs(): number {
    return this.options.requestTimeoutMs;
  }

  /**
   * A committed transaction. It may share its request with others until an attempt stays unanswered, but never with a
   * password: before 3.4.42, 3.5.28 and 3.6.9, etcd checks no role inside a shared request (CVE-2026-33343), so a forbidden
   * name would be locked or rejected by chance.
   */
  txn(txn: Txn, policy: CallPolicy): Promise<TxnAnswer> {
    this.floor.sent(txn.compare[0]?.key);
    return this.#retry((limits) => this.#batcher.send(txn, limits), policy);
  }

  /** A linearizable read. */
  async range(range: Range, policy: CallPolicy): Promise<RangeAnswer> {
    this.floor.sent(range.key);
    const answer = await this.call((member, options) => member.range(range, options), policy);
    this.floor.observed(answer.header);
    return answer;
  }

  /** Several linearizable reads of one state. */
  async ranges(ranges: readonly Range[], policy: CallPolicy): Promise<RangesAnswer> {
    this.floor.sent(ranges[0]?.key);
    const answer = await this.call((member, options) => readRanges(member, ranges, options), policy);
    this.floor.observed(answer.header);
    return answer;
  }

  /** After a keepalive answer below the floor: reads from a quorum, whose raft term counts even if it is lower. */
  async renewRaftTermFloor(signal: AbortSignal): Promise<void> {
    const { probe } = this.floor;
    if (probe === undefined) return;
    const answer = await this.call((member, options) => member.range(probe, options), {
      what: "term check",
      giveUpMs: BACKGROUND_MS,
      signal,
    });
    this.floor.reset(answer.header);
  }

  /** Whether a stream that is opened now would lack a token. False without a password. */
  get tokenMissing(): boolean {
    return this.pool.tokens?.missing ?? false;
  }

  /** Replaces the token with a fresh one. Does nothing without a password. */
  async freshToken(signal?: AbortSignal): Promise<void> {
    const { tokens } = this.pool;
    if (tokens === undefined) return;
    tokens.drop(tokens.current);
    await this.call(() => Promise.resolve(), { what: "authenticate", giveUpMs: BACKGROUND_MS, signal });
  }

  /** Calls the current member, and after a failure the next ones, until one answers. */
  call<T>(ask: Ask<T>, policy: CallPolicy): Promise<T> {
    const attempt = async (limits: AttemptLimits): Promise<T> => {
      const { signal } = limits;
      // If the caller gives up while other attempts are ahead, nothing is sent.
      if (!this.#limit.tryAcquire() && !(await this.#limit.acquire(signal, () => limits.wanted())))
        throw new NotSentError("no caller waits for it any longer");
      try {
        const options = { timeoutMs: limits.timeoutMs(), signal };
        return await this.pool.attempt(heard(ask, limits), options, policy.answers);
      } finally {
        this.#limit.release();
      }
    };
    return this.#retry(attempt, policy);
  }

  #retry<T>(attempt: (limits: AttemptLimits) => Promise<T>, policy: CallPolicy): Promise<T> {
    if (callChannel.hasSubscribers) return retryTraced(attempt, policy, this.#retryContext);
    return retry(attempt, new Call(policy, this.#retryContext));
  }

  /** Closes all connections. Streams and calls must have ended before. */
  close(): void {
    this.pool.close();
  }
}

/** Reports which member has answered, if somebody traces the call. */
function heard<T>(ask: Ask<T>, { answered }: AttemptLimits): Ask<T> {
  if (answered === undefined) return ask;
  return async (member, options) => {
    const answer = await ask(member, options);
    answered(member.host);
    return answer;
  };
}
