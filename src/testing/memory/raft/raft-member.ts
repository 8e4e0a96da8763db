// The rules, and where they are from. Files without a folder are in etcd's `server/etcdserver`; (m) was measured.
//
// | what                                          | rule                                                                                    | source                             |
// | --------------------------------------------- | --------------------------------------------------------------------------------------- | ---------------------------------- |
// | write: transaction, grant, revoke, compaction | through the log; answered when its member has applied it; refused after 7 s             | `v3_server.go`, `ReqTimeout`       |
// | … without a leader                            | waits, and is proposed when there is one                                                | raft `node.go`: `propc`            |
// | … sent to a leader that is gone               | lost: hangs for 7 s, whoever leads                                                      | raft `stepFollower`; (m)           |
// | … during a transfer of the leadership         | refused by the leader: `raft proposal dropped`; lost if another member forwarded it     | raft `stepLeader`                  |
// | … refused after 7 s                           | may have been executed, or may be later                                                 | its entry is in a log; (m)         |
// | … text                                        | `request timed out`, `… due to previous leader failure`, `… due to connection lost`     | `parseProposeCtxErr`               |
// | linearizable read                             | the leader's commit index, confirmed by a majority; then the member applies up to it    | `linearizableReadLoop`             |
// | … one at a time                               | reads that come during a round wait for it, and then for a round of their own           | `readNotifier`                     |
// | … another leader                              | `leader changed`, at once                                                               | `requestCurrentIndex`              |
// | … no answer                                   | repeated each 500 ms (not 3.4); `request timed out` after 7 s                           | `requestCurrentIndex`              |
// | serializable read, watch                      | the member's own state                                                                  | (m)                                |
// | lease                                         | expires at the leader only, 500 ms poll, revoked through the log, repeated after 3 s    | `lease/lessor.go`                  |
// | … a new leader                                | full TTL and an election timeout, when it has applied the first entry of its term       | `applyEntryNormal`, `Promote`      |
// | keepalive at the leader                       | no majority is asked: a leader that is cut off renews for up to 2 s                     | `LeaseRenew`                       |
// | … elsewhere                                   | sent to the leader each 50 ms; `no leader` or `request timed out` end the stream at 7 s | `LeaseRenew`, `waitLeader`; (m)    |
// | … blocked leader                              | `staleExLeader`: renews in its own term, and revokes when it goes on; else asks first   | etcd#15247; (m) 3.4.23             |
// | … leader that was paused                      | may revoke living leases when it goes on, in all releases                               | `test/lab/paused-leader.js` (m)    |
// | `hasleader`                                   | refused without a leader; ended at the third time in a row, one per second: `no leader` | `api/v3rpc/interceptor.go`; (m)    |
// | election                                      | a follower: 1 to 2 s after the last heartbeat; votes need that silence, too             | raft `CheckQuorum`; (m) 0.94–2.7 s |
// | … leader without a majority                   | steps down after 1 to 2 s                                                               | raft `MsgCheckQuorum`              |
// | … cut off, 3.4                                | its term climbs, and ends the leader's term when it is back; `preVote` from 3.5         | raft `PreVote`; (m)                |
// | kill                                          | log and state stay; streams and calls end; serves again when it knows a leader          | `ReadyNotify`; (m) 67–134 ms       |
//
// Not simulated: messages lost in one direction, membership changes, snapshots, `too many requests`, checkpoints of leases.
import type { Timer } from "../../../base/util/clock.js";
import type { Scheduler } from "../event-queue.js";
import type { Leases } from "../leases.js";
import {
  LEADER_CHANGED,
  NOT_PRIMARY,
  NO_LEADER,
  PROPOSAL_DROPPED,
  type Refusal,
  TIMEOUT,
  TIMEOUT_APPLIED_INDEX,
  TIMEOUT_CONNECTION_LOST,
  TIMEOUT_LEADER_FAILURE,
  type MemberRequest,
} from "../protocol.js";
import type { Peers } from "./cluster.js";
import type { MemberProcess } from "./member-process.js";
import { Applying, EXTENSION_MS, REQUEST_TIMEOUT_MS, ReadLoop } from "./progress.js";
import { ELECTION_MS, type Proposal, type RaftListener, type RaftNode } from "./raft-node.js";
import type { Random } from "../random.js";
import type { Consensus, TimeToLive } from "../server.js";
import { type Applied, type Replica, apply } from "../txn.js";
import type { AuthInfo } from "../users.js";

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

  propose(request: MemberRequest, done: (result: object) => void, info?: AuthInfo): void {
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
    if (request.kind === "kv") {
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

/** The pause between two attempts. */
const PAUSE_MS = 50;

export const NOT_PRIMARY_HERE = Symbol("not primary");
/** The answer of a lessor to another member; not primary: the other one repeats its request. */
export type LessorAnswer<Answer> = Answer | typeof NOT_PRIMARY_HERE;

/** One end of a request. */
export interface LessorPeer {
  readonly node: RaftNode;
  readonly process: MemberProcess;
}

export interface LessorRequestOptions<Answer, Member extends LessorPeer> {
  readonly from: LessorPeer;
  readonly peers: Peers;
  readonly leader: () => Member | undefined;
  /** Asks the lessor of a member. */
  readonly ask: (member: Member, answer: (found: LessorAnswer<Answer>) => void) => void;
  readonly done: (found: Answer | Refusal) => void;
}

/**
 * Renewals do not go through raft: a member sends them to the leader over HTTP, again and again, for seven seconds (LeaseRenew and
 * LeaseTimeToLive in v3_server.go). A request to a dead leader fails at once; one to a leader that is cut off hangs.
 */
export class LessorRequest<Answer, Member extends LessorPeer> {
  readonly #options: LessorRequestOptions<Answer, Member>;
  readonly #limit: Timer;
  readonly #until: number;
  #over = false;

  constructor(options: LessorRequestOptions<Answer, Member>) {
    this.#options = options;
    const { process } = options.from;
    this.#until = process.now + REQUEST_TIMEOUT_MS;
    this.#limit = process.after(REQUEST_TIMEOUT_MS, () =>
      this.#end(options.leader() === undefined ? NO_LEADER : TIMEOUT),
    );
    this.#try();
  }

  #try(): void {
    const { from, leader } = this.#options;
    if (this.#over || from.process.now >= this.#until) return;
    const to = leader();
    // waitLeader checks again after an election timeout.
    if (to === undefined) this.#tryAfter(ELECTION_MS);
    else this.#send(to);
  }

  #send(to: Member): void {
    const { from, peers, ask } = this.#options;
    if (!peers.linked(from.node, to.node)) return;
    if (to.process.dead) return this.#tryAfter(PAUSE_MS);
    peers.scheduler.after(peers.latencyMs(), () => {
      if (!peers.linked(from.node, to.node)) return;
      to.process.deliver(() => ask(to, (found) => this.#sendBack(to, found)));
    });
  }

  #sendBack(to: LessorPeer, found: LessorAnswer<Answer>): void {
    const { from, peers } = this.#options;
    peers.scheduler.after(peers.latencyMs(), () => {
      if (!peers.linked(from.node, to.node)) return;
      from.process.deliver(() => (found === NOT_PRIMARY_HERE ? this.#tryAfter(PAUSE_MS) : this.#end(found)));
    });
  }

  #tryAfter(ms: number): void {
    this.#options.from.process.after(ms, () => this.#try());
  }

  #end(found: Answer | Refusal): void {
    if (this.#over) return;
    this.#over = true;
    this.#limit.cancel();
    this.#options.done(found);
  }
}

/** maxNoLeaderCnt. */
const MOST_WITHOUT_LEADER = 3;

/**
 * Ends the streams that require a leader (monitorLeader in api/v3rpc/interceptor.go): it checks once per election timeout, and
 * the third time in a row without a leader is too much.
 */
export class LeaderMonitor {
  readonly #streams = new Set<() => void>();
  /** When it checks, modulo its interval. */
  readonly #phase: number;
  #timer: Timer | undefined;
  #count = 0;

  constructor(
    private readonly scheduler: Scheduler,
    phase: number,
    private readonly hasLeader: () => boolean,
  ) {
    this.#phase = scheduler.now + phase * ELECTION_MS;
  }

  /** Returns what forgets the stream. */
  add(end: () => void): () => void {
    this.#streams.add(end);
    return () => void this.#streams.delete(end);
  }

  /** Checks only without a leader: a check with one has no effect. */
  leadChanged(): void {
    if (this.#timer === undefined && !this.hasLeader()) this.#checkLater();
  }

  /** The timers of the process are gone. */
  killed(): void {
    this.#timer = undefined;
    this.#count = 0;
    this.#streams.clear();
  }

  #checkLater(): void {
    const { now } = this.scheduler;
    const turns = Math.floor((now - this.#phase) / ELECTION_MS + 1e-6) + 1;
    this.#timer = this.scheduler.after(this.#phase + turns * ELECTION_MS - now, () => this.#check());
  }

  #check(): void {
    this.#timer = undefined;
    this.#count = this.hasLeader() ? 0 : this.#count + 1;
    if (this.#count === 0) return;
    if (this.#count >= MOST_WITHOUT_LEADER)
      for (const end of [...this.#streams]) {
        this.#streams.delete(end);
        end();
      }
    this.#checkLater();
  }
}
