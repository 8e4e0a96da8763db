import {
  type EndpointReport,
  excerpt,
  fail,
  type Finding,
  type ListedMember,
  type MemberStatus,
  ok,
  skip,
  warn,
} from "./exam.js";

interface Known {
  readonly reports: readonly EndpointReport[];
  readonly answered: readonly { readonly status: MemberStatus }[];
  /** As one of them lists all. */
  readonly members: readonly ListedMember[];
}

/** Whether enough members vote, and whether --endpoints lists them all. */
function quorum({ reports, answered, members }: Known): Finding[] {
  if (members.length === 0) return [];
  const seen = new Set(answered.map(({ status }) => status.memberId));
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
      `not examined, because --endpoints does not list them: ${excerpt(urls.join(", "), 400)}`,
      "list all members: a client fails over to those that it knows",
    ),
  ];
}

/** etcd rejects requests at 5000 entries that are not applied. */
const LAG = 1000;

type Answered = EndpointReport & { readonly status: MemberStatus };

/** What the reports of all endpoints say together. */
export function clusterFindings(reports: readonly EndpointReport[]): Finding[] {
  const answered = reports.filter((report): report is Answered => report.status !== undefined);
  const working = reports.filter(({ works }) => works).length;
  const findings = [endpointsFinding(working, reports.length)];
  if (answered.length === 0) return [...findings, skip("cluster", "no endpoint has reported its status")];
  const mixed = mixedFinding(answered);
  const alarms = alarmFindings(answered);
  if (mixed) return [...findings, mixed, ...alarms];
  const members = answered.find(({ members }) => members && members.length > 0)?.members ?? [];
  return [
    ...findings,
    ...[leaderFinding(answered, members), ...quorum({ reports, answered, members })],
    ...[...alarms, ...versionsFinding(answered), ...lagFindings(answered)],
  ];
}

function endpointsFinding(working: number, all: number): Finding {
  const detail = `${working} of ${all} ${all === 1 ? "endpoint works" : "endpoints work"}`;
  if (working === 0) return fail("endpoints", detail, "see above");
  if (working === all) return ok("endpoints", detail);
  return warn("endpoints", detail, "clients continue with the others; repair or remove those that fail");
}

const hex = (id: string): string => BigInt(id).toString(16);

function mixedFinding(answered: readonly Answered[]): Finding | undefined {
  const ids = [...new Set(answered.map(({ status }) => status.clusterId))];
  if (ids.length < 2) return undefined;
  const hostsOf = (id: string): string =>
    answered
      .filter(({ status }) => status.clusterId === id)
      .map(({ exam }) => exam.host)
      .join(", ");
  return fail(
    "cluster id",
    `the endpoints belong to ${ids.length} clusters: ${ids.map((id) => `${hex(id)} (${hostsOf(id)})`).join("; ")}`,
    "list the members of one cluster only: locks of one exclude nobody in the other",
  );
}

const nameOf = (id: string, members: readonly ListedMember[]): string =>
  members.find((member) => member.id === id)?.name || hex(id);

function leaderFinding(answered: readonly Answered[], members: readonly ListedMember[]): Finding {
  const without = answered.filter(({ status }) => status.leader === "0");
  if (without.length > 0)
    return fail(
      "leader",
      `no leader known at ${without.map(({ exam }) => exam.host).join(", ")}`,
      "start the members that are down: a majority must reach each other on their peer ports",
    );
  const leaders = [...new Set(answered.map(({ status }) => status.leader))];
  const [leader = "0"] = leaders;
  const term = answered[0]?.status.raftTerm ?? "";
  if (leaders.length === 1) return ok("leader", `${nameOf(leader, members)} leads in term ${term}`);
  return warn(
    "leader",
    `members name different leaders: ${leaders.map((id) => nameOf(id, members)).join(", ")}`,
    "run doctor again: an election may be under way; if it lasts, see the network between the members",
  );
}

const ALARMS: Readonly<Record<string, string>> = {
  NOSPACE:
    "etcd is full and rejects every write: etcdctl compact, etcdctl defrag, or a higher --quota-backend-bytes; then etcdctl alarm disarm",
  CORRUPT: "a member's data differs: stop it, remove its data, add it again, then etcdctl alarm disarm",
};

/** As members tell them: `memberID:123 alarm:NOSPACE`. Go's text form of protobuf has one space or two, as it likes. */
function alarmFindings(answered: readonly Answered[]): Finding[] {
  const errors = answered
    .flatMap(({ status }) => status.errors)
    .map((text) => text.trim().replace(/\s+/g, " "));
  const all = new Set(errors.filter((text) => !text.includes("no leader")));
  if (all.size === 0) return [ok("alarms", "none")];
  const members = answered.flatMap((report) => report.members ?? []);
  return [...all].map((text) => {
    const [, id, alarm = ""] = /^memberID:(\d{1,20}) alarm:(\w+)/.exec(text) ?? [];
    const hint = ALARMS[alarm] ?? "see etcd's log, and etcdctl alarm list";
    return fail(
      "alarms",
      id === undefined ? excerpt(text) : `${alarm} of member ${nameOf(id, members)}`,
      hint,
    );
  });
}

function versionsFinding(answered: readonly Answered[]): Finding[] {
  const versions = [...new Set(answered.map(({ status }) => status.version))].sort();
  if (versions.length < 2) return [];
  const detail = `members run different releases: ${versions.join(", ")}`;
  return [warn("versions", detail, "finish the upgrade: releases should differ only during one")];
}

/** The members were asked at about the same time: a busy cluster writes a few entries in between. */
function lagFindings(answered: readonly Answered[]): Finding[] {
  const latest = Math.max(...answered.map(({ status }) => status.appliedIndex));
  const behind = answered.filter(({ status }) => latest - status.appliedIndex > LAG);
  if (behind.length === 0) return [ok("lag", "all members have applied nearly the same entries")];
  return behind.map(({ exam, status }) =>
    warn(
      "lag",
      `${exam.host} is ${latest - status.appliedIndex} entries behind`,
      "run doctor again: if it stays behind, see its disk and its network",
    ),
  );
}
