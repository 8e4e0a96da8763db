// What is known of each host, and the one member that is in use. A host that asks for fewer pings gets fewer, on each later
// connection, whatever the transport. A change of a host's state is published once, however many calls notice it.
import { ConsecutiveBreaker } from "cockatiel/dist/breaker/ConsecutiveBreaker.js";
import { EtcdRefusedError } from "../errors.js";
import type { CheckedConnect } from "../options/connect.js";
import { memberChannel } from "../telemetry/channels.js";
import type { MemberMessage } from "../telemetry/messages.js";
import { withJson } from "../telemetry/publish.js";
import type { Clock } from "../util/clock.js";
import { inOwnContext, tellOutside } from "../util/own-context.js";
import { AuthToken } from "./auth-token.js";
import { CurrentCredentials } from "./credentials.js";
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

const isUnreachable = (error: unknown): boolean =>
  error instanceof UnansweredError && error.kind === "unreachable";

/** Times are on the monotonic clock. */
interface Failure {
  /** Undefined: what was sent on a stream got no answer. */
  readonly error: Error | undefined;
  readonly at: number;
  /** Number of attempts that the cluster had answered until then. */
  readonly answers: number;
  /** Errors list the hosts in the order in which they began to fail. */
  readonly order: number;
}

/** What is known of one host. */
interface Host {
  readonly name: string;
  /** As published last. */
  state: MemberMessage["state"] | undefined;
  /** Its last failure, of a call or a stream. */
  failure: Failure | undefined;
  /** It has not answered since that failure. */
  silent: boolean;
  /** The last failure of an attempt on it, also if that was not its fault. */
  unanswered: Failure | undefined;
  /** It has responded at least once. */
  reached: boolean;
  /** Counts failed attempts in a row, from the first of them on. */
  circuit: ConsecutiveBreaker | undefined;
  /** They have opened the circuit, until this time. */
  openUntil: number;
  /** How often a connection to it is pinged while a stream is open. */
  pingMs: number;
  /** The etcd cluster of its last answer. */
  clusterId: string | undefined;
  clusterIdAt: number;
}

/** For this long after the failures, a member is used only if no other is left. */
const OPEN_MS = 1000;
/** One failed call says little about a member. */
const FAILURES = 2;
/** Go's gRPC servers allow one ping in five minutes by default. */
const LONGEST_PING_MS = 320_000;
/** A host that has not answered for this long does not represent its cluster: it may have been restored, or be gone. */
const STANDS_MS = 30_000;

/**
 * What is known of each host of a cluster: the only place that has it. Each change of a host's state is published once.
 *
 * With hosts of two etcd clusters in one list, a fail-over would lose the leases, so a host of another cluster is rejected
 * while a host of the first one has answered recently. A restore from a snapshot gives every member a new cluster ID: the
 * new ID is adopted when no host has answered with the old one for 30 s, or when all hosts have changed. Two processes that
 * start at hosts of different clusters do not detect each other.
 */
export class Hosts {
  /** The host of the member in use. */
  hostInUse: string | undefined;
  /** How long the last answered attempt took. */
  roundTripMs = 0;
  #all: readonly Host[];
  #byName: ReadonlyMap<string, Host>;
  /** The host of the last contact. */
  #last: Host | undefined;
  /** Number of answered attempts. */
  #answers = 0;
  #failures = 0;
  #clusterId: string | undefined;

  constructor(
    /** The same array for good, by which the messages of the cluster are known. */
    readonly names: readonly string[],
    private readonly clock: Clock,
    /** The ping interval that the user configured: a host that asks for fewer pings gets fewer. */
    private readonly pingMs: number,
  ) {
    this.#all = names.map((name) => newHost(name, pingMs));
    this.#byName = new Map(this.#all.map((host) => [host.name, host]));
  }

  /** Other hosts from now on: what is known of those that stay is kept. The one in use stays until it fails. */
  become(found: readonly string[]): void {
    const inUse = this.hostInUse !== undefined && this.#byName.has(this.hostInUse) ? [this.hostInUse] : [];
    const names = [...new Set([...found, ...inUse.filter((name) => !name.startsWith("srv:"))])];
    (this.names as string[]).splice(0, Infinity, ...names);
    this.#all = names.map((name) => this.#host(name));
    this.#byName = new Map(this.#all.map((host) => [host.name, host]));
  }

  /** The last contact with a host failed. */
  get contactFailed(): boolean {
    return this.#last?.silent ?? false;
  }

  /** At least one host has responded. */
  get reached(): boolean {
    return this.#all.some(({ reached }) => reached);
  }

  /** An attempt has failed, and none was answered since. */
  get failing(): boolean {
    return this.#all.some(({ unanswered }) => this.#isLast(unanswered));
  }

  /** No host has ever answered, and each rejects connections or has no address. */
  get unreachable(): boolean {
    const are = this.#all.every(({ unanswered: last }) => this.#isLast(last) && isUnreachable(last.error));
    return are && !this.reached;
  }

  /** Why no host has answered yet, by host. During the first attempt, only the host in use is listed. */
  get lastFailures(): ReadonlyMap<string, Error> {
    const failures = errorsOf(this.#all, ({ unanswered }) => this.#isLast(unanswered) && unanswered);
    if (failures.size > 0 || this.hostInUse === undefined) return failures;
    return new Map([[this.hostInUse, new UnansweredError("no answer yet")]]);
  }

  /** The last failure of each host that has not answered since, and how long ago it was. */
  get failureOf(): ReadonlyMap<string, { readonly error: Error; readonly ms: number }> {
    const now = this.clock.monotonic();
    const failed = this.#all.flatMap(({ name, silent, failure }) => {
      if (!silent || !failure) return [];
      const { error = new UnansweredError("no answer to a renewal or a probe"), at } = failure;
      return [[name, { error, ms: now - at }] as const];
    });
    return new Map(failed);
  }

  /** The last failure of each host since `at`, on the monotonic clock. */
  failuresSince(at: number): ReadonlyMap<string, Error> {
    return errorsOf(this.#all, ({ failure }) => failure && failure.at >= at && failure);
  }

  /** Index of the first host, from `start` on with wraparound, that has not just failed; `start` if all have. */
  firstUsable(start: number): number {
    const { length } = this.#all;
    for (let i = start; i < start + length; i++) if (!this.#isOpen(this.#all[i % length]!)) return i % length;
    return start % length;
  }

  pingMsOf(name: string): number {
    return this.#host(name).pingMs;
  }

  /** The host asked for fewer pings. */
  pingedTooOften(name: string): void {
    const host = this.#host(name);
    host.pingMs = Math.max(host.pingMs, Math.min(LONGEST_PING_MS, 2 * host.pingMs));
  }

  /** Whether the host has answered before and so is known to belong to this cluster. */
  knows(name: string): boolean {
    return this.#clusterId !== undefined && this.#host(name).clusterId === this.#clusterId;
  }

  /** @throws {MemberRefusedError} if the host belongs to another cluster than the other hosts. */
  check(name: string, { clusterId }: Header): void {
    const now = this.clock.monotonic();
    const host = this.#host(name);
    host.clusterId = clusterId;
    host.clusterIdAt = now;
    if (clusterId === this.#clusterId) return;
    const ours = this.#all.find((each) => this.knows(each.name) && now - each.clusterIdAt < STANDS_MS)?.name;
    if (ours === undefined) {
      this.#clusterId = clusterId;
      return;
    }
    const details =
      `it belongs to the etcd cluster ${hex(clusterId)}, but ${ours} to ${hex(this.#clusterId)}: ` +
      `the hosts must be members of one cluster`;
    throw new MemberRefusedError("member", details, { host: name, inDoubt: true });
  }

  /** The host has answered an attempt, `roundTripMs` after it was sent. */
  answered(name: string, roundTripMs: number): void {
    this.#answers++;
    this.roundTripMs = roundTripMs;
    const host = this.#host(name);
    host.circuit = undefined;
    host.openUntil = 0;
    this.contacted(name);
  }

  /** The host has answered an attempt, or on a stream. */
  contacted(name: string): void {
    const host = (this.#last = this.#host(name));
    host.reached = true;
    host.silent = false;
  }

  /** The host has answered an attempt, but not with success. */
  rejected(name: string): void {
    this.#host(name).reached = true;
  }

  /** An attempt on the host has failed, by its fault. */
  attemptFailed(name: string, error: Error): void {
    const host = this.#failed(name, error);
    // An attempt that began before the circuit opened is no new failure.
    if (this.#isOpen(host)) return;
    host.circuit ??= new ConsecutiveBreaker(FAILURES);
    if (host.circuit.failure()) host.openUntil = this.clock.monotonic() + OPEN_MS;
  }

  /** A stream to the host has failed. */
  streamFailed(name: string, error: Error | undefined): void {
    this.#failed(name, error);
    if (error) this.unanswered(name, error);
  }

  /** Another attempt has to follow one on the host. */
  unanswered(name: string, error: Error): void {
    const host = this.#host(name);
    const { unanswered } = host;
    host.unanswered = this.#failure(error, this.#isLast(unanswered) ? unanswered : undefined);
  }

  /** The connection in use to the host has answered. */
  up(name: string): void {
    this.#become(name, "up");
  }

  /** The host is no longer in use, because of its last failure. */
  left(name: string): void {
    const { state, failure } = this.#host(name);
    const error = failure && errorOf(failure);
    const refused = error instanceof MemberRefusedError || error instanceof EtcdRefusedError;
    // An attempt to use it again that fails in another way belongs to the same episode.
    if (state === "refused" || (state === "down" && !refused)) return;
    this.#become(name, refused ? "refused" : "down", error);
  }

  #failed(name: string, error: Error | undefined): Host {
    const host = (this.#last = this.#host(name));
    host.failure = this.#failure(error, host.failure);
    host.silent = true;
    return host;
  }

  #become(name: string, state: Host["state"] & string, error?: Error): void {
    const host = this.#host(name);
    if (host.state === state) return;
    host.state = state;
    if (!memberChannel.hasSubscribers) return;
    tellOutside(() => memberChannel.publish(withJson({ hosts: this.names, host: name, state, error })));
  }

  #isOpen({ openUntil }: Host): boolean {
    return this.clock.monotonic() < openUntil;
  }

  #failure(error: Error | undefined, before: Failure | undefined): Failure {
    const order = before?.order ?? this.#failures++;
    return { error, at: this.clock.monotonic(), answers: this.#answers, order };
  }

  /** Whether no host has answered since. */
  #isLast(failure: Failure | undefined): failure is Failure {
    return failure?.answers === this.#answers;
  }

  /** Of a host that is no longer in the list, a late answer says nothing. */
  #host(name: string): Host {
    return this.#byName.get(name) ?? newHost(name, this.pingMs);
  }
}

const newHost = (name: string, pingMs: number): Host => ({
  name,
  state: undefined,
  failure: undefined,
  silent: false,
  unanswered: undefined,
  reached: false,
  circuit: undefined,
  openUntil: 0,
  pingMs,
  clusterId: undefined,
  clusterIdAt: 0,
});

const errorOf = ({ error = new UnansweredError("no answer in time") }: Failure): Error => error;

/** The errors that `failureOf` finds, by host. */
function errorsOf(
  hosts: readonly Host[],
  failureOf: (host: Host) => Failure | false | undefined,
): Map<string, Error> {
  const failed = hosts.flatMap((host) => {
    const failure = failureOf(host);
    return failure ? [{ host, failure }] : [];
  });
  failed.sort((a, b) => a.failure.order - b.failure.order);
  return new Map(failed.map(({ host, failure }) => [host.name, errorOf(failure)]));
}

/** As `etcdctl` prints it. */
const hex = (id: string | undefined): string => BigInt(id ?? 0).toString(16);

interface MemberListener {
  /** The member in use is left: requests need not wait for it any longer. */
  left?(): void;
  /** `member` has failed: move to another one. */
  failed?(member: Member): void;
  /** A call got no answer from `member`, which may be the leader's fault: check whether the member is alive. */
  suspected?(member: Member): void;
}

export type Connect = (host: string, setting: MemberSetting) => Member;

/** The members of the cluster. One at a time is in use: each attempt of a call is made on that one. */
export class MemberPool {
  /** Set only with a password. */
  readonly tokens: AuthToken | undefined;
  readonly #credentials: CurrentCredentials | undefined;
  /** Set if the list of hosts may change. */
  readonly #membership: Membership | undefined;
  readonly #listeners = new Set<MemberListener>();
  #current: Member | undefined;
  #next: number;
  #closed = false;

  // eslint-disable-next-line max-params -- made in one place
  constructor(
    options: CheckedConnect,
    private readonly clock: Clock,
    private readonly connect: Connect,
    private readonly hosts: Hosts,
  ) {
    this.tokens = options.auth && new AuthToken(options.auth, options.requestTimeoutMs, clock);
    this.#credentials = options.credentials && new CurrentCredentials(options.credentials, options.hosts);
    if (isMovable(options)) this.#membership = new Membership(options, hosts, clock);
    // Clients with the same configuration spread over the members.
    this.#next = Math.floor(clock.random() * options.hosts.length);
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
    if (this.hosts.names.length === 1) return error;
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
    // Of hundreds of calls that fail with one member, only the first notifies: each notification renews all leases.
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
    const host = (hosts.hostInUse = hosts.names[index]!);
    const setting = {
      token: () => this.tokens?.current,
      credentials: this.#credentials && (() => this.#credentials!.current),
      pingMs: hosts.pingMsOf(host),
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
