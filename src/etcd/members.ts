import { backoff } from "./backoff.js";
import { Breakers } from "./breakers.js";
import type { CheckedConnect } from "../connect-options.js";
import { EtcdRefusedError, EtcdUnavailableError } from "../errors.js";
import { pause, type Clock } from "../time.js";
import {
  AttemptError,
  CancelledError,
  TokenExpiredError,
  UnansweredError,
  type CallOptions,
  type Member,
  type Range,
  type RangeAnswer,
  type Txn,
  type TxnAnswer,
} from "./rpc.js";
import { Slots } from "./slots.js";
import { TermFloor } from "./term.js";
import { Tokens } from "./tokens.js";

/** A question that nobody may be waiting for any more is not asked for ever. */
const QUESTION_MS = 10_000;
/** With JWT every edit of users or roles makes all tokens stale: a fresh one may be so at once, and again. */
const MAX_STALE = 8;

export interface CallPolicy {
  /** What the call is for, as an EtcdUnavailableError says it. */
  readonly what: string;
  /** Limit of one attempt; never more than `requestTimeoutMs`. */
  readonly attemptMs?: number;
  /** Limit of all attempts together. Default: until `signal` aborts. */
  readonly giveUpMs?: number;
  /** Cancels what is in flight; the call rejects with its reason. */
  readonly signal?: AbortSignal | undefined;
  /** Asked before each further attempt; false = no further one: the call rejects with EtcdUnavailableError. */
  readonly again?: () => boolean;
  /** An attempt was sent and not answered: it may be applied, now or later. */
  readonly onUnanswered?: () => void;
}

export interface MemberListener {
  /** Move to another member. */
  failed(member: Member): void;
  /** A call got no answer from it, which may be the leader's fault: look whether it is alive. */
  suspected(member: Member): void;
}

export type Connect = (host: string, token: () => string | undefined) => Member;

/**
 * The members of the cluster, of which one at a time is in use. A call is repeated on the next member, on a new
 * connection, until one answers; so everything that changes something must be idempotent by its own guard.
 */
export class Members {
  readonly #breakers: Breakers;
  readonly #tokens: Tokens | undefined;
  readonly #listeners = new Set<MemberListener>();
  readonly #slots = new Slots();
  readonly #open = new Set<Member>();
  /** The last failure of each member, until any member answers. */
  readonly #failures = new Map<string, Error>();
  #current: Member | undefined;
  #next: number;
  readonly #floor = new TermFloor();
  #closed = false;

  constructor(
    private readonly options: CheckedConnect,
    private readonly clock: Clock,
    private readonly connect: Connect,
  ) {
    this.#breakers = new Breakers(options.hosts, clock);
    this.#tokens = options.auth && new Tokens(options.auth, options.requestTimeoutMs, clock);
    // Clients of one configuration spread over the members.
    this.#next = Math.floor(clock.random() * options.hosts.length);
  }

  /** The member in use. All streams and calls start here; the first use connects. */
  get current(): Member {
    this.#current ??= this.#connectNext();
    return this.#current;
  }

  /** A keepalive answer of an older raft term does not count. */
  get termFloor(): bigint {
    return this.#floor.term;
  }

  /** Why nobody has answered yet, by host. Within the first attempt that is known of no member, only which one is asked. */
  get silence(): ReadonlyMap<string, Error> {
    if (this.#failures.size > 0 || !this.#current) return new Map(this.#failures);
    return new Map([[this.#current.host, new UnansweredError("no answer yet")]]);
  }

  get requestTimeoutMs(): number {
    return this.options.requestTimeoutMs;
  }

  /** A stream found `member` dead: the next use connects to the next one, and every stream on it moves. */
  fail(member: Member, why?: Error): void {
    if (why) this.#failures.set(member.host, why);
    this.#leave(member);
    for (const listener of this.#listeners) listener.failed(member);
  }

  /** Streams listen, to hear from each other and from calls that their member is dead or may be. */
  listen(listener: MemberListener): void {
    this.#listeners.add(listener);
  }

  /** A committed transaction. */
  async txn(txn: Txn, policy: CallPolicy): Promise<TxnAnswer> {
    this.#floor.asking(txn.when[0]?.key);
    const answer = await this.call((member, options) => member.txn(txn, options), policy);
    this.#floor.answered(answer.header);
    return answer;
  }

  /** A linearizable read. */
  async range(range: Range, policy: CallPolicy): Promise<RangeAnswer> {
    this.#floor.asking(range.key);
    const answer = await this.call((member, options) => member.range(range, options), policy);
    this.#floor.answered(answer.header);
    return answer;
  }

  /** A keepalive answer was of an older term than the floor: asks a quorum, whose term counts even if it is lower. */
  async renewTermFloor(signal: AbortSignal): Promise<void> {
    const { question } = this.#floor;
    if (question === undefined) return;
    const answer = await this.call((member, options) => member.range(question, options), {
      what: "term check",
      giveUpMs: QUESTION_MS,
      signal,
    });
    this.#floor.set(answer.header);
  }

  /** With a password: a stream that is opened now would have no token. */
  get tokenMissing(): boolean {
    return this.#tokens?.missing ?? false;
  }

  /** With a password: a token that is surely fresh. */
  async freshToken(signal?: AbortSignal): Promise<void> {
    if (this.#tokens === undefined) return;
    this.#tokens.drop(this.#tokens.current);
    await this.call(() => Promise.resolve(), { what: "authenticate", giveUpMs: QUESTION_MS, signal });
  }

  /** Asks the current member, and after a failure the next ones, until one answers. */
  async call<T>(ask: (member: Member, options: CallOptions) => Promise<T>, policy: CallPolicy): Promise<T> {
    const failures = new Map<string, Error>();
    const start = this.clock.now().monotonic;
    const left = (): number => (policy.giveUpMs ?? Infinity) - (this.clock.now().monotonic - start);
    const wanted = (): boolean => left() > 0 && policy.again?.() !== false;
    for (let wait = backoff.next(); ; wait = wait.next(undefined)) {
      policy.signal?.throwIfAborted();
      // The caller may leave while a crowd is before it: nothing is sent for nobody.
      if (!this.#slots.take() && !(await this.#slots.wait(policy.signal, wanted)))
        throw new EtcdUnavailableError(policy.what, failures);
      const timeoutMs = Math.min(policy.attemptMs ?? Infinity, this.options.requestTimeoutMs, left());
      try {
        const answer = await this.#attempt(ask, { timeoutMs: Math.max(1, timeoutMs), signal: policy.signal });
        this.#failures.clear();
        return answer;
      } catch (error) {
        this.#judge(error, failures, policy);
      } finally {
        this.#slots.give();
      }
      if (left() <= wait.duration) throw new EtcdUnavailableError(policy.what, failures);
      await pause(this.clock, wait.duration, policy.signal);
      // Asked here: the caller may have left during the pause.
      if (policy.again?.() === false) throw new EtcdUnavailableError(policy.what, failures);
    }
  }

  /** Ends all connections. Streams and calls must have ended before. */
  close(): void {
    this.#closed = true;
    this.#current = undefined;
    for (const member of this.#open) member.retire();
    this.#open.clear();
  }

  async #attempt<T>(
    ask: (member: Member, options: CallOptions) => Promise<T>,
    options: CallOptions,
  ): Promise<T> {
    const member = this.current;
    let token: string | undefined;
    const run = async (): Promise<T> => {
      await this.#tokens?.ready(member, options);
      token = this.#tokens?.current;
      return ask(member, options);
    };
    try {
      return await this.#breakers.execute(member.host, run);
    } catch (error) {
      if (error instanceof UnansweredError && !(error instanceof CancelledError)) this.#suspect(member);
      if (error instanceof TokenExpiredError) this.#tokens?.drop(token);
      throw error instanceof Error ? new AttemptError(member.host, error) : error;
    }
  }

  /** Calls go on elsewhere, on a new connection; streams stay until they know better. */
  #suspect(member: Member): void {
    // Of hundreds of calls that end with one member, the first says it: each would renew all leases.
    if (!this.#open.has(member)) return;
    this.#leave(member);
    for (const listener of this.#listeners) listener.suspected(member);
  }

  #leave(member: Member): void {
    if (this.#current === member) this.#current = undefined;
    this.#open.delete(member);
    member.retire();
  }

  #judge(error: unknown, failures: Map<string, Error>, policy: CallPolicy): void {
    if (!(error instanceof AttemptError)) throw error;
    const { host, why } = error;
    const unanswered = why instanceof UnansweredError;
    const stale = why instanceof TokenExpiredError;
    if (unanswered) policy.onUnanswered?.();
    policy.signal?.throwIfAborted();
    if (why instanceof EtcdRefusedError) throw why.to(policy.what);
    if (!unanswered && !stale) throw why;
    const before = failures.get(host);
    if (stale && before instanceof TokenExpiredError) why.inARow += before.inARow;
    if (stale && why.inARow > MAX_STALE) {
      throw new EtcdRefusedError("unauthenticated", host, why.message, policy.what);
    }
    failures.set(host, why);
    this.#failures.set(host, why);
  }

  #connectNext(): Member {
    if (this.#closed) throw new UnansweredError("the cluster is closed");
    const { hosts } = this.options;
    const index = this.#breakers.firstUsable(this.#next);
    this.#next = index + 1;
    const member = this.connect(hosts[index] ?? "", () => this.#tokens?.current);
    this.#open.add(member);
    return member;
  }
}
