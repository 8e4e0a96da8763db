import type { Contender } from "../../index.js";
import { hexLease } from "../command-line/contender-json.js";
import { formatDuration } from "../command-line/duration.js";

/** What a table shows for a value that an entry does not have. */
export const NONE = "-";

export const leaseText = ({ leaseId }: Contender): string => (leaseId === 0n ? NONE : hexLease(leaseId));

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
