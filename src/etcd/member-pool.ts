import type { CheckedConnect, CheckedCredentials, CheckedUser } from "../base/options/connect.js";
import type { Clock } from "../base/util/clock.js";
import { inOwnContext } from "../base/util/own-context.js";
import { AuthToken } from "./auth-token.js";
import { CurrentCredentials } from "./credentials.js";
import type { Hosts } from "./hosts.js";
import { Membership } from "./membership.js";
import {
  type AnswerKind,
  type CallOptions,
  type Header,
  LeaseNotFoundError,
  type Member,
  MemberError,
  MemberRefusedError,
  type MemberSetting,
  notEtcds,
  OverloadedError,
  TokenExpiredError,
  UnansweredError,
} from "./port.js";

/** Whether `error` is a reason to use another member. */
const isMembersFault = (error: unknown): boolean =>
  error instanceof MemberRefusedError || (error instanceof UnansweredError && error.kind !== "cancelled");

interface MemberListener {
  /** A member that was not in use before has answered. */
  up?(): void;
  /** The member in use is left: requests need not wait for it any longer. */
  left?(): void;
  /** `member` has failed: move to another one. */
  failed?(member: Member): void;
  /** A call got no answer from `member`, which may be the leader's fault: check whether the member is alive. */
  suspected?(member: Member): void;
  /** User and password have been read for a token: they may be others than before. */
  userRead?(): void;
}

export type Connect = (host: string, setting: MemberSetting) => Member;

/** The members of the cluster. One at a time is in use: each attempt of a call is made on that one. */
export class MemberPool {
  /** Set only with a password. */
  readonly tokens: AuthToken | undefined;
  readonly #credentials: CurrentCredentials<CheckedCredentials> | undefined;
  readonly #user: CurrentCredentials<CheckedUser> | undefined;
  /** Set if the list of hosts may change. */
  readonly #membership: Membership | undefined;
  readonly #listeners = new Set<MemberListener>();
  #current: Member | undefined;
  /** The last one that has answered. */
  #up: Member | undefined;
  #next: number;
  #closed = false;

  // eslint-disable-next-line max-params -- made in one place
  constructor(
    options: CheckedConnect,
    private readonly clock: Clock,
    private readonly connect: Connect,
    private readonly hosts: Hosts,
  ) {
    const user = (this.#user = options.auth && new CurrentCredentials("auth", options.auth, options.hosts));
    const userNow = (): CheckedUser => {
      const { current } = user as CurrentCredentials<CheckedUser>;
      for (const listener of this.#listeners) listener.userRead?.();
      return current;
    };
    this.tokens = user && new AuthToken(userNow, options.requestTimeoutMs, clock);
    this.#credentials =
      options.credentials && new CurrentCredentials("credentials", options.credentials, options.hosts);
    if (isMovable(options)) this.#membership = new Membership(options, hosts, clock);
    // Clients with the same configuration spread over the members.
    this.#next = Math.floor(clock.random() * options.hosts.length);
  }

  /** The certificates, read again, or those that were read last. */
  credentials(again: boolean): CheckedCredentials | undefined {
    return again ? this.#credentials?.current : this.#credentials?.last;
  }

  /** The same for user and password. */
  user(again: boolean): CheckedUser | undefined {
    return again ? this.#user?.current : this.#user?.last;
  }

  /** The member in use. All streams and calls start here; the first use connects. */
  get current(): Member {
    this.#current ??= this.#connectNext();
    return this.#current;
  }

  /** Resolves when a stream can be opened without further loading. */
  async loaded(): Promise<void> {
    if (this.#membership?.pending !== true) await this.current.loading;
  }

  /** A stream found `member` dead: the next use connects to the next member, and every stream on `member` moves. */
  fail(member: Member, reason?: Error): void {
    this.hosts.streamFailed(member.host, reason);
    inOwnContext(() => {
      this.#leave(member, reason);
      for (const listener of this.#listeners) listener.failed?.(member);
    });
  }

  /** Whether `member` belongs to this cluster, by the header of an answer on a stream. If not, the member has failed. */
  accepts(member: Member, header: Header): boolean {
    try {
      this.hosts.check(member.host, header);
    } catch (error) {
      this.fail(member, error as Error);
      return false;
    }
    this.hosts.contacted(member.host);
    this.#isUp(member);
    return true;
  }

  /** Notifies streams when another stream or a call finds that their member is dead or may be. */
  listen(listener: MemberListener): void {
    this.#listeners.add(listener);
  }

  /** Ends all connections. Streams and calls must have ended before. */
  close(): void {
    this.#closed = true;
    this.#membership?.close();
    this.#current?.retire();
    this.#current = this.hosts.hostInUse = undefined;
  }

  /** One attempt on the member in use. What it rejects with has its host. `answers`: see `CallPolicy`. */
  async attempt<T>(
    ask: (member: Member, options: CallOptions) => Promise<T>,
    options: CallOptions,
    answers: readonly AnswerKind[] = [],
  ): Promise<T> {
    if (this.#membership?.pending === true) await this.#findHosts(this.#membership, options);
    let member = this.current;
    if (member.loading !== undefined) {
      await member.loading;
      member = this.current;
    }
    let token: string | undefined;
    try {
      if (this.tokens) await this.tokens.ready(member, options);
      token = this.tokens?.current;
      const sentAt = this.clock.monotonic();
      const answer = await ask(member, options);
      const roundTripMs = this.clock.monotonic() - sentAt;
      this.#checkCluster(member, answer);
      this.hosts.answered(member.host, roundTripMs);
      this.#isUp(member);
      return answer;
    } catch (failure) {
      const error = notEtcds(failure, answers, member.host);
      const isUnproven = error instanceof LeaseNotFoundError && !this.hosts.knows(member.host);
      throw this.#failed(member, isUnproven ? await this.#proven(member, error, options) : error, token);
    }
  }

  async #findHosts(membership: Membership, options: CallOptions): Promise<void> {
    try {
      await membership.find(options);
    } catch (error) {
      if (isMembersFault(error)) this.hosts.attemptFailed(this.hosts.names[0]!, error as Error);
      throw error;
    }
  }

  /** @throws {Error} if the answer comes from a member of another cluster. */
  #checkCluster(member: Member, answer: unknown): void {
    const header = headerOf(answer);
    if (header) this.hosts.check(member.host, header);
  }

  /**
   * A rejection does not name its cluster, but an answer does, for any lease: returns `error` if the member belongs to this
   * cluster, and otherwise the error of that request.
   */
  async #proven(member: Member, error: LeaseNotFoundError, options: CallOptions): Promise<unknown> {
    if (this.hosts.isOnly) return error;
    try {
      this.#checkCluster(member, await member.timeToLive(1n, options));
      return error;
    } catch (unproven) {
      return notEtcds(unproven, [], member.host);
    }
  }

  /** Returns what the attempt rejects with. */
  #failed(member: Member, error: unknown, token: string | undefined): unknown {
    if (!(error instanceof UnansweredError)) this.hosts.rejected(member.host);
    if (isMembersFault(error) || (error instanceof OverloadedError && this.hosts.names.length > 1)) {
      this.hosts.attemptFailed(member.host, error as Error);
      this.#suspect(member, error as Error);
    }
    if (error instanceof TokenExpiredError) this.tokens?.drop(token);
    if (error instanceof MemberError) error.host = member.host;
    return error;
  }

  /** Calls continue on the next member, on a new connection; streams stay until they find `member` dead. */
  #suspect(member: Member, reason: Error): void {
    // Hundreds of calls may fail with one member. Only the first notifies, because each notification renews all leases.
    if (member !== this.#current) return;
    inOwnContext(() => {
      this.#leave(member, reason);
      for (const listener of this.#listeners) listener.suspected?.(member);
    });
  }

  /** `member` has answered; a late answer of one that was left says nothing about the state of its host. */
  #isUp(member: Member): void {
    if (member !== this.#current) return;
    this.hosts.up(member.host);
    this.#membership?.used(member);
    if (member === this.#up) return;
    this.#up = member;
    inOwnContext(() => {
      for (const listener of this.#listeners) listener.up?.();
    });
  }

  /** A member that was left before says nothing about the one in use: its streams may find later what a call has found. */
  #leave(member: Member, reason: Error | undefined): void {
    if (member !== this.#current) return;
    if (reason instanceof UnansweredError && reason.kind === "calm") this.hosts.pingedTooOften(member.host);
    this.hosts.left(member.host);
    this.#membership?.left();
    member.retire();
    this.#current = this.hosts.hostInUse = undefined;
    for (const listener of this.#listeners) listener.left?.();
  }

  #connectNext(): Member {
    if (this.#closed) throw new UnansweredError("the cluster is closed", { inDoubt: false });
    const { hosts } = this;
    const index = hosts.firstUsable(this.#next);
    this.#next = index + 1;
    return this.connectTo((hosts.hostInUse = hosts.names[index]!));
  }

  /** A connection of its own, which is not in use, and which the caller retires. */
  connectTo(host: string): Member {
    const setting = {
      token: () => this.tokens?.current,
      credentials: this.#credentials && (() => this.#credentials!.current),
      pingMs: this.hosts.pingMsOf(host),
    };
    return inOwnContext(() => this.connect(host, setting));
  }
}

/** Whether more is known of the hosts than the user's list. */
const isMovable = ({ hosts, followMembers }: CheckedConnect): boolean =>
  followMembers || hosts[0]?.startsWith("srv:") === true;

/** Several transactions get as many answers, with one header. */
function headerOf(answer: unknown): Header | undefined {
  const first: unknown = Array.isArray(answer) ? answer[0] : answer;
  return (first as { readonly header?: Header } | undefined)?.header;
}
