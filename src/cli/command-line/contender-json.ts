import type { Contender } from "../../index.js";
import type { ContenderJson } from "./json-types.js";

/** As `etcdctl lease list` prints it. */
export const hexLease = (leaseId: bigint): string =>
  leaseId < 0n ? `-${(-leaseId).toString(16).padStart(15, "0")}` : leaseId.toString(16).padStart(16, "0");

/** Both spellings of a lease ID, as every line has them. */
export const leaseJson = (leaseId: bigint): Pick<ContenderJson, "leaseId" | "lease"> => ({
  leaseId: leaseId.toString(),
  lease: hexLease(leaseId),
});

/** Without what is undefined. */
export const contenderJson = (contender: Omit<Contender, "toJSON">): ContenderJson => {
  const { name, key, state, revision, leaseId, owner, since, ttlRemainingMs } = contender;
  return {
    ...{ name, key, state, revision: revision.toString() },
    ...leaseJson(leaseId),
    ...(owner !== undefined && { owner }),
    ...(since !== undefined && { since: since.toISOString() }),
    ...(ttlRemainingMs !== undefined && { ttlRemainingMs }),
  };
};
