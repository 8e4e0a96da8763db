import type { EndpointReport, ListedMember, MemberStatus } from "./exam.js";
import { excerpt, fail, ok, warn, type Finding } from "./finding.js";

interface Known {
  readonly reports: readonly EndpointReport[];
  readonly told: readonly { readonly status: MemberStatus }[];
  /** As one of them lists all. */
  readonly members: readonly ListedMember[];
}

/** Whether enough members vote, and whether --endpoints lists them all. */
export function quorum({ reports, told, members }: Known): Finding[] {
  if (members.length === 0) return [];
  const seen = new Set(told.map(({ status }) => status.memberId));
  const voters = members.filter(({ isLearner }) => !isLearner).sort((a, b) => (a.name < b.name ? -1 : 1));
  const up = voters.filter(({ id }) => seen.has(id));
  const down = voters.filter(
    (member) => !seen.has(member.id) && reports.some((report) => isAt(report, member)),
  );
  const unlisted = voters.filter((member) => !seen.has(member.id) && !down.includes(member));
  return [quorumFinding({ voters, up, down, unlisted }), ...unlistedFinding(unlisted)];
}

/** A member advertises a URL, which need not be that of the endpoint: then it counts as one that is not listed. */
const isAt = ({ exam }: EndpointReport, { clientUrls }: ListedMember): boolean =>
  clientUrls.some((url) => url.replace(/^https?:\/\//, "") === exam.host.replace(/^https?:\/\//, ""));

type Voters = Readonly<Record<"voters" | "up" | "down" | "unlisted", readonly ListedMember[]>>;

function quorumFinding({ voters, up, down, unlisted }: Voters): Finding {
  const needed = Math.floor(voters.length / 2) + 1;
  const detail = `${up.length} of ${voters.length} voting members answered, ${needed} must`;
  const start = `start ${names(down) || "the others"}: etcd serves nothing without a majority`;
  if (down.length === 0) return ok("members", detail);
  if (up.length + unlisted.length < needed) return fail("members", `${detail}: no majority`, start);
  const spare = up.length + unlisted.length - needed;
  const further = spare === 0 ? "no further member may fail" : `${spare} more may fail`;
  return warn("members", `${detail}; ${names(down)} did not, and ${further}`, start);
}

const names = (members: readonly ListedMember[]): string =>
  members.map(({ name, id }) => name || BigInt(id).toString(16)).join(", ");

function unlistedFinding(unlisted: readonly ListedMember[]): Finding[] {
  if (unlisted.length === 0) return [];
  const urls = unlisted.map(
    ({ name, clientUrls }) => `${name} (${clientUrls.join(", ") || "not started yet"})`,
  );
  return [
    warn(
      "members",
      `not examined, because --endpoints does not name them: ${excerpt(urls.join(", "), 400)}`,
      "list all members: a client fails over to those that it knows",
    ),
  ];
}
