import { X509Certificate } from "node:crypto";
import { connect, EtcdRefusedError, inspect } from "../../../index.js";
import { type Exam, excerpt, fail, type Finding, NoAnswerError, ok, type Step, warn } from "./exam.js";
import { ask, codeOf, fieldsOf, type Handshake, hasName, type HttpAnswer, shakeHands } from "./http.js";

/** docs/operations.md has the reasons. */
const ADVISED: readonly (readonly [major: number, minor: number, patch: number])[] = [
  [3, 5, 33],
  [3, 6, 14],
  [3, 7, 1],
];
const ADVICE =
  "run etcd 3.5.33, 3.6.14, 3.7.1 or later: docs/operations.md says what the earlier ones do wrong";

/** A version of etcd, or undefined: web servers have versions, too. */
export const versionOf = (value: unknown): string | undefined =>
  typeof value === "string" && /^\d{1,4}\.\d{1,4}\.\d{1,4}([-+.\w]{0,40})$/.test(value) ? value : undefined;

/** The check of one member's version. */
export function versionFinding(version: string): Finding {
  const [major = 0, minor = 0, patch = 0] = version.split(/[^\d]/).map(Number);
  const [oldest] = ADVISED;
  const isBefore = oldest !== undefined && (major < oldest[0] || (major === oldest[0] && minor < oldest[1]));
  if (isBefore) return warn("version", `etcd ${version}, of a series at its end of life`, ADVICE);
  const series = ADVISED.find((advised) => advised[0] === major && advised[1] === minor);
  if (series && patch < series[2]) return warn("version", `etcd ${version}`, ADVICE);
  return ok("version", `etcd ${version}`, { version });
}

/** Those who renew certificates by a program do it earlier. */
const SOON_DAYS = 14;
const DAY_MS = 86_400_000;

/** The TLS handshake and the member's certificate. Nothing is sent to a server whose certificate is wrong. */
export const tls: Step = async ({ exam, findings }) => {
  if (!exam.secure) return true;
  try {
    const handshake = await shakeHands(exam);
    const found = certificateFindings(exam, handshake);
    findings.push(...found);
    return found.every(({ mark }) => mark !== "fail");
  } catch (error) {
    exam.signal.throwIfAborted();
    findings.push(await noTls(exam, error));
    return false;
  }
};

async function noTls(exam: Exam, error: unknown): Promise<Finding> {
  const plain = await ask(exam, { path: "/version", plain: true }).catch(() => undefined);
  exam.signal.throwIfAborted();
  if (plain && !/HTTP request to an HTTPS server/i.test(plain.text))
    return fail(
      "tls",
      "this port speaks plain HTTP, no TLS",
      "use http:// in --endpoints without --cacert, --cert and --key, or give etcd --cert-file and --key-file",
    );
  return fail(
    "tls",
    `no TLS handshake: ${excerpt((error as Error).message || (codeOf(error) ?? ""), 120)}`,
    CLIENT_CERTIFICATE.test(`${String(error)} ${codeOf(error)}`)
      ? CERTIFICATE_HINT
      : "correct the port in --endpoints, or see the log of that server",
  );
}

/** The alerts of a server that wants another certificate of its client. */
const CLIENT_CERTIFICATE =
  /alert[ _](bad[ _]certificate|certificate[ _]required|unknown[ _]ca|handshake[ _]failure|certificate[ _]expired)/i;
const CERTIFICATE_HINT =
  "give --cert and --key of an authority that etcd trusts (its --trusted-ca-file), and see that they have not expired";

function certificateFindings(exam: Exam, { certificate, problem, protocol }: Handshake): Finding[] {
  if (!certificate)
    return [fail("certificate", "the server has none", "give etcd --cert-file and --key-file")];
  const dates = lifetime("certificate", certificate, exam.clock.date().getTime());
  const outdated = dates.filter(({ mark }) => mark === "fail");
  // OpenSSL reports the dates of this certificate and of the authorities above it alike.
  const dated = outdated.length > 0 && /EXPIRED|NOT_YET_VALID/.test(problem ?? "");
  const wrong = [
    ...outdated,
    ...(problem === WRONG_NAME || !hasName(exam, certificate) ? [misnamed(exam, certificate)] : []),
    ...(problem === undefined || problem === WRONG_NAME || dated ? [] : [untrusted(problem)]),
  ];
  return wrong.length > 0 ? wrong : [ok("tls", protocol), ...dates];
}

/** The days that a certificate is still valid. */
export function lifetime(check: string, certificate: X509Certificate, now: number): Finding[] {
  const days = Math.floor((Date.parse(certificate.validTo) - now) / DAY_MS);
  const until = new Date(certificate.validTo).toISOString().slice(0, 10);
  if (Date.parse(certificate.validTo) < now)
    return [fail(check, `expired on ${until}`, "renew it, and restart or reload what uses it")];
  if (Date.parse(certificate.validFrom) > now)
    return [
      fail(
        check,
        `valid only from ${excerpt(certificate.validFrom)} on`,
        "correct the clock of this machine, or wait",
      ),
    ];
  if (days < SOON_DAYS) return [warn(check, `expires in ${days} days, on ${until}`, "renew it")];
  return [ok(check, `valid for ${days} more days, until ${until}`, { daysLeft: days })];
}

/** Node.js compares the name after OpenSSL has found nothing else. */
const WRONG_NAME = "ERR_TLS_CERT_ALTNAME_INVALID";

const misnamed = ({ credentials, hostname }: Exam, { subjectAltName, subject }: X509Certificate): Finding =>
  fail(
    "certificate",
    `not for the name ${excerpt(credentials?.serverName ?? hostname)}; it has ${excerpt(subjectAltName ?? subject, 160)}`,
    "use one of its names in --endpoints, give one as --server-name, or issue a certificate with this name",
  );

const untrusted = (problem: string): Finding =>
  fail(
    "certificate",
    `not trusted (${excerpt(problem)})`,
    "give the certificate of the authority that signed it as --cacert, one that has not expired",
  );

/** The certificate that this client shows. */
export function ownCertificate(exam: Pick<Exam, "credentials" | "clock">): Finding[] {
  const chain = exam.credentials?.certChain;
  if (!chain) return [];
  return lifetime("client certificate", new X509Certificate(chain), exam.clock.date().getTime());
}

/** Beyond this, logs and certificates suffer. Locks do not: leases count on other clocks. */
const SKEW_MS = 5000;

/** What answers there. */
export const identify: Step = async (report) => {
  const { exam, findings } = report;
  const answer = await ask(exam, { path: "/version" }).catch((error: unknown) => error);
  exam.signal.throwIfAborted();
  const version = isAnswer(answer) ? versionOf(fieldsOf(answer.text)?.["etcdserver"]) : undefined;
  if (version !== undefined && isAnswer(answer)) {
    report.version = version;
    findings.push(versionFinding(version), ...clockFinding(answer));
    return true;
  }
  const finding = await otherServer(exam, answer);
  findings.push(finding);
  return finding.mark !== "fail";
};

const isAnswer = (value: unknown): value is HttpAnswer =>
  typeof value === "object" && !(value instanceof Error);

/** The Date of HTTP has whole seconds: half a second is its middle. */
export function clockFinding({ date, askedAt }: Pick<HttpAnswer, "date" | "askedAt">): Finding[] {
  if (Number.isNaN(date)) return [];
  const skew = Math.round(date + 500 - askedAt);
  const seconds = (Math.abs(skew) / 1000).toFixed(1);
  if (Math.abs(skew) < SKEW_MS)
    return [ok("clock", "the wall clocks agree within a second or so", { skewMs: skew })];
  return [
    warn(
      "clock",
      `the wall clock there is ${seconds} s ${skew > 0 ? "ahead of" : "behind"} the one here`,
      "synchronize the clocks by NTP: certificates and logs depend on them (locks do not)",
    ),
  ];
}

/** `answer`: of HTTP, or the error in place of one. */
async function otherServer(exam: Exam, answer: unknown): Promise<Finding> {
  if (CLIENT_CERTIFICATE.test(`${String(answer)} ${codeOf(answer)}`))
    return fail("tls", "the server wants a client certificate that it trusts", CERTIFICATE_HINT);
  if (!exam.secure && (await speaksTls(exam)))
    return fail(
      "tls",
      "this port speaks TLS, not plain HTTP",
      "use https:// in --endpoints, and give --cacert unless a public authority has signed its certificate",
    );
  if (await speaksGrpc(exam)) return ok("server", "speaks etcd's gRPC, but has no page /version");
  if (answer instanceof NoAnswerError)
    return fail(
      "server",
      `accepts connections, but does not answer within ${answer.afterMs} ms`,
      "check that the process there is etcd, and neither stopped nor overloaded",
    );
  const what = isAnswer(answer)
    ? `a web server, not etcd: HTTP ${answer.status}, ${excerpt(answer.type, 40) || "no type"}, "${excerpt(answer.text)}"`
    : `not etcd: it answers neither HTTP nor gRPC (${excerpt(codeOf(answer) ?? "", 120)})`;
  const hint = "correct the host and the port in --endpoints: etcd's clients use port 2379 by default";
  return fail("server", what, hint);
}

/** A server that ends the handshake with an alert speaks TLS, too. */
const speaksTls = (exam: Exam): Promise<boolean> =>
  shakeHands(exam).then(
    () => true,
    (error: unknown) => {
      exam.signal.throwIfAborted();
      return /alert/i.test(`${String(error)} ${codeOf(error)}`);
    },
  );

/** Without the password: nobody knows yet who would get it. etcd rejects such a read at most for a lack of rights. */
async function speaksGrpc({ host, credentials, timeoutMs, signal, prefix }: Exam): Promise<boolean> {
  const cluster = connect({ hosts: host, ...(credentials && { credentials }), requestTimeoutMs: timeoutMs });
  try {
    await inspect(cluster, `${prefix}0`, { timeoutMs, signal });
    return true;
  } catch (error) {
    signal.throwIfAborted();
    return error instanceof EtcdRefusedError && error.reason !== "member" && error.reason !== "tls";
  } finally {
    await cluster.close({ drainMs: 0 });
  }
}
