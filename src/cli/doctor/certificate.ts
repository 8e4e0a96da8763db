import { X509Certificate } from "node:crypto";
import type { Exam, Step } from "./exam.js";
import { excerpt, fail, ok, warn, type Finding } from "./finding.js";
import { ask } from "./http.js";
import { codeOf, hasName, shakeHands, type Handshake } from "./sockets.js";

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
      ? CERTIFICATE_CURE
      : "correct the port in --endpoints, or see the log of that server",
  );
}

/** The alerts of a server that wants another certificate of its client. */
export const CLIENT_CERTIFICATE =
  /alert[ _](bad[ _]certificate|certificate[ _]required|unknown[ _]ca|handshake[ _]failure|certificate[ _]expired)/i;
export const CERTIFICATE_CURE =
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
