import {
  type EndpointReport,
  type Exam,
  excerpt,
  fail,
  type Finding,
  type ListedMember,
  type MemberStatus,
  NoAnswerError,
  ok,
  skip,
  type Step,
  warn,
} from "./exam.js";
import {
  ask,
  askGateway,
  codeOf,
  type Fields,
  fieldsOf,
  type HttpAnswer,
  isFields,
  listOf,
  openTcp,
  textOf,
} from "./http.js";
import { versionOf } from "./identify.js";

/** Name service and TCP. */
export const reach: Step = async ({ exam, findings }: EndpointReport) => {
  try {
    const ms = await openTcp(exam);
    findings.push(ok("reach", `TCP connection in ${ms.toFixed(1)} ms`, { connectMs: ms }));
    return true;
  } catch (error) {
    exam.signal.throwIfAborted();
    findings.push(unreachable(exam, error));
    return false;
  }
};

const NO_NAME = new Set(["ENOTFOUND", "EAI_AGAIN", "EAI_FAIL", "EAI_NODATA"]);
const NO_ROUTE = new Set(["EHOSTUNREACH", "ENETUNREACH", "ETIMEDOUT", "EHOSTDOWN"]);

function unreachable({ hostname, port }: Exam, error: unknown): Finding {
  const code = codeOf(error) ?? "";
  if (NO_NAME.has(code))
    return fail(
      "reach",
      `the name ${excerpt(hostname)} has no address (${code})`,
      "correct the name in --endpoints, or the name service of this machine",
    );
  if (code === "ECONNREFUSED")
    return fail(
      "reach",
      `nothing listens on port ${port}: the connection was refused`,
      "start etcd there, or correct the port in --endpoints: clients use the one of --listen-client-urls, usually 2379",
    );
  if (error instanceof NoAnswerError || NO_ROUTE.has(code))
    return fail(
      "reach",
      error instanceof NoAnswerError
        ? `no TCP connection within ${error.afterMs} ms`
        : `not reachable (${code})`,
      "see whether the machine is up, and which firewall drops packets to this port",
    );
  return fail("reach", `no TCP connection: ${excerpt(code)}`, "correct the host and the port in --endpoints");
}

/** From this part of the quota on there is reason to act: etcd rejects all writes when it is full. */
const FULL = 0.8;
const UNCHECKED = "alarms, space, leader and members were not checked";

/** What the member says about itself and its cluster, by etcd's HTTP gateway. */
export const status: Step = async (report) => {
  const { exam, findings, version } = report;
  if (version === undefined) {
    findings.push(skip("status", `no HTTP gateway: ${UNCHECKED}`));
    return true;
  }
  try {
    await logIn(report);
    const answer = await askGateway(report, "/v3/maintenance/status", {});
    if (answer.status === 404 && (await isPeerPort(report))) return false;
    findings.push(...(await statusFindings(report, answer)));
    if (report.status?.isLearner === true) return false;
  } catch (error) {
    exam.signal.throwIfAborted();
    findings.push(skip("status", `${excerpt((error as Error).message)}: ${UNCHECKED}`));
  }
  return true;
};

/** Asks again, so that indexes can be compared: other members may have been asked seconds before. */
export async function refresh(report: EndpointReport): Promise<void> {
  if (report.status === undefined) return;
  try {
    const { text } = await askGateway(report, "/v3/maintenance/status", {});
    report.status = statusOf(fieldsOf(text) ?? {}) ?? report.status;
  } catch {
    report.exam.signal.throwIfAborted();
  }
}

/** A wrong password is reported by the check of the lock, which uses it, too. */
async function logIn(report: EndpointReport): Promise<void> {
  const { auth, secrets } = report.exam;
  if (!auth) return;
  const body = { name: auth.username, password: auth.password };
  const { text } = await askGateway(report, "/v3/auth/authenticate", body);
  const token = textOf(fieldsOf(text)?.["token"]);
  if (!/^[\w.~+/=-]+$/.test(token)) return;
  secrets.add(token);
  report.token = token;
}

/** etcd's port for its peers has /version, too, and a list of the members. */
async function isPeerPort({ exam, findings }: EndpointReport): Promise<boolean> {
  const { status, text } = await ask(exam, { path: "/members" });
  if (status !== 200 || !text.startsWith("[")) return false;
  const listed = listOf(fieldsOf(`{"members":${text}}`)?.["members"]).filter(isFields);
  const own = listed.find((member) =>
    listOf(member["peerURLs"]).some((url) => textOf(url).endsWith(`:${exam.port}`)),
  );
  const urls = excerpt(listOf(own?.["clientURLs"]).map(textOf).join(", "), 160);
  findings.push(
    fail(
      "server",
      "the port for etcd's peers, not the one for clients",
      `use the client port in --endpoints: ${urls || "that of --listen-client-urls, usually 2379"}`,
    ),
  );
  return true;
}

async function statusFindings(report: EndpointReport, answer: HttpAnswer): Promise<Finding[]> {
  const fields = fieldsOf(answer.text);
  const own = answer.status === 200 && fields ? statusOf(fields) : undefined;
  if (!own || !fields) return [skip("status", `${whyNot(answer, fields)}: ${UNCHECKED}`)];
  report.status = own;
  const list = await askGateway(report, "/v3/cluster/member/list", {});
  report.members = listOf(fieldsOf(list.text)?.["members"]).filter(isFields).map(memberOf);
  if (!own.isLearner) return spaceFinding(fields);
  const what = "this member is a learner: it serves neither reads nor writes of clients";
  const hint = "promote it (etcdctl member promote), or take it out of --endpoints";
  return [...spaceFinding(fields), fail("learner", what, hint)];
}

const whyNot = ({ status }: HttpAnswer, fields: Fields | undefined): string =>
  status === 404
    ? "the HTTP gateway is switched off (--enable-grpc-gateway=false)"
    : `HTTP ${status} ${excerpt(textOf(fields?.["message"]) || textOf(fields?.["error"]))}`.trim();

function statusOf(fields: Fields): MemberStatus | undefined {
  const header = fields["header"];
  if (!isFields(header)) return undefined;
  return {
    clusterId: idOf(header["cluster_id"]),
    memberId: idOf(header["member_id"]),
    leader: idOf(fields["leader"]),
    raftTerm: idOf(fields["raftTerm"]),
    appliedIndex: Number(idOf(fields["raftAppliedIndex"])),
    version: versionOf(fields["version"]) ?? "",
    isLearner: fields["isLearner"] === true,
    errors: listOf(fields["errors"]).slice(0, 20).map(textOf),
  };
}

/** Decimal digits; etcd leaves out 0. */
const idOf = (value: unknown): string => /^\d{1,20}$/.exec(textOf(value))?.[0] ?? "0";

const memberOf = (fields: Fields): ListedMember => ({
  id: idOf(fields["ID"]),
  name: excerpt(textOf(fields["name"]), 60),
  isLearner: fields["isLearner"] === true,
  clientUrls: listOf(fields["clientURLs"]).map((url) => excerpt(textOf(url), 200)),
});

/** etcd reports its quota from 3.6 on. */
export function spaceFinding(fields: Fields): Finding[] {
  const [size, quota] = [Number(idOf(fields["dbSize"])), Number(idOf(fields["dbSizeQuota"]))];
  const shown = `${mib(size)}${quota > 0 ? ` of ${mib(quota)}` : "; this release does not report its quota"}`;
  if (quota > 0 && size > FULL * quota)
    return [
      warn("space", shown, "compact, defragment, or raise --quota-backend-bytes: a full etcd rejects writes"),
    ];
  return [ok("space", shown, { dbBytes: size, ...(quota > 0 && { quotaBytes: quota }) })];
}

const mib = (bytes: number): string => `${(bytes / 1_048_576).toFixed(1)} MiB`;
