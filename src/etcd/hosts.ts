// What is known of each host, and the one member that is in use. A host that asks for fewer pings gets fewer, on each later
// connection, whatever the transport. A change of a host's state is published once, however many calls notice it.
import { EtcdRefusedError } from "../errors.js";
import type { CheckedConnect } from "../options/connect.js";
import { memberChannel } from "../telemetry/channels.js";
import type { MemberMessage } from "../telemetry/messages.js";
import { withJson } from "../telemetry/publish.js";
import type { Clock } from "../util/clock.js";
import { inOwnContext, tellOutside } from "../util/own-context.js";
import { AuthToken } from "./auth-token.js";
import {
  type AnswerKind,
  AttemptError,
  type CallOptions,
  CancelledError,
  type Header,
  LeaseNotFoundError,
  type Member,
  MemberRefusedError,
  type MemberSetting,
  notEtcds,
  OverloadedError,
  TokenExpiredError,
  TooManyPingsError,
  UnansweredError,
} from "./port.js";

/** For this long after the failures, a member is used only if no other is left. */
const OPEN_MS = 1000;
/** One failed call says little about a member. */
const FAILURES = 2;

interface Breaker {
  /** Failures in a row. */
  failures: number;
  failedAt: number;
}

/** Whether `error` is a reason to use another member. */
const isMembersFault = (error: unknown): boolean =>
  error instanceof MemberRefusedError ||
  (error instanceof UnansweredError && !(error instanceof CancelledError));

/** A circuit breaker for each member. An open one does not exclude its member but makes it the last choice. */
export class CircuitBreakers {
  readonly #breakers: ReadonlyMap<string, Breaker>;

  constructor(
    private readonly hosts: readonly string[],
    private readonly clock: Clock,
  ) {
    this.#breakers = new Map(hosts.map((host) => [host, { failures: 0, failedAt: 0 }]));
  }

  /** A call to the member was answered. */
  succeeded(host: string): void {
    const breaker = this.#breakers.get(host);
    if (breaker !== undefined) breaker.failures = 0;
  }

  /** A call to the member has failed, and that is the member's fault. */
  failed(host: string): void {
    const breaker = this.#breakers.get(host);
    // A call that began before the breaker opened is no new failure.
    if (breaker === undefined || this.#isOpen(breaker)) return;
    breaker.failures++;
    breaker.failedAt = this.clock.monotonic();
  }

  /** Index of the first member, from `start` on with wraparound, that has not just failed; `start` if all have. */
  firstUsable(start: number): number {
    const { length } = this.hosts;
    for (let i = 0; i < length; i++)
      if (!this.#isOpen(this.#breakers.get(this.hosts[(start + i) % length]!)!)) return (start + i) % length;
    return start % length;
  }

  #isOpen({ failures, failedAt }: Breaker): boolean {
    return failures >= FAILURES && this.clock.monotonic() - failedAt < OPEN_MS;
  }
}

/** Go's gRPC servers allow one ping in five minutes by default. */
const LONGEST_MS = 320_000;

/** How often connections are pinged while a stream is open. A host that asks for fewer pings gets fewer. */
class PingIntervals {
  readonly #byHost = new Map<string, number>();

  /** `firstMs`: the interval that the user configured. */
  constructor(private readonly firstMs: number) {}

  of(host: string): number {
    return this.#byHost.get(host) ?? this.firstMs;
  }

  /** `host` asked for fewer pings on a connection that pinged every `pingMs`. */
  tooShort(host: string, pingMs: number): void {
    this.#byHost.set(host, Math.max(this.of(host), Math.min(LONGEST_MS, 2 * pingMs)));
  }
}

interface Failure {
  readonly error: Error;
  /** On the monotonic clock. */
  readonly at: number;
}

/** What is known of each host: whether it answers, and why it failed last. Publishes each change of that once. */
export class MemberStates {
  readonly #states = new Map<string, MemberMessage["state"]>();
  readonly #failures = new Map<string, Failure>();
  /** The failures of hosts that have not answered since. */
  readonly #unanswered = new Map<string, Failure>();

  constructor(
    private readonly hosts: readonly string[],
    private readonly clock: Clock,
  ) {}

  /** A connection to the host has its first answer. */
  answered(host: string): void {
    this.#become(host, "up");
  }

  /** A call to the host, or a stream, has failed. */
  failed(host: string, error: Error = new UnansweredError("no answer in time")): void {
    this.#failures.set(host, { error, at: this.clock.monotonic() });
  }

  /** The last contact with the host has failed. */
  contactFailed(host: string, error: Error): void {
    this.#unanswered.set(host, { error, at: this.clock.monotonic() });
  }

  /** The host has answered a call, or on a stream. */
  contacted(host: string): void {
    if (this.#unanswered.size > 0) this.#unanswered.delete(host);
  }

  /** The last failure of each host that has not answered since, and how long ago it was. */
  unanswered(): ReadonlyMap<string, { readonly error: Error; readonly ms: number }> {
    const now = this.clock.monotonic();
    return new Map([...this.#unanswered].map(([host, { error, at }]) => [host, { error, ms: now - at }]));
  }

  /** The host is no longer in use, because of its last failure. */
  left(host: string): void {
    const error = this.#failures.get(host)?.error;
    const refused = error instanceof MemberRefusedError || error instanceof EtcdRefusedError;
    const state = this.#states.get(host);
    // An attempt to use it again that fails in another way belongs to the same episode.
    if (state === "refused" || (state === "down" && !refused)) return;
    this.#become(host, refused ? "refused" : "down", error);
  }

  /** The last failure of each host since `at`, on the monotonic clock. */
  failuresSince(at: number): ReadonlyMap<string, Error> {
    const recent = [...this.#failures].filter(([, failure]) => failure.at >= at);
    return new Map(recent.map(([host, { error }]) => [host, error]));
  }

  #become(host: string, state: MemberMessage["state"], error?: Error): void {
    if (this.#states.get(host) === state) return;
    this.#states.set(host, state);
    if (!memberChannel.hasSubscribers) return;
    tellOutside(() => memberChannel.publish(withJson({ hosts: this.hosts, host, state, error })));
  }
}

/** A host that has not answered for this long does not represent its cluster: it may have been restored, or be gone. */
const STANDS_MS = 30_000;

interface Answered {
  readonly id: string;
  readonly at: number;
}

/**
 * The etcd cluster that this process uses. With hosts of two clusters in one list, a fail-over would lose the leases, so a
 * host of another cluster is rejected while a host of the first one has answered recently. A restore from a snapshot gives
 * every member a new cluster ID: the new ID is adopted when no host has answered with the old one for 30 s, or when all
 * hosts have changed. Two processes that start at hosts of different clusters do not detect each other.
 */
export class ClusterIdentity {
  #id: string | undefined;
  /** The latest answer of each host. */
  readonly #byHost = new Map<string, Answered>();

  constructor(private readonly clock: Clock) {}

  /** Whether `host` has answered before and so is known to belong to this cluster. */
  knows(host: string): boolean {
    return this.#byHost.get(host)?.id === this.#id && this.#id !== undefined;
  }

  /** @throws {MemberRefusedError} if `host` belongs to another cluster than the other hosts. */
  check(host: string, { clusterId }: Header): void {
    const now = this.clock.monotonic();
    this.#byHost.set(host, { id: clusterId, at: now });
    if (clusterId === this.#id) return;
    const represents = ({ id, at }: Answered): boolean => id === this.#id && now - at < STANDS_MS;
    const ours = [...this.#byHost].find(([, answered]) => represents(answered))?.[0];
    if (ours === undefined) {
      this.#id = clusterId;
      return;
    }
    const details =
      `it belongs to the etcd cluster ${hex(clusterId)}, but ${ours} to ${hex(this.#id)}: ` +
      `the hosts must be members of one cluster`;
    throw new MemberRefusedError(new EtcdRefusedError("member", host, details), true);
  }
}

/** As `etcdctl` prints it. */
const hex = (id: string | undefined): string => BigInt(id ?? 0).toString(16);

export interface MemberListener {
  /** `member` has failed: move to another one. */
  failed(member: Member): void;
  /** A call got no answer from `member`, which may be the leader's fault: check whether the member is alive. */
  suspected(member: Member): void;
}

export type Connect = (host: string, setting: MemberSetting) => Member;

/** The members of the cluster. One at a time is in use: each attempt of a call is made on that one. */
export class MemberPool {
  /** Set only with a password. */
  readonly tokens: AuthToken | undefined;
  /** The last failure of each member, until any member answers. */
  readonly failures = new Map<string, Error>();
  /** The last contact with a member failed. */
  contactFailed = false;
  /** At least one host has responded. */
  reached = false;
  /** How long the last answered attempt took. */
  roundTripMs = 0;
  /** Called when the member in use is left: requests need not wait for it any longer. */
  onLeft: () => void = () => {};
  readonly #breakers: CircuitBreakers;
  readonly #cluster: ClusterIdentity;
  readonly #pings: PingIntervals;
  readonly #states: MemberStates;
  /** The last connection that has answered. */
  #answered: Member | undefined;
  readonly #listeners = new Set<MemberListener>();
  /** Open connections, with the ping interval of each. */
  readonly #open = new Map<Member, number>();
  #current: Member | undefined;
  #next: number;
  #closed = false;

  constructor(
    private readonly options: CheckedConnect,
    private readonly clock: Clock,
    private readonly connect: Connect,
  ) {
    this.#breakers = new CircuitBreakers(options.hosts, clock);
    this.#cluster = new ClusterIdentity(clock);
    this.#pings = new PingIntervals(options.pingIntervalMs);
    this.#states = new MemberStates(options.hosts, clock);
    this.tokens = options.auth && new AuthToken(options.auth, options.requestTimeoutMs, clock);
    // Clients with the same configuration spread over the members.
    this.#next = Math.floor(clock.random() * options.hosts.length);
  }

  /** The member in use. All streams and calls start here; the first use connects. */
  get current(): Member {
    this.#current ??= this.#connectNext();
    return this.#current;
  }

  /** The host of the member in use; unlike `current`, it does not connect. */
  get hostInUse(): string | undefined {
    return this.#current?.host;
  }

  /** Why no member has answered yet, by host. During the first attempt, only the member in use is listed. */
  get lastFailures(): ReadonlyMap<string, Error> {
    if (this.failures.size > 0 || !this.#current) return new Map(this.failures);
    return new Map([[this.#current.host, new UnansweredError("no answer yet")]]);
  }

  /** The last failure of each member that has not answered since, and how long ago it was, by host. */
  get failureOf(): ReadonlyMap<string, { readonly error: Error; readonly ms: number }> {
    return this.#states.unanswered();
  }

  /** The last failure of each member since `at`, on the monotonic clock, by host. */
  failuresSince(at: number): ReadonlyMap<string, Error> {
    return this.#states.failuresSince(at);
  }

  /** A stream found `member` dead: the next use connects to the next member, and every stream on `member` moves. */
  fail(member: Member, why?: Error): void {
    if (why) this.failures.set(member.host, why);
    this.#states.failed(member.host, why);
    this.#contactFailed(member, why ?? new UnansweredError("no answer to a renewal or a probe"));
    this.#adjustPings(member, why);
    inOwnContext(() => {
      this.#leave(member);
      for (const listener of this.#listeners) listener.failed(member);
    });
  }

  /** Whether `member` belongs to this cluster, by the header of an answer on a stream. If not, the member has failed. */
  accepts(member: Member, header: Header): boolean {
    try {
      this.#cluster.check(member.host, header);
      this.#contacted(member);
      return true;
    } catch (error) {
      this.fail(member, error as Error);
      return false;
    }
  }

  /** Notifies streams when another stream or a call finds that their member is dead or may be. */
  listen(listener: MemberListener): void {
    this.#listeners.add(listener);
  }

  /** Ends all connections. Streams and calls must have ended before. */
  close(): void {
    this.#closed = true;
    this.#current = undefined;
    for (const member of this.#open.keys()) member.retire();
    this.#open.clear();
  }

  /** One attempt on the member in use. Rejects with AttemptError. `answers`: see `CallPolicy`. */
  async attempt<T>(
    ask: (member: Member, options: CallOptions) => Promise<T>,
    options: CallOptions,
    answers: readonly AnswerKind[] = [],
  ): Promise<T> {
    const { loading } = this.current;
    if (loading !== undefined) await loading;
    const member = this.current;
    let token: string | undefined;
    try {
      if (this.tokens) await this.tokens.ready(member, options);
      token = this.tokens?.current;
      const sentAt = this.clock.monotonic();
      const answer = await ask(member, options);
      this.roundTripMs = this.clock.monotonic() - sentAt;
      this.#checkCluster(member, answer);
      this.#breakers.succeeded(member.host);
      this.#contacted(member);
      return answer;
    } catch (failure) {
      const error = notEtcds(failure, answers, member.host);
      const isUnproven = error instanceof LeaseNotFoundError && !this.#cluster.knows(member.host);
      throw this.#failed(member, isUnproven ? await this.#proven(member, error, options) : error, token);
    }
  }

  /** @throws {Error} if the answer comes from a member of another cluster. */
  #checkCluster(member: Member, answer: unknown): void {
    const header = headerOf(answer);
    if (header) this.#cluster.check(member.host, header);
  }

  /**
   * A rejection does not name its cluster, but an answer does, for any lease: returns `error` if the member belongs to this
   * cluster, and otherwise the error of that request.
   */
  async #proven(member: Member, error: LeaseNotFoundError, options: CallOptions): Promise<unknown> {
    if (this.options.hosts.length === 1) return error;
    try {
      this.#checkCluster(member, await member.timeToLive(1n, options));
      return error;
    } catch (unproven) {
      return notEtcds(unproven, [], member.host);
    }
  }

  /** Returns what the attempt rejects with. */
  #failed(member: Member, error: unknown, token: string | undefined): unknown {
    if (!(error instanceof UnansweredError)) this.reached = true;
    if (isMembersFault(error) || (error instanceof OverloadedError && this.options.hosts.length > 1)) {
      this.#breakers.failed(member.host);
      this.#contactFailed(member, error as Error);
      this.#suspect(member, error as Error);
    }
    if (error instanceof TokenExpiredError) this.tokens?.drop(token);
    return error instanceof Error ? new AttemptError(member.host, error) : error;
  }

  /** Calls continue on the next member, on a new connection; streams stay until they find `member` dead. */
  #suspect(member: Member, why: Error): void {
    this.#states.failed(member.host, why);
    // Of hundreds of calls that fail with one member, only the first notifies: each notification renews all leases.
    if (!this.#open.has(member)) return;
    this.#adjustPings(member, why);
    inOwnContext(() => {
      this.#leave(member);
      for (const listener of this.#listeners) listener.suspected(member);
    });
  }

  #contacted(member: Member): void {
    this.contactFailed = false;
    this.reached = true;
    this.#states.contacted(member.host);
    if (member !== this.#answered) this.#firstAnswer(member);
  }

  #contactFailed({ host }: Member, why: Error): void {
    this.contactFailed = true;
    this.#states.contactFailed(host, why);
  }

  #firstAnswer(member: Member): void {
    // A late answer of a member that was left.
    if (!this.#open.has(member)) return;
    this.#answered = member;
    this.#states.answered(member.host);
  }

  #adjustPings(member: Member, why: Error | undefined): void {
    const pingMs = this.#open.get(member);
    if (why instanceof TooManyPingsError && pingMs !== undefined) this.#pings.tooShort(member.host, pingMs);
  }

  #leave(member: Member): void {
    // Its streams may find later what a call has found.
    if (this.#open.delete(member)) this.#states.left(member.host);
    member.retire();
    // A member that was left before says nothing about the one in use.
    if (this.#current !== member) return;
    this.#current = undefined;
    this.onLeft();
  }

  #connectNext(): Member {
    if (this.#closed) throw new UnansweredError("the cluster is closed");
    const { hosts } = this.options;
    const index = this.#breakers.firstUsable(this.#next);
    this.#next = index + 1;
    const host = hosts[index] ?? "";
    const pingMs = this.#pings.of(host);
    const setting = { token: () => this.tokens?.current, pingMs };
    const member = inOwnContext(() => this.connect(host, setting));
    this.#open.set(member, pingMs);
    return member;
  }
}

/** Several transactions get as many answers, with one header. */
function headerOf(answer: unknown): Header | undefined {
  const first: unknown = Array.isArray(answer) ? answer[0] : answer;
  return (first as { readonly header?: Header } | undefined)?.header;
}
