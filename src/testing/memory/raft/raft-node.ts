import type { Timer } from "../../../base/util/clock.js";
import type { MemberRequest } from "../protocol.js";
import type { Peer, Peers } from "./cluster.js";
import type { Change } from "../store.js";
import type { AuthInfo } from "../users.js";

/** etcd's defaults: a heartbeat each 100 ms, an election timeout of 10 to 19 of them (raft.go, `randomizedElectionTimeout`). */
const HEARTBEAT_MS = 100;
export const ELECTION_MS = 1000;

/** A member that starts again has so much of its election timeout behind it (advanceTicks in etcdserver/server.go). */
const RESTART_AHEAD_MS = 800;

/** What the member does with what its raft decides. */
export interface RaftListener {
  /** The member knows another leader, or none. */
  leadChanged(): void;
  /** Entries up to `commit` are committed. */
  committed(): void;
}

export interface RaftGroup {
  readonly peers: Peers;
  readonly nodes: readonly RaftNode[];
  /** A candidate asks first whether it would win, so that no term is used up (3.5 on; off by default in 3.4). */
  readonly preVote: boolean;
  /** The leader knows that these entries are committed. */
  committed(log: Log, commit: number): void;
}

/** What a leader sends: the entries that the follower lacks, and how far the log is committed. */
interface Append extends LogPart {
  readonly term: bigint;
  readonly commit: number;
  /** An answer may have been lost. */
  readonly again: boolean;
}

/**
 * The raft of one member (go.etcd.io/raft, raft.go), with CheckQuorum. Heartbeats are not sent: a follower counts as
 * reached by its leader as long as the two are connected.
 */
export class RaftNode implements Peer {
  term = 1n;
  lead: RaftNode | undefined;
  leading = false;
  readonly log = new Log();
  commit = 0;
  /** The raft loop runs: the process is neither dead nor paused, nor does it wait for its disk. */
  ticking = true;
  /** While the leadership is transferred, proposals are dropped (`leadTransferee`). */
  transferring = false;
  listener!: RaftListener;
  /** The last heartbeat of a leader, if heartbeats no longer arrive. */
  #silentSince = 0;
  #election: Timer | undefined;
  #quorumCheck: Timer | undefined;
  /** Of a leader: how far the log of each other member is known to be its own. */
  #match = new Map<RaftNode, number>();
  #acked: { term: bigint; length: number } = { term: 0n, length: 0 };

  constructor(
    readonly index: number,
    private readonly group: RaftGroup,
  ) {}

  /** Heartbeats of its leader arrive. */
  get hasContact(): boolean {
    const { lead } = this;
    if (lead === undefined || lead === this || !lead.leading || lead.term !== this.term) return false;
    return this.group.peers.connected(this, lead);
  }

  /** A majority answers this member. */
  get hasQuorum(): boolean {
    return this.#isMajority(this.#others().filter((other) => this.#connected(other)).length + 1);
  }

  /** No member that answers knows of a later term. */
  get isCurrent(): boolean {
    return this.#others().every((other) => !this.#connected(other) || other.term <= this.term);
  }

  /** The process is gone; its log stays. */
  killed(): void {
    this.leading = this.transferring = false;
    this.lead = undefined;
    this.#stop("both");
  }

  /** Called after each change of what is connected, and of who leads. */
  review(): void {
    if (!this.ticking) {
      this.#stop("both");
    } else if (this.leading) {
      this.#stop("election");
      if (this.hasQuorum) this.#stop("quorum check");
      // Each second, a leader checks whether a majority was active since the last check.
      else
        this.#quorumCheck ??= this.#after(this.#between(ELECTION_MS, 2 * ELECTION_MS), () => this.#resign());
    } else {
      this.#stop("quorum check");
      if (this.hasContact) return this.#stop("election");
      if (this.#election) return;
      this.#silentSince = this.group.peers.scheduler.now - this.#between(0, HEARTBEAT_MS);
      this.#electLater(this.#silentSince);
    }
  }

  /** A member that starts again with its log does not wait a whole election timeout (`advanceTicks`). */
  restarted(): void {
    this.leading = this.transferring = false;
    this.#setLead(undefined);
    this.#silentSince = this.group.peers.scheduler.now - RESTART_AHEAD_MS;
    this.#electLater(this.#silentSince);
  }

  /** Only on a leader. */
  append(proposal: Proposal | undefined): void {
    this.log.push({ term: this.term, proposal });
    this.#commitMajority();
    this.repeat(false);
  }

  /** Sends the log to the other members. */
  repeat(again: boolean): void {
    for (const other of this.#others()) this.#sendLog(other, again);
  }

  /**
   * The commit index, when a majority has confirmed that this member still leads (ReadOnlySafe). Never, if it does not. A new
   * leader waits for the first entry of its term to be committed: until then it may not know what is.
   */
  confirmIndex(answer: (index: number) => void): void {
    const { term, commit } = this;
    const isKnown = this.leading && commit > 0 && this.log.at(commit - 1).term === term;
    if (!isKnown) return;
    this.#after(this.group.peers.roundTripMs(), () => {
      const following = this.#others().filter((other) => this.#connected(other) && other.term === term);
      const isConfirmed = this.leading && this.term === term && this.#isMajority(following.length + 1);
      if (this.ticking && isConfirmed) answer(commit);
    });
  }

  /** MsgTimeoutNow: `to` becomes a candidate at once, and the votes do not wait for an election timeout. */
  transferTo(to: RaftNode): void {
    const { peers } = this.group;
    this.transferring = true;
    peers.send(this, to, () => to.#campaign(true));
    // An attempt ends after an election timeout (abortLeaderTransfer).
    this.#after(ELECTION_MS, () => (this.transferring = false));
  }

  /** The first leader of a new cluster. */
  found(): void {
    this.#becomeLeader(2n, this.group.nodes);
  }

  /** The nodes of a group are all there before one of them does something. */
  #others(): readonly RaftNode[] {
    this.#known ??= this.group.nodes.filter((node) => node !== this);
    return this.#known;
  }
  #known: readonly RaftNode[] | undefined;

  #connected(other: RaftNode): boolean {
    return this.group.peers.connected(this, other);
  }

  #isMajority(count: number): boolean {
    return 2 * count > this.group.nodes.length;
  }

  #between(least: number, most: number): number {
    return this.group.peers.random.between(least, most);
  }

  #after(ms: number, run: () => void): Timer {
    return this.group.peers.scheduler.after(ms, run);
  }

  #stop(which: "election" | "quorum check" | "both"): void {
    if (which !== "quorum check") {
      this.#election?.cancel();
      this.#election = undefined;
    }
    if (which !== "election") {
      this.#quorumCheck?.cancel();
      this.#quorumCheck = undefined;
    }
  }

  #setLead(lead: RaftNode | undefined): void {
    if (lead === this.lead) return;
    this.lead = lead;
    this.listener.leadChanged();
  }

  #resign(): void {
    this.#quorumCheck = undefined;
    this.leading = this.transferring = false;
    this.#setLead(undefined);
    this.review();
  }

  #electLater(from: number): void {
    const timeout = this.#between(ELECTION_MS, 2 * ELECTION_MS);
    this.#election = this.#after(from + timeout - this.group.peers.scheduler.now, () =>
      this.#campaign(false),
    );
  }

  #campaign(forced: boolean): void {
    this.#stop("election");
    if (this.leading) return;
    if (!forced) this.#setLead(undefined);
    if (!this.group.preVote) this.term++;
    this.#electLater(this.group.peers.scheduler.now);
    this.#after(this.group.peers.roundTripMs(), () => this.#countVotes(forced));
  }

  #countVotes(forced: boolean): void {
    if (!this.ticking || this.leading || (this.hasContact && !forced)) return;
    const { preVote } = this.group;
    const reached = this.#others().filter((node) => this.#connected(node) && (forced || !node.#inLease));
    if (!preVote && !forced && !this.#isAhead(reached)) return;
    const voters = reached.filter((node) => this.log.isUpToDate(node.log));
    if (!this.#isMajority(voters.length + 1)) return;
    const highest = voters.reduce((term, node) => (node.term > term ? node.term : term), this.term);
    this.#becomeLeader(preVote || forced ? highest + 1n : this.term, voters);
  }

  /**
   * Without PreVote, a candidate ends the terms of all that it reaches, whether they vote for it or not. Returns false if one of
   * them is in a later term, or in the same one and so has voted.
   */
  #isAhead(reached: readonly RaftNode[]): boolean {
    const highest = reached.reduce((term, node) => (node.term > term ? node.term : term), 0n);
    if (highest >= this.term) {
      this.term = highest;
      return false;
    }
    for (const node of reached) {
      node.#follow(this.term, undefined);
      node.#stop("both");
      node.#electLater(this.group.peers.scheduler.now);
    }
    return true;
  }

  /** It leads, or has received a heartbeat of its leader within an election timeout: it ignores candidates (CheckQuorum). */
  get #inLease(): boolean {
    if (this.leading || this.hasContact) return true;
    return this.lead !== undefined && this.group.peers.scheduler.now - this.#silentSince < ELECTION_MS;
  }

  #becomeLeader(term: bigint, voters: readonly RaftNode[]): void {
    for (const voter of voters) if (voter !== this) voter.#follow(term, undefined);
    this.#stop("both");
    this.term = term;
    this.leading = true;
    this.#match = new Map();
    this.#setLead(this);
    this.append(undefined);
    for (const node of this.group.nodes) node.review();
  }

  #follow(term: bigint, lead: RaftNode | undefined): void {
    this.leading = this.transferring = false;
    this.term = term;
    this.#setLead(lead);
  }

  #sendLog(to: RaftNode, again: boolean): void {
    const { term, log, commit } = this;
    const message = { ...log.part, term, commit, again };
    this.group.peers.send(this, to, () => to.#appended(this, message));
  }

  #appended(from: RaftNode, message: Append): void {
    const { term, length, commit, again } = message;
    const { peers } = this.group;
    // With CheckQuorum, a member of a higher term lets the leader know of it, which then steps down.
    if (term < this.term) return peers.send(this, from, () => from.#heardOf(this.term));
    if (term > this.term || this.lead !== from) {
      this.#follow(term, from);
      this.review();
    }
    this.log.merge(message);
    if (again || this.#acked.term !== term || this.#acked.length < length) {
      this.#acked = { term, length };
      peers.send(this, from, () => from.#accepted(this, { term, length }));
    }
    this.#commitUpTo(commit);
  }

  #heardOf(term: bigint): void {
    if (term <= this.term) return;
    this.#follow(term, undefined);
    for (const node of this.group.nodes) node.review();
  }

  #accepted(by: RaftNode, { term, length }: { term: bigint; length: number }): void {
    if (!this.leading || term !== this.term) return;
    this.#match.set(by, Math.max(length, this.#match.get(by) ?? 0));
    if (this.#commitMajority()) this.repeat(false);
  }

  /** Only an entry of its own term commits those before it (Raft section 5.4.2). Returns whether there are new ones. */
  #commitMajority(): boolean {
    const commit = this.#majorityLength();
    if (commit <= this.commit || this.log.at(commit - 1).term !== this.term) return false;
    this.group.committed(this.log, commit);
    this.#commitUpTo(commit);
    return true;
  }

  /** How much of its log a majority has. */
  #majorityLength(): number {
    const { nodes } = this.group;
    let most = 0;
    for (const node of nodes) {
      const length = this.#lengthOf(node);
      if (length <= most) continue;
      let count = 0;
      for (const other of nodes) if (this.#lengthOf(other) >= length) count++;
      if (this.#isMajority(count)) most = length;
    }
    return most;
  }

  #lengthOf(node: RaftNode): number {
    return node === this ? this.log.length : (this.#match.get(node) ?? 0);
  }

  #commitUpTo(commit: number): void {
    const known = Math.min(commit, this.log.length);
    if (known <= this.commit) return;
    this.commit = known;
    this.listener.committed();
  }
}

export interface Verdict {
  /** A refusal, or the answer without its header. */
  readonly result: object;
  /** The permissions and the quota let it pass. */
  readonly isExecuted: boolean;
  /** What it changed in the store. */
  readonly change: Change | undefined;
}

/** A request on its way into the log. Its member knows it again when it is applied. */
export interface Proposal {
  readonly request: MemberRequest;
  /** The user of the request; undefined: no permission is checked. */
  readonly info?: AuthInfo | undefined;
  /** Decided once, when it is committed: users, roles and the quota are not part of the members' states. */
  verdict?: Verdict;
}

/** One entry of the log. Two members have the same entry if it is the same object. */
export interface Entry {
  readonly term: bigint;
  /** `undefined`: the entry with which a leader begins its term. */
  readonly proposal: Proposal | undefined;
}

/** The first `length` entries of the leader's log, without the first `start` ones. The array may grow; these do not change. */
export interface LogPart {
  readonly start: number;
  readonly entries: readonly Entry[];
  readonly length: number;
}

/** The log of a member, without the entries that every member has applied. */
export class Log {
  /** How many it has dropped. */
  #start = 0;
  /** Replaced when entries are removed: messages on their way have the array. */
  #entries: Entry[] = [];

  /** With those that it has dropped. */
  get length(): number {
    return this.#start + this.#entries.length;
  }

  get part(): LogPart {
    return { start: this.#start, entries: this.#entries, length: this.length };
  }

  at(index: number): Entry {
    return this.#entries[index - this.#start]!;
  }

  push(entry: Entry): void {
    this.#entries.push(entry);
  }

  /** Forgets those before `index`: every member has applied them. */
  drop(index: number): void {
    if (index <= this.#start) return;
    this.#entries = this.#entries.slice(index - this.#start);
    this.#start = index;
  }

  /** Makes the log begin with the part, and removes the entries that differ from it. */
  merge({ start, entries, length }: LogPart): void {
    let same = Math.min(this.length, length);
    const known = Math.max(this.#start, start);
    // Equal entries have equal entries before them (Log Matching, Raft section 5.3).
    while (same > known && this.at(same - 1) !== entries[same - 1 - start]) same--;
    if (same < this.length && same < length) this.#entries = this.#entries.slice(0, same - this.#start);
    for (let n = same; n < length; n++) if (n >= this.length) this.push(entries[n - start]!);
  }

  /** Whether a candidate with this log may lead a member with the other one (Raft section 5.4.1). */
  isUpToDate(other: Log): boolean {
    const [last, lastOfOther] = [this.#lastTerm, other.#lastTerm];
    return last === lastOfOther ? this.length >= other.length : last > lastOfOther;
  }

  get #lastTerm(): bigint {
    return this.#entries.at(-1)?.term ?? 0n;
  }
}
