import type { AuthInfo } from "./auth/tokens.js";
import type { Leases } from "./leases.js";
import type { Refusal, UnaryRequest } from "./types.js";

/** The remaining time of a lease in whole seconds, -1 if there is none, and its keys. */
export type TimeToLive = ReturnType<Leases["timeToLive"]>;

/** How the requests to one member reach the state of the cluster. */
export interface Consensus {
  readonly term: bigint;
  readonly hasLeader: boolean;
  /**
   * Calls `done` with the result that this member's state has when the request is applied there, or with a refusal. `info`: the
   * user of the request; undefined: no permission is checked.
   */
  propose(request: UnaryRequest, done: (result: object) => void, info?: AuthInfo): void;
  /** Calls `then` when this member has applied all that was committed before, or with the refusal. */
  read(then: (refusal?: Refusal) => void): void;
  /** Calls `answer` with the granted TTL, with 0 if there is no such lease, or with a refusal. */
  renew(leaseId: bigint, answer: (ttlSeconds: number | Refusal) => void): void;
  timeToLive(leaseId: bigint, answer: (found: TimeToLive | Refusal) => void): void;
  /** `end` is called if the member has had no leader for long. Returns what forgets it. */
  whenLeaderless(end: () => void): () => void;
}
