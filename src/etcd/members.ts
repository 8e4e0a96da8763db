import type { CheckedConnect } from "../connect-options.js";
import type { Clock } from "../time.js";
import { persist, type AttemptLimits, type AttemptSetting, type CallPolicy } from "./attempts.js";
import { Batches, type Carrier } from "./batch.js";
import { Breakers } from "./breakers.js";
import {
  AttemptError,
  CancelledError,
  NotSentError,
  TokenExpiredError,
  UnansweredError,
  type CallOptions,
  type Member,
  type Range,
  type RangeAnswer,
  type Txn,
  type TxnAnswer,
} from "./rpc.js";
import { readRanges, type RangesAnswer } from "./ranges.js";
import { Slots } from "./slots.js";
import { TermFloor } from "./term.js";
import { Tokens } from "./tokens.js";

/** A question that nobody may be waiting for any more is not asked for ever. */
const QUESTION_MS = 10_000;

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
  readonly #batches: Batches;
  readonly #open = new Set<Member>();
  /** The last failure of each member, until any member answers. */
  readonly #failures = new Map<string, Error>();
  readonly #setting: AttemptSetting;
  #current: Member | undefined;
  #next: number;
  readonly #floor = new TermFloor();
  #closed = false;

  constructor(
    private readonly options: CheckedConnect,
    clock: Clock,
    private readonly connect: Connect,
  ) {
    this.#breakers = new Breakers(options.hosts, clock);
    this.#tokens = options.auth && new Tokens(options.auth, options.requestTimeoutMs, clock);
    this.#setting = { clock, requestTimeoutMs: options.requestTimeoutMs, failures: this.#failures };
    const host = (): string => this.current.host;
    const carry: Carrier["carry"] = (txns, limits) =>
      this.#attempt((member, options) => member.txns(txns, options), limits);
    this.#batches = new Batches({ host, carry }, clock);
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

  /**
   * A committed transaction. It may share its request with others, until an attempt stays unanswered. Never with a
   * password: before 3.4.42, 3.5.28 and 3.6.9 etcd checks no role inside a shared one (CVE-2026-33343), so a forbidden
   * name would be locked or refused by chance.
   */
  async txn(txn: Txn, policy: CallPolicy): Promise<TxnAnswer> {
    this.#floor.asking(txn.when[0]?.key);
    const guarded = this.#tokens !== undefined;
    const attempt = (limits: AttemptLimits): Promise<TxnAnswer> =>
      this.#batches.send(txn, limits, guarded || limits.repeated);
    const answer = await persist(attempt, policy, this.#setting);
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

  /** Several linearizable reads of one state. */
  async ranges(ranges: readonly Range[], policy: CallPolicy): Promise<RangesAnswer> {
    this.#floor.asking(ranges[0]?.key);
    const answer = await this.call((member, options) => readRanges(member, ranges, options), policy);
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
  call<T>(ask: (member: Member, options: CallOptions) => Promise<T>, policy: CallPolicy): Promise<T> {
    const attempt = async (limits: AttemptLimits): Promise<T> => {
      const { signal } = limits;
      // The caller may leave while a crowd is before it: nothing is sent for nobody.
      if (!this.#slots.take() && !(await this.#slots.wait(signal, () => limits.wanted())))
        throw new NotSentError("nobody wants it any more");
      try {
        return await this.#attempt(ask, { timeoutMs: limits.timeoutMs(), signal });
      } finally {
        this.#slots.give();
      }
    };
    return persist(attempt, policy, this.#setting);
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
      if (this.#tokens) await this.#tokens.ready(member, options);
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
    this.#open.delete(member);
    member.retire();
    // Left before, it says nothing about the one in use.
    if (this.#current !== member) return;
    this.#current = undefined;
    this.#batches.memberLeft();
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
