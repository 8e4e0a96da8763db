import { connect, EtcdRefusedError, inspect } from "../../index.js";
import { CERTIFICATE_CURE, CLIENT_CERTIFICATE } from "./certificate.js";
import { NoAnswerError, type Exam, type Step } from "./exam.js";
import { excerpt, fail, ok, warn, type Finding } from "./finding.js";
import { ask, fieldsOf, type HttpAnswer } from "./http.js";
import { codeOf, shakeHands } from "./sockets.js";
import { versionFinding, versionOf } from "./versions.js";

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
    return fail("tls", "the server wants a client certificate that it trusts", CERTIFICATE_CURE);
  if (!exam.secure && (await speaksTls(exam)))
    return fail(
      "tls",
      "this port speaks TLS, no plain HTTP",
      "use https:// in --endpoints, and give --cacert if its authority is none of the public ones",
    );
  if (await speaksGrpc(exam)) return ok("server", "speaks etcd's gRPC, and has no page /version");
  if (answer instanceof NoAnswerError)
    return fail(
      "server",
      `accepts connections and answers nothing within ${answer.afterMs} ms`,
      "see whether the process there is stopped, overloaded, or etcd at all",
    );
  return isAnswer(answer) ? webServer(answer) : noHttp(answer);
}

const webServer = ({ status, type, text }: HttpAnswer): Finding =>
  fail(
    "server",
    `a web server that is no etcd: HTTP ${status}, ${excerpt(type, 40) || "no type"}, "${excerpt(text)}"`,
    "correct the host and the port in --endpoints: etcd's clients use port 2379 by default",
  );

const noHttp = (error: unknown): Finding =>
  fail(
    "server",
    `no etcd: it answers neither HTTP nor gRPC (${excerpt(codeOf(error) ?? "", 120)})`,
    "correct the host and the port in --endpoints: etcd's clients use port 2379 by default",
  );

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
    return error instanceof EtcdRefusedError && error.why !== "member" && error.why !== "tls";
  } finally {
    await cluster.close({ drainMs: 0 });
  }
}
