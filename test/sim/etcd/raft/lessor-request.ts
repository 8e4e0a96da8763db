import type { Timer } from "../../../../src/util/clock.js";
import { NO_LEADER, TIMEOUT } from "../refusals.js";
import type { Refusal } from "../types.js";
import type { MemberProcess } from "./member-process.js";
import type { Peers } from "./peers.js";
import { ELECTION_MS, type RaftNode } from "./raft-node.js";
import { REQUEST_TIMEOUT_MS } from "./read-loop.js";

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
