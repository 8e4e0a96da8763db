import type { Leader } from "../../index.js";
import { leaseJson } from "../command-line/contender-json.js";
import type { LeaderJson } from "../command-line/json-types.js";

export const leaderJson = (name: string, leader: Leader | undefined): LeaderJson => {
  if (!leader) return { name, leader: null };
  const { key, value, fence, revision, leaseId } = leader;
  const revisions = { fence: fence.toString(), modRevision: revision.toString() };
  return { name, leader: { key, value, ...revisions, ...leaseJson(leaseId) } };
};
