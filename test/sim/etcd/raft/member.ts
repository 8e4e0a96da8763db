import type { Timer } from "../../../../src/util/clock.js";
import type { Random } from "../../kernel/random.js";
import { apply, type Applied, type Replica } from "../apply.js";
import type { AuthInfo } from "../auth/tokens.js";
import type { Consensus, TimeToLive } from "../consensus.js";
import type { Leases } from "../leases.js";
import {
  LEADER_CHANGED,
  NOT_PRIMARY,
  PROPOSAL_DROPPED,
  TIMEOUT,
  TIMEOUT_APPLIED_INDEX,
  TIMEOUT_CONNECTION_LOST,
  TIMEOUT_LEADER_FAILURE,
} from "../refusals.js";
import type { Refusal, UnaryRequest } from "../types.js";
import { Applying, EXTENSION_MS } from "./applying.js";
import { LeaderMonitor } from "./leader-monitor.js";
import { LessorRequest, NOT_PRIMARY_HERE, type LessorAnswer, type LessorPeer } from "./lessor-request.js";
import type { Proposal } from "./log.js";
import type { MemberProcess } from "./member-process.js";
import type { Peers } from "./peers.js";
import { ELECTION_MS, type RaftListener, type RaftNode } from "./raft-node.js";
import { ReadLoop, REQUEST_TIMEOUT_MS } from "./read-loop.js";

/** A raft loop that has run within three heartbeats is active (isActive in server.go). */
const ACTIVE_MS = 300;

export interface RaftMemberOptions {
  readonly node: RaftNode;
  readonly peers: Peers;
  readonly process: MemberProcess;
  readonly replica: Replica;
  readonly random: Random;
  /** The member at a place. */
  readonly at: (index: number) => RaftMember;
}

/** A proposal of this member that is not applied. */
interface Waiting {
  readonly done: (result: object) => void;
  readonly limit: Timer;
}

/** One member of several (etcdserver/server.go, v3_server.go): what its requests wait for, and what it refuses. */
export class RaftMember implements Consensus, RaftListener, LessorPeer {
  readonly node: RaftNode;
  readonly process: MemberProcess;
  readonly applying: Applying;
  readonly #options: RaftMemberOptions;
  readonly #reads: ReadLoop;
  readonly #monitor: LeaderMonitor;
  readonly #waiting = new Map<Proposal, Waiting>();
  /** Those that were not handed to raft: it has no leader, or its loop is blocked. */
  #blocked: Proposal[] = [];
  /** When the raft loop was blocked. */
  #blockedSince: number | undefined;
  #lastLead: RaftNode | undefined;
  /** When this member became the leader. */
  #electedAt: number | undefined;

  constructor(options: RaftMemberOptions) {
    const { node, process, random, replica } = (this.#options = options);
    this.node = node;
    this.process = process;
    node.listener = this;
    this.#monitor = new LeaderMonitor(process, random.next(), () => this.hasLeader);
    this.applying = new Applying({
      ...{ node, scheduler: process },
      apply: (proposal) => this.#apply(proposal),
      firstOfTerm: () => this.#firstOfTerm(),
    });
    this.#reads = new ReadLoop({
      ...{ scheduler: process, retries: replica.quirks.readIndexRetried },
      requestIndex: (answer) => this.#requestIndex(answer),
      whenApplied: (index, run) => this.applying.when(index, run),
    });
  }

  get term(): bigint {
    return this.node.term;
  }

  get leases(): Leases {
    return this.#options.replica.leases;
  }

  get hasLeader(): boolean {
    return this.node.lead !== undefined;
  }

  /** How long the reads of this member have waited for the leader. */
  get readsWaitMs(): number {
    return this.#reads.waitsMs;
  }

  propose(request: UnaryRequest, done: (result: object) => void, info?: AuthInfo): void {
    const { process, random } = this.#options;
    const noId = request.kind === "grant" && request.leaseId === 0n;
    const proposal = { request: noId ? { ...request, leaseId: random.id() } : request, info };
    const start = process.now;
    const limit = process.after(REQUEST_TIMEOUT_MS, () => {
      this.#blocked = this.#blocked.filter((each) => each !== proposal);
      this.#end(proposal, this.#timeout(start));
    });
    this.#waiting.set(proposal, { done, limit });
    this.#hand(proposal);
  }

  read(then: (refusal?: Refusal) => void): void {
    this.#reads.add(then);
  }

  whenLeaderless(end: () => void): () => void {
    return this.#monitor.add(end);
  }

  /** LeaseRenew in v3_server.go. */
  renew(leaseId: bigint, answer: (ttlSeconds: number | Refusal) => void): void {
    if (!this.node.leading) return this.#renewAtLeader(leaseId, answer);
    if (this.#options.replica.quirks.staleExLeader) return this.#renewAsLeader(leaseId, answer);
    this.#ensureLeadership((leads) => (leads ? this.#renewAsLeader(leaseId, answer) : answer(NOT_PRIMARY)));
  }

  timeToLive(leaseId: bigint, answer: (found: TimeToLive | Refusal) => void): void {
    const { leases } = this.#options.replica;
    if (!this.node.leading)
      return this.#askLeader<TimeToLive>((leader, found) => leader.#timeToLiveHere(leaseId, found), answer);
    this.applying.caughtUp((late) => {
      if (late) return answer(TIMEOUT_APPLIED_INDEX);
      // A leader that has not applied the first entry of its term does not know when leases expire.
      answer(leases.primary ? leases.timeToLive(leaseId) : LEADER_CHANGED);
    });
  }

  /** revokeExpiredLeases in server.go. Before etcd#15247 was mended, a leader that is blocked did not ask the others. */
  revokeExpired(leaseIds: readonly bigint[]): void {
    const revoke = (leads: boolean): void => {
      if (leads) for (const leaseId of leaseIds) this.propose({ kind: "revoke", leaseId }, () => {});
    };
    if (this.#options.replica.quirks.staleExLeader) revoke(true);
    else this.#ensureLeadership(revoke);
  }

  leadChanged(): void {
    const { lead, leading } = this.node;
    if (!leading) this.#options.replica.leases.demote();
    // newLeader in etcdserver/raft.go: also the same leader again after a time without one.
    const isNew = lead !== undefined && lead !== this.#lastLead;
    this.#lastLead = lead;
    this.#monitor.leadChanged();
    if (!isNew) return;
    this.process.ready();
    if (leading) this.#electedAt = this.process.now;
    this.#reads.leaderChanged();
    this.#handBlocked();
  }

  committed(): void {
    this.applying.committed();
  }

  /** The raft loop waits for the disk, or goes on. Everything else of the member runs. */
  block(isBlocked: boolean): void {
    this.#blockedSince = isBlocked ? this.process.now : undefined;
    if (!isBlocked) this.#handBlocked();
  }

  killed(): void {
    this.#reads.killed();
    this.#monitor.killed();
    this.applying.killed();
    this.#waiting.clear();
    this.#blocked = [];
    this.#blockedSince = this.#electedAt = undefined;
    this.#lastLead = undefined;
  }

  restarted(): void {
    this.#options.replica.leases.demote();
    this.#monitor.leadChanged();
    this.applying.committed();
  }

  #handBlocked(): void {
    const blocked = this.#blocked;
    this.#blocked = [];
    for (const proposal of blocked) this.#hand(proposal);
  }

  /** Hands a proposal to raft, or keeps it until there is a leader (node.go: `propc` is nil without one). */
  #hand(proposal: Proposal): void {
    const { node } = this;
    if (this.#blockedSince !== undefined || !this.hasLeader) this.#blocked.push(proposal);
    else if (!node.leading) this.#forward(proposal);
    else if (node.transferring) this.#end(proposal, PROPOSAL_DROPPED);
    else node.append(proposal);
  }

  #forward(proposal: Proposal): void {
    const { lead } = this.node;
    // Without a leader, a proposal of another member is dropped without an answer.
    if (lead === undefined) return;
    this.#options.peers.send(this.node, lead, () => this.#options.at(lead.index).#forwarded(proposal));
  }

  #forwarded(proposal: Proposal): void {
    if (!this.node.leading) this.#forward(proposal);
    else if (!this.node.transferring) this.node.append(proposal);
  }

  #end(proposal: Proposal, result: object): void {
    const waiting = this.#waiting.get(proposal);
    if (waiting === undefined) return;
    this.#waiting.delete(proposal);
    waiting.limit.cancel();
    waiting.done(result);
  }

  /** parseProposeCtxErr in server.go. */
  #timeout(start: number): Refusal {
    const { node } = this;
    const { lead } = node;
    const elected = this.#electedAt ?? -Infinity;
    if (start > elected - 2 * ELECTION_MS && start < elected) return TIMEOUT_LEADER_FAILURE;
    if (lead === undefined) return TIMEOUT;
    const isConnected =
      lead === node ? node.hasQuorum : this.#options.peers.connectedSince(start, node, lead);
    return isConnected ? TIMEOUT : TIMEOUT_CONNECTION_LOST;
  }

  /** MsgReadIndex. Without a leader, raft drops the request. */
  #requestIndex(answer: (index: number) => void): void {
    const { node } = this;
    const { peers } = this.#options;
    const { lead } = node;
    if (lead === undefined || !node.ticking) return;
    if (node.leading) return node.confirmIndex(answer);
    const reply = (index: number): void => peers.send(lead, node, () => answer(index));
    peers.send(node, lead, () => lead.confirmIndex(reply));
  }

  #apply(proposal: Proposal): void {
    const { request, verdict } = proposal;
    const { result, isExecuted, change } = verdict!;
    const { replica } = this.#options;
    // This member has applied the same entries before, so the transaction would change the same.
    if (request.kind === "txns") {
      if (change !== undefined) replica.store.repeat(change);
    } else if (isExecuted) apply(replica, request as Applied);
    this.#end(proposal, result);
  }

  /** applyEntryNormal in server.go: a leader that has applied all entries of earlier terms promotes its lessor. */
  #firstOfTerm(): void {
    this.#reads.again();
    if (this.node.leading) this.#options.replica.leases.promote(EXTENSION_MS);
  }

  #ensureLeadership(then: (leads: boolean) => void): void {
    const since = this.#blockedSince;
    if (since === undefined || this.process.now - since <= ACTIVE_MS) return then(true);
    this.read((refusal) => then(refusal === undefined && this.node.leading));
  }

  #renewAsLeader(leaseId: bigint, answer: (ttlSeconds: number | Refusal) => void): void {
    const { leases, quirks } = this.#options.replica;
    const renew = (): void =>
      leases.renew(leaseId, (ttlSeconds) =>
        ttlSeconds === undefined ? this.#renewAtLeader(leaseId, answer) : answer(ttlSeconds),
      );
    if (!quirks.renewalWaitsForApply || (quirks.fastKeepalive && leases.has(leaseId))) return renew();
    this.applying.caughtUp((late) => (late ? answer(TIMEOUT_APPLIED_INDEX) : renew()));
  }

  #renewAtLeader(leaseId: bigint, answer: (ttlSeconds: number | Refusal) => void): void {
    this.#askLeader<number>((leader, found) => leader.#renewHere(leaseId, found), answer);
  }

  #askLeader<Answer>(
    ask: (leader: RaftMember, answer: (found: LessorAnswer<Answer>) => void) => void,
    done: (found: Answer | Refusal) => void,
  ): void {
    const { peers, at } = this.#options;
    const leader = (): RaftMember | undefined => this.node.lead && at(this.node.lead.index);
    new LessorRequest<Answer, RaftMember>({ from: this, peers, leader, ask, done });
  }

  #renewHere(leaseId: bigint, answer: (found: LessorAnswer<number>) => void): void {
    this.applying.caughtUp((late) => {
      if (late) return answer(NOT_PRIMARY_HERE);
      this.#options.replica.leases.renew(leaseId, (ttl) => answer(ttl ?? NOT_PRIMARY_HERE));
    });
  }

  #timeToLiveHere(leaseId: bigint, answer: (found: LessorAnswer<TimeToLive>) => void): void {
    const { leases } = this.#options.replica;
    this.applying.caughtUp((late) => {
      answer(late || !leases.primary ? NOT_PRIMARY_HERE : leases.timeToLive(leaseId));
    });
  }
}
