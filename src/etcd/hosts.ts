// What is known of each host. A host that asks for fewer pings gets fewer, on each later connection, whatever the transport. A
// change of a host's state is published once, however many calls notice it.
import { ConsecutiveBreaker } from "cockatiel/dist/breaker/ConsecutiveBreaker.js";
import { EtcdRefusedError } from "../errors.js";
import { memberChannel } from "../base/telemetry/channels.js";
import type { MemberMessage } from "../base/telemetry/messages.js";
import { withJson } from "../base/telemetry/publish.js";
import type { Clock } from "../base/util/clock.js";
import { tellOutside } from "../base/util/own-context.js";
import { type Header, MemberRefusedError, UnansweredError } from "./port.js";

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
  /** The last failure of a call or a stream to the host. */
  lastFailure: Failure | undefined;
  /** The host has not answered since that failure. */
  silent: boolean;
  /** The last failure of an attempt on the host, also if that was not its fault. */
  lastUnanswered: Failure | undefined;
  /** The host has responded at least once. */
  reached: boolean;
  /** Counts failed attempts in a row, from the first of them on. */
  circuit: ConsecutiveBreaker | undefined;
  /** Those attempts have opened the circuit, until this time. */
  openUntil: number;
  /** How often a connection to the host is pinged while a stream is open. */
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

export interface KnownHost {
  readonly name: string;
  readonly clusterId: string;
}

/**
 * What is known of each host of a cluster: the only place that has it. Each change of a host's state is published once.
 *
 * With hosts of two etcd clusters in one list, a fail-over would lose the leases, so a host of another cluster is rejected
 * while a host of the first one has answered recently. A restore from a snapshot gives every member a new cluster ID: the
 * new ID is adopted when no host has answered with the old one for 30 s, or when all hosts have changed, of which none has left the
 * list. Two processes that start at hosts of different clusters do not detect each other until they ask a second one: `SecondHost`.
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
  /** The host that has answered last, of those that are no longer in the list. */
  #gone: Host | undefined;
  /** Number of answered attempts. */
  #answers = 0;
  #failureCount = 0;
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

  /** Other hosts from now on: what is known of those that stay is kept. The one in use stays while it works. */
  replaceWith(found: readonly string[]): void {
    const works = this.#all.filter(
      ({ name, reached, silent }) => name === this.hostInUse && reached && !silent,
    );
    const names = [...new Set([...found, ...works.map(({ name }) => name)])];
    for (const host of this.#all)
      if (
        this.#isOurs(host) &&
        !names.includes(host.name) &&
        host.clusterIdAt >= (this.#gone?.clusterIdAt ?? 0)
      )
        this.#gone = host;
    (this.names as string[]).splice(0, Infinity, ...names);
    this.#all = names.map((name) => this.#host(name));
    this.#byName = new Map(this.#all.map((host) => [host.name, host]));
  }

  /** The last contact with a host failed. */
  get lastContactFailed(): boolean {
    return this.#last?.silent ?? false;
  }

  /** At least one host has responded. */
  get reached(): boolean {
    return this.#all.some(({ reached }) => reached);
  }

  /** An attempt has failed, and none was answered since. */
  get attemptsFail(): boolean {
    return this.#all.some(({ lastUnanswered }) => this.#isLast(lastUnanswered));
  }

  /** No host has ever answered, and each rejects connections or has no address. */
  get unreachable(): boolean {
    const are = this.#all.every(
      ({ lastUnanswered: last }) => this.#isLast(last) && isUnreachable(last.error),
    );
    return are && !this.reached;
  }

  /**
   * Why no host has answered a call that took `ms`, by host: an answer to another call does not hide why its attempts failed. During
   * the first attempt, only the host in use is listed.
   */
  whyUnanswered(ms: number | undefined = 0): ReadonlyMap<string, Error> {
    const since = this.clock.monotonic() - ms;
    const last = errorsOf(this.#all, ({ lastUnanswered }) => this.#isLast(lastUnanswered) && lastUnanswered);
    const recentOf = ({ lastUnanswered }: Host): Failure | false | undefined =>
      lastUnanswered && lastUnanswered.at > since && lastUnanswered;
    const why = last.size > 0 ? last : errorsOf(this.#all, recentOf);
    if (why.size > 0 || this.hostInUse === undefined) return why;
    return new Map([[this.hostInUse, new UnansweredError("no answer yet")]]);
  }

  /** The last failure of each host that has not answered since, and how long ago it was. */
  get silentHosts(): ReadonlyMap<string, { readonly error: Error; readonly ms: number }> {
    const now = this.clock.monotonic();
    const silentHosts = this.#all.flatMap(({ name, silent, lastFailure }) => {
      if (!silent || !lastFailure) return [];
      const { error = new UnansweredError("no answer to a renewal or a probe"), at } = lastFailure;
      return [[name, { error, ms: now - at }] as const];
    });
    return new Map(silentHosts);
  }

  /** The last failure of each host since `at`, on the monotonic clock. */
  failuresSince(at: number): ReadonlyMap<string, Error> {
    return errorsOf(this.#all, ({ lastFailure }) => lastFailure && lastFailure.at >= at && lastFailure);
  }

  /** A host that is not in use, and of which the cluster is not known. */
  get second(): string | undefined {
    const from = this.names.indexOf(this.hostInUse ?? "") + 1;
    const inTurn = [...this.names.slice(from), ...this.names.slice(0, from)];
    return inTurn.find((name) => name !== this.hostInUse && this.#host(name).clusterId === undefined);
  }

  /** A host that is not in use belongs to another cluster. */
  foundForeign(name: string, error: Error): void {
    const host = this.#host(name);
    host.lastFailure = this.#newFailure(error, host.lastFailure);
    host.silent = true;
    this.#setState(name, "refused", error);
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
    return this.#isOurs(this.#host(name));
  }

  #isOurs({ clusterId }: Host): boolean {
    return clusterId !== undefined && clusterId === this.#clusterId;
  }

  /** There is, and was, no other host: none that could belong to another cluster. */
  get isOnly(): boolean {
    return this.names.length === 1 && this.#gone === undefined;
  }

  /** A host of this cluster, with the ID of the cluster; undefined before one has answered. */
  get known(): KnownHost | undefined {
    const host = this.#all.find(({ name }) => this.knows(name));
    return host && { name: host.name, clusterId: host.clusterId! };
  }

  /** @throws {MemberRefusedError} if the host belongs to another cluster than the other hosts. */
  check(name: string, { clusterId }: Pick<Header, "clusterId">): void {
    const now = this.clock.monotonic();
    const host = this.#host(name);
    host.clusterId = clusterId;
    host.clusterIdAt = now;
    if (clusterId === this.#clusterId) return;
    const stands = (each: Host): boolean => this.#isOurs(each) && now - each.clusterIdAt < STANDS_MS;
    const ours = [...this.#all, ...(this.#gone ? [this.#gone] : [])].find(stands)?.name;
    if (ours === undefined) {
      this.#clusterId = clusterId;
      return;
    }
    throw this.#foreign(name, clusterId, ours);
  }

  /** The same for a host that is not in use: its cluster is compared, and never adopted. */
  assertOurs(name: string, { clusterId }: Pick<Header, "clusterId">): void {
    const host = this.#host(name);
    host.clusterId = clusterId;
    host.clusterIdAt = this.clock.monotonic();
    if (this.#clusterId !== undefined && !this.#isOurs(host))
      throw this.#foreign(name, clusterId, this.hostInUse ?? "the host in use");
  }

  #foreign(host: string, clusterId: string, ours: string): MemberRefusedError {
    const details =
      `it belongs to the etcd cluster ${hex(clusterId)}, but ${ours} to ${hex(this.#clusterId)}: ` +
      `the hosts must be members of one cluster`;
    return new MemberRefusedError("member", details, { host, inDoubt: true });
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
    const host = this.#contactFailed(name, error);
    // An attempt that began before the circuit opened is no new failure.
    if (this.#isOpen(host)) return;
    host.circuit ??= new ConsecutiveBreaker(FAILURES);
    if (host.circuit.failure()) host.openUntil = this.clock.monotonic() + OPEN_MS;
  }

  /** A stream to the host has failed. */
  streamFailed(name: string, error: Error | undefined): void {
    this.#contactFailed(name, error);
    if (error) this.unanswered(name, error);
  }

  /** Another attempt has to follow one on the host. */
  unanswered(name: string, error: Error): void {
    const host = this.#host(name);
    const { lastUnanswered: last } = host;
    host.lastUnanswered = this.#newFailure(error, this.#isLast(last) ? last : undefined);
  }

  /** The connection in use to the host has answered. */
  up(name: string): void {
    this.#setState(name, "up");
  }

  /** The host is no longer in use, because of its last failure. */
  left(name: string): void {
    const { state, lastFailure } = this.#host(name);
    const error = lastFailure && errorOf(lastFailure);
    const refused = error instanceof MemberRefusedError || error instanceof EtcdRefusedError;
    // An attempt to use it again that fails in another way belongs to the same episode.
    if (state === "refused" || (state === "down" && !refused)) return;
    this.#setState(name, refused ? "refused" : "down", error);
  }

  #contactFailed(name: string, error: Error | undefined): Host {
    const host = (this.#last = this.#host(name));
    host.lastFailure = this.#newFailure(error, host.lastFailure);
    host.silent = true;
    return host;
  }

  #setState(name: string, state: Host["state"] & string, error?: Error): void {
    const host = this.#host(name);
    if (host.state === state) return;
    host.state = state;
    if (!memberChannel.hasSubscribers) return;
    tellOutside(() => memberChannel.publish(withJson({ hosts: this.names, host: name, state, error })));
  }

  #isOpen({ openUntil }: Host): boolean {
    return this.clock.monotonic() < openUntil;
  }

  #newFailure(error: Error | undefined, before: Failure | undefined): Failure {
    const order = before?.order ?? this.#failureCount++;
    return { error, at: this.clock.monotonic(), answers: this.#answers, order };
  }

  /** Whether no host has answered since. */
  #isLast(failure: Failure | undefined): failure is Failure {
    return failure?.answers === this.#answers;
  }

  /** A late answer of a host that is no longer in the list says nothing. */
  #host(name: string): Host {
    return this.#byName.get(name) ?? newHost(name, this.pingMs);
  }
}

const newHost = (name: string, pingMs: number): Host => ({
  name,
  state: undefined,
  lastFailure: undefined,
  silent: false,
  lastUnanswered: undefined,
  reached: false,
  circuit: undefined,
  openUntil: 0,
  pingMs,
  clusterId: undefined,
  clusterIdAt: 0,
});

const errorOf = ({ error = new UnansweredError("no answer in time") }: Failure): Error => error;

/** The errors that `lastOf` finds, by host. */
function errorsOf(
  hosts: readonly Host[],
  lastOf: (host: Host) => Failure | false | undefined,
): Map<string, Error> {
  const failed = hosts.flatMap((host) => {
    const failure = lastOf(host);
    return failure ? [{ host, failure }] : [];
  });
  failed.sort((a, b) => a.failure.order - b.failure.order);
  return new Map(failed.map(({ host, failure }) => [host.name, errorOf(failure)]));
}

/** As `etcdctl` prints it. */
const hex = (id: string | undefined): string => BigInt(id ?? 0).toString(16);
