import type { Scheduler } from "../../kernel/kernel.js";
import type { Random } from "../../kernel/random.js";

/** One way between two members, in milliseconds. */
const LATENCY_MS = [0.1, 1] as const;

/** What the network of the peers needs to know of a member. */
export interface Peer {
  /** The place of the member among all. */
  readonly index: number;
  /** Its raft loop runs: it is not dead, paused, or blocked by its disk. */
  readonly ticking: boolean;
}

/** The network between the members. Messages of one member to another arrive in order, as on a TCP connection. */
export class Peers {
  readonly #cut = new Set<number>();
  readonly #lastArrival = new Map<number, number>();
  /** Since when the two are connected. */
  readonly #since = new Map<number, number>();
  /** Messages arrive within the call: an administrator's request is executed at once. */
  #instant = false;

  constructor(
    readonly scheduler: Scheduler,
    readonly random: Random,
  ) {}

  latencyMs(): number {
    return this.random.between(...LATENCY_MS);
  }

  roundTripMs(): number {
    return this.latencyMs() + this.latencyMs();
  }

  /** Both directions. */
  cut(a: number, b: number): void {
    this.#cut.add(pairOf(a, b));
  }

  heal(a: number, b: number): void {
    if (this.#cut.delete(pairOf(a, b))) this.#since.set(pairOf(a, b), this.scheduler.now);
  }

  /** Packets pass between the two hosts. */
  linked(a: Peer, b: Peer): boolean {
    return this.#cut.size === 0 || !this.#cut.has(pairOf(a.index, b.index));
  }

  /** Messages of raft pass between the two. */
  connected(a: Peer, b: Peer): boolean {
    return a.ticking && b.ticking && this.linked(a, b);
  }

  /** isConnectedSince in etcdserver/util.go, without the time that etcd needs to notice the end of a connection. */
  connectedSince(time: number, a: Peer, b: Peer): boolean {
    return this.connected(a, b) && (this.#since.get(pairOf(a.index, b.index)) ?? -1) < time;
  }

  /** `arrive` never runs if the two are not connected then: raft repeats what is lost. */
  send(from: Peer, to: Peer, arrive: () => void): void {
    if (this.#instant) return void (this.connected(from, to) && arrive());
    const way = wayOf(from.index, to.index);
    const { now } = this.scheduler;
    const time = Math.max(now + this.latencyMs(), this.#lastArrival.get(way) ?? 0);
    this.#lastArrival.set(way, time);
    this.scheduler.at(time, () => this.connected(from, to) && arrive());
  }

  instantly(run: () => void): void {
    this.#instant = true;
    run();
    this.#instant = false;
  }
}

/** The largest cluster has five members. */
const MOST_MEMBERS = 8;
const wayOf = (from: number, to: number): number => from * MOST_MEMBERS + to;
const pairOf = (a: number, b: number): number => (a < b ? wayOf(a, b) : wayOf(b, a));
