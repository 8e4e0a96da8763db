import type { Contender } from "../../index.js";
import { formatDuration } from "../command-line/duration.js";
import type { ContenderJson } from "../command-line/json-types.js";

/** What a table shows for a value that an entry does not have. */
export const NONE = "-";

/** As `etcdctl lease list` prints it. */
export const leaseText = ({ leaseId }: Contender): string =>
  leaseId === 0n ? NONE : leaseId.toString(16).padStart(16, "0");

/** How long ago it joined the queue. */
export const ageText = ({ since }: Contender, now: number): string =>
  since === undefined ? NONE : formatDuration(now - since.getTime());

export const TITLES = ["STATE", "OWNER", "AGE", "SINCE", "TTL LEFT", "LEASE", "FENCE", "KEY"];

/** Under `TITLES`. */
export const rowOf = (contender: Contender, now: number): string[] => [
  contender.state,
  contender.owner ?? NONE,
  ageText(contender, now),
  contender.since?.toISOString() ?? NONE,
  contender.ttlRemainingMs === undefined ? NONE : formatDuration(contender.ttlRemainingMs),
  leaseText(contender),
  contender.revision.toString(),
  contender.key,
];

export const contenderJson = (contender: Contender): ContenderJson => {
  const { name, key, state, revision, leaseId, owner, since, ttlRemainingMs } = contender;
  return {
    ...{ name, key, state, revision: revision.toString(), leaseId: leaseId.toString() },
    lease: leaseId.toString(16),
    ...(owner !== undefined && { owner }),
    ...(since !== undefined && { since: since.toISOString() }),
    ...(ttlRemainingMs !== undefined && { ttlRemainingMs }),
  };
};
