import type { Scheduler } from "../event-queue.js";
import type { AccessControl } from "../access.js";
import type { MemberRequest } from "../protocol.js";
import type { Quirks } from "../quirks.js";
import type { RaftMember } from "./raft-member.js";
import { type Log, type Proposal, type RaftGroup, RaftNode } from "./raft-node.js";
import type { Random } from "../random.js";
import { type Applied, type Replica, apply } from "../txn.js";

export interface ClusterOptions {
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly size: number;
  readonly peerLatencyMs?: number | undefined;
  readonly quirks: Quirks;
  /** The state as of the last committed entry. */
  readonly truth: Replica;
  /** Decides about each entry that is committed. */
  readonly access: AccessControl;
}

/** An index that is not lost comes within a round trip. */
export const LOST_MS = 1000;

/** Entries that all members have applied go from their logs, about so many at a time. */
const DROPPED_AT_ONCE = 1000;

/** The members' raft, and what breaks it. Members are named by their places. */
export class Cluster implements RaftGroup {
  readonly peers: Peers;
  readonly nodes: readonly RaftNode[];
  readonly preVote: boolean;
  readonly members: RaftMember[] = [];
  readonly #truth: Replica;
  readonly #access: AccessControl;
  readonly #observers = new Map<Proposal, (result: object) => void>();
  #committed = 0;

  constructor({ scheduler, random, size, quirks, truth, access, peerLatencyMs }: ClusterOptions) {
    this.#access = access;
    this.peers = new Peers(scheduler, random, peerLatencyMs === undefined ? LATENCY_MS : [0, peerLatencyMs]);
    this.preVote = quirks.preVote;
    this.#truth = truth;
    this.nodes = Array.from({ length: size }, (_, index) => new RaftNode(index, this));
  }

  /** Once all members are there: one of them leads, and the others know it. */
  found(): void {
    const first = this.peers.random.pick(this.nodes);
    this.peers.instantly(() => first.found());
  }

  /** A member that leads with a majority. */
  get leader(): RaftMember | undefined {
    const node = this.nodes.find((each) => each.leading && each.ticking && each.hasQuorum && each.isCurrent);
    return node && this.members[node.index];
  }

  /** It has a leader, and no member's reads wait for an index that was lost: up to 3.4, that takes seven seconds. */
  get serves(): boolean {
    return this.leader !== undefined && this.members.every(({ readsWaitMs }) => readsWaitMs < LOST_MS);
  }

  committed(log: Log, commit: number): void {
    for (; this.#committed < commit; this.#committed++) {
      if (this.#committed % DROPPED_AT_ONCE === 0) this.#dropApplied();
      const { proposal } = log.at(this.#committed);
      if (proposal === undefined) continue;
      const result = this.#decide(proposal);
      this.#observers.get(proposal)?.(result);
    }
  }

  /** But the last one, whose term a candidate has to know. */
  #dropApplied(): void {
    const applied = this.members.map(({ applying }) => applying.applied);
    for (const { log } of this.nodes) log.drop(Math.min(this.#committed, ...applied) - 1);
  }

  #decide(proposal: Proposal): object {
    const { request, info } = proposal;
    const { store } = this.#truth;
    const { revision } = store;
    let isExecuted = false;
    const run = (): object => {
      isExecuted = true;
      return apply(this.#truth, request as Applied);
    };
    const result = info ? this.#access.apply(request, info, run) : run();
    proposal.verdict = { result, isExecuted, change: store.since(revision + 1n)[0] };
    return result;
  }

  /** What an administrator asks for is committed at once, if there is a leader with a majority. Returns the result. */
  execute(request: MemberRequest, applied?: () => void): object | undefined {
    const { leader } = this;
    if (leader === undefined || leader.node.transferring) return undefined;
    let result: object | undefined;
    const proposal = { request };
    this.#observers.set(proposal, (found) => {
      result = found;
      applied?.();
    });
    this.peers.instantly(() => leader.node.append(proposal));
    this.#observers.delete(proposal);
    return result;
  }

  /** Both directions between two members. */
  cut(a: number, b: number): void {
    this.peers.cut(a, b);
    this.changed();
  }

  /** All connections between members. */
  heal(): void {
    for (const a of this.nodes) for (const b of this.nodes) if (a !== b) this.peers.heal(a.index, b.index);
    this.changed();
  }

  /** The process stops with its connections open. */
  pause(index: number): void {
    this.#member(index).process.pause();
    this.#tick(index, false);
  }

  /**
   * What the member held back runs before or after its raft learns what has happened. If before, an ex-leader proposes to revoke
   * leases that it takes for expired, and its raft forwards that to the next leader: etcd#15247, alive in all releases.
   */
  resume(index: number): void {
    const member = this.#member(index);
    const isBefore = this.peers.random.chance(0.5);
    if (isBefore) {
      member.block(true);
      member.process.resume();
    }
    this.#tick(index, true);
    this.#soon(index, () => {
      if (isBefore) member.block(false);
      else member.process.resume();
    });
  }

  /**
   * The raft loop of the member waits for its disk. Proposals wait with it: when it goes on, it learns first whether it still
   * leads, and then sends them.
   */
  block(index: number, isBlocked: boolean): void {
    const member = this.#member(index);
    if (isBlocked) member.block(true);
    else this.#soon(index, () => member.block(false));
    this.#tick(index, !isBlocked);
  }

  /** After its raft has exchanged messages with the others, unless the member is dead by then. */
  #soon(index: number, run: () => void): void {
    const { life } = this.#member(index).process;
    this.peers.scheduler.after(3 * this.peers.roundTripMs(), () => {
      if (this.#member(index).process.life === life) run();
    });
  }

  kill(index: number): void {
    const member = this.#member(index);
    member.process.kill();
    member.killed();
    member.node.killed();
    this.#tick(index, false);
  }

  /** The member begins with the log and the state that it had. */
  restart(index: number): void {
    const member = this.#member(index);
    member.process.restart();
    member.node.ticking = true;
    member.node.restarted();
    member.restarted();
    this.changed();
  }

  /** The member's entries take so much longer to be applied. */
  lag(index: number, ms: number): void {
    this.#member(index).applying.lagMs = ms;
  }

  /** As `etcdctl move-leader`. Returns false if there is no leader with a majority. */
  moveLeader(to: number): boolean {
    const { leader } = this;
    const target = this.nodes[to];
    if (leader === undefined || target === undefined || leader.node === target) return false;
    leader.node.transferTo(target);
    return true;
  }

  /** What is connected has changed: timers begin or end, and leaders repeat what may have been lost. */
  changed(): void {
    for (const node of this.nodes) node.review();
    for (const node of this.nodes) if (node.leading && node.ticking) node.repeat(true);
  }

  #tick(index: number, isTicking: boolean): void {
    this.nodes[index]!.ticking = isTicking;
    this.changed();
  }

  #member(index: number): RaftMember {
    return this.members[index]!;
  }
}

/** One way between two members, in milliseconds. */
const LATENCY_MS: readonly [number, number] = [0.1, 1];

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
    private readonly latency: readonly [number, number],
  ) {}

  latencyMs(): number {
    return this.random.between(...this.latency);
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
