import type { AuthInfo } from "../auth/tokens.js";
import type { Consensus } from "../consensus.js";
import type { Leases } from "../leases.js";
import type { UnaryRequest } from "../types.js";

/** The term in which the only member of a new cluster becomes the leader (measured, 3.4.23 to 3.7.3). */
const RAFT_TERM = 2n;

/** The only member of a cluster executes everything immediately: delays are the network's. */
export function solo(
  leases: Leases,
  apply: (request: UnaryRequest, info: AuthInfo | undefined) => object,
): Consensus {
  return {
    term: RAFT_TERM,
    hasLeader: true,
    propose: (request, done, info) => done(apply(request, info)),
    read: (then) => then(),
    // The only member is always the primary.
    renew: (leaseId, answer) => leases.renew(leaseId, (ttlSeconds) => answer(ttlSeconds ?? 0)),
    timeToLive: (leaseId, answer) => answer(leases.timeToLive(leaseId)),
    whenLeaderless: () => () => {},
  };
}
