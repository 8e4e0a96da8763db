// The command that examines each endpoint and the cluster, and says what to do for each finding.
// - Each endpoint is examined by itself, with a cluster of one host: the library would fail over to another one.
// - Every wait has a limit, so the program ends whatever a server does. An answer is cut at 256 KiB.
// - A password goes only to a server that has answered as etcd does, with a certificate that is valid if there is one. No
//   output contains the password or a token.
// - Texts of servers are short excerpts without control characters, in JSON too.
// - The lock has a random name below the prefix. It is released, and its lease revoked, however the command ends.
import { systemClock } from "../../../base/util/clock.js";
import { printable } from "../../../base/util/printable.js";
import { type Call, command, parseDuration, parseTtl } from "../command.js";
import { columnsOf, EXIT, json, type Output, usageError, wrap } from "../io.js";
import type { FindingJson, SummaryJson } from "../json-types.js";
import { clusterFindings } from "./cluster.js";
import { type EndpointReport, type Exam, examOf, type Finding, type Mark, type Step } from "./exam.js";
import { identify, ownCertificate, tls } from "./identify.js";
import { namesFinding } from "./names.js";
import { reach, refresh, status } from "./status.js";
import { trialOf } from "./trial.js";

/** The findings about one endpoint, or about the cluster. */
interface Section {
  /** undefined: the cluster. */
  readonly endpoint: string | undefined;
  readonly findings: readonly Finding[];
}

/** Removes texts that no output may contain. */
type Redact = (text: string) => string;

export const redacting =
  (secrets: ReadonlySet<string>): Redact =>
  (text) =>
    [...secrets].reduce((all, secret) => all.replaceAll(secret, "***"), text);

const countOf = (sections: readonly Section[], mark: Mark): number =>
  sections.flatMap(({ findings }) => findings).filter((finding) => finding.mark === mark).length;

const placeOf = ({ endpoint }: Section): string => endpoint ?? "the cluster";

/** The verdict, then what is wrong and what to do, failures first, and then all checks. */
export function textOf(sections: readonly Section[], columns: number, redact: Redact): string {
  const line = (text: string, indent: string): string =>
    wrap(printable(redact(text), Infinity), columns, indent).join("\n");
  const wrong = (["fail", "warn"] as const).flatMap((mark) =>
    sections.flatMap((section) =>
      section.findings.filter((finding) => finding.mark === mark).map((finding) => ({ section, finding })),
    ),
  );
  const lines = [
    line(verdictOf(sections), "  "),
    ...wrong.flatMap(({ section, finding: { mark, check, detail, hint } }) => [
      line(`  ${mark}  ${placeOf(section)}: ${check}: ${detail}`, WRAPPED),
      ...(hint === undefined ? [] : [line(`${WRAPPED}to do: ${hint}`, WRAPPED)]),
    ]),
    "",
    ...sections.flatMap((section) => [
      line(placeOf(section), "  "),
      ...section.findings.map(({ mark, check, detail }) =>
        line(`  ${mark.padEnd(4)}  ${check}: ${detail}`, WRAPPED),
      ),
    ]),
  ];
  return lines.map((each) => `${each}\n`).join("");
}

/** Below the name of a check. */
const WRAPPED = " ".repeat(8);

function verdictOf(sections: readonly Section[]): string {
  const [failed, warned, skipped] = (["fail", "warn", "skip"] as const).map((mark) =>
    countOf(sections, mark),
  );
  const counts = `${failed} failed, ${warned} ${warned === 1 ? "warning" : "warnings"}, ${skipped} not checked`;
  if (failed) return `something is wrong: ${counts}`;
  return `${warned ? "works, with warnings" : "all is well"}: ${counts}`;
}

/** One object for each finding, and one for all. */
function writeJson(stdout: Output, sections: readonly Section[], redact: Redact): void {
  for (const { endpoint, findings } of sections)
    for (const { check, mark, detail, hint, measured } of findings)
      stdout.write(
        json({
          endpoint: endpoint ?? null,
          check,
          mark,
          message: redact(detail),
          ...(hint !== undefined && { hint: redact(hint) }),
          ...(measured && { measured }),
        } satisfies FindingJson),
      );
  const summary = {
    ok: countOf(sections, "ok"),
    warn: countOf(sections, "warn"),
    fail: countOf(sections, "fail"),
  };
  stdout.write(json({ summary: { ...summary, skip: countOf(sections, "skip") } } satisfies SummaryJson));
}

const DEFAULT_PREFIX = "leasehold-doctor/";
/** At so many endpoints at a time, so that the latency of one does not come from the work for the others. */
const AT_A_TIME = 5;

const FLAGS = {
  ttl: {
    value: "DURATION",
    text: "TTL of the session that doctor opens, in whole seconds, 2s to 86400s; default 3s. Raise it on a slow link, as each call may take a quarter",
  },
  timeout: { value: "DURATION", text: "limit of each request, 100ms to 60s; default 2s" },
} as const;

export const doctor = command({
  name: "doctor",
  args: "[PREFIX]",
  positionals: [0, 1],
  endsWithOutput: true,
  summary: "examine each endpoint and the cluster, and say what to do",
  help: [
    "Examines every endpoint by itself, without fail-over, until a failure makes further checks pointless: the network, TLS and certificates, what answers there, its version, the user's rights, the " +
      "latency of reads and locks, and the renewals of a session. Then the cluster: leader, majority, alarms, lag, nested names.",
    `It takes a lock with a random name that starts with PREFIX (default ${DEFAULT_PREFIX}), and removes it, and its session, at the end, also on SIGINT and SIGTERM.`,
    "Checks of the way to an endpoint. reach: an address (of several, one) and an open TCP port. tls, for https:// only: the handshake, and that " +
      "the server accepts this client's certificate. certificate: authority, name and dates; a warning in its last 14 days.",
    "Checks of the server. server: fails for what is no member for clients: a web server, the port for peers, etcd grpc-proxy, a server that " +
      "never answers. version: whether it is advised. clock: less than 5 s from the one here. space: a warning at 80 % of the quota, which etcd " +
      "reports from 3.6 on; a failure when etcd rejects writes. learner: fails for one. status: etcd's HTTP gateway does not answer, so space, " +
      "learner and the cluster are not checked.",
    "Checks of the user and the service. login: user and password. rights: to read, and to write and delete below PREFIX. read: the median of " +
      "five linearizable reads; a warning from 100 ms on. answer: fails if reads or a lock take too long, as without a leader. ttl: as long in " +
      "etcd as leasehold relies on. renewal and session: two renewals over two thirds of --ttl, without a loss. lock: the time that it and its " +
      "release take.",
    "Checks of the cluster. endpoints: how many work. client certificate: the dates of --cert. cluster id: fails for members of two clusters. " +
      "leader: whether all members name one. members: how many voting members answer, how many may still fail, and which ones --endpoints does not name. alarms: NOSPACE, " +
      "CORRUPT. versions: a warning if members differ. lag: a warning beyond 1,000 entries. names: a warning if a lock in use is below another " +
      "one, among the first 20,000 keys that start with PREFIX, or of all.",
    "Exit code 0: nothing failed, though there may be warnings; 1: something failed; 69: no endpoint works.",
  ],
  flags: FLAGS,
  run: examine,
});

async function examine(call: Call<typeof FLAGS>): Promise<number> {
  const exams = examsOf(call);
  const trials = exams.map((exam) => ({ exam, trial: trialOf(exam) }));
  try {
    const reports: EndpointReport[] = [];
    for (let n = 0; n < trials.length; n += AT_A_TIME) {
      const some = trials.slice(n, n + AT_A_TIME);
      reports.push(...(await Promise.all(some.map(({ exam, trial }) => endpoint(exam, trial.step)))));
    }
    await Promise.all(reports.map(refresh));
    const works = trials[reports.findIndex((each) => each.works)];
    const names = works && (await namesFinding(works.exam, works.trial.cluster, call.positionals[0] ?? ""));
    return report(call, reports, names ? [names] : []);
  } finally {
    await Promise.all(trials.map(({ trial }) => trial.close()));
  }
}

function examsOf({
  flags,
  positionals: [prefix = DEFAULT_PREFIX],
  connection,
  signal,
}: Call<typeof FLAGS>): Exam[] {
  const hosts = typeof connection.hosts === "string" ? [connection.hosts] : connection.hosts;
  const timeoutMs = parseDuration("timeout", flags.timeout ?? "2s");
  if (timeoutMs < 100 || timeoutMs > 60_000)
    throw usageError(`--timeout must be 100ms to 60s, got ${flags.timeout}`);
  const shared = {
    prefix,
    ttlSeconds: parseTtl(flags.ttl ?? "3s"),
    timeoutMs,
    clock: systemClock,
    signal,
  };
  const { auth: user, credentials: given } = connection;
  const auth = typeof user === "function" ? user() : user;
  const credentials = typeof given === "function" ? given() : given;
  const secrets = new Set(auth ? [auth.password] : []);
  const odd = hosts.find((host) => !URL.canParse(host));
  if (odd !== undefined) throw usageError(`--endpoints must list HOST:PORT, got ${odd}`);
  return [...new Set(hosts)].map((host) => examOf(host, { ...shared, credentials, auth, secrets }));
}

async function endpoint(exam: Exam, trial: Step): Promise<EndpointReport> {
  const report: EndpointReport = { exam, findings: [], works: false };
  for (const step of [reach, tls, identify, status, trial]) if (!(await step(report))) break;
  return report;
}

/** `names`: about the names in use. */
function report(
  { json, io: { stdout } }: Call<typeof FLAGS>,
  reports: readonly EndpointReport[],
  names: readonly Finding[],
): number {
  const [first] = reports;
  const sections: Section[] = [
    ...reports.map(({ exam, findings }) => ({ endpoint: exam.host, findings })),
    {
      endpoint: undefined,
      findings: [...(first ? ownCertificate(first.exam) : []), ...clusterFindings(reports), ...names],
    },
  ];
  const redact = redacting(first?.exam.secrets ?? new Set());
  if (json) writeJson(stdout, sections, redact);
  else stdout.write(textOf(sections, columnsOf(stdout), redact));
  if (!reports.some(({ works }) => works)) return EXIT.unavailable;
  return countOf(sections, "fail") > 0 ? EXIT.nothing : EXIT.ok;
}
