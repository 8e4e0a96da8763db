import { connect as connectTcp, isIP } from "node:net";
import { connect as connectTls, type ConnectionOptions, type TLSSocket } from "node:tls";
import type { X509Certificate } from "node:crypto";
import { limited, type Exam } from "./exam.js";

const bytes = (pem: string | Uint8Array | undefined): Buffer | undefined =>
  pem === undefined ? undefined : Buffer.from(pem);

/** The options of TLS, of this connection and of requests. */
export const tlsOptions = ({ credentials }: Exam): ConnectionOptions => ({
  ...(credentials?.serverName !== undefined && { servername: credentials.serverName }),
  ...(credentials && { ca: bytes(credentials.rootCertificate) }),
  ...(credentials?.privateKey && { key: bytes(credentials.privateKey) }),
  ...(credentials?.certChain && { cert: bytes(credentials.certChain) }),
});

/** Opens a TCP connection and closes it. Resolves with the milliseconds that it took. */
export function openTcp(exam: Exam): Promise<number> {
  const start = exam.clock.monotonic();
  return limited(exam, (resolve, reject) => {
    const socket = connectTcp({ host: exam.hostname, port: exam.port });
    socket.on("error", reject);
    socket.on("connect", () => resolve(exam.clock.monotonic() - start));
    return () => socket.destroy();
  });
}

/** A TLS connection that was opened and closed. */
export interface Handshake {
  readonly protocol: string;
  readonly certificate: X509Certificate | undefined;
  /** OpenSSL's code, such as CERT_HAS_EXPIRED; it does not cover the name. */
  readonly problem: string | undefined;
}

/** Accepts any certificate, and sends nothing. */
export function shakeHands(exam: Exam): Promise<Handshake> {
  return limited(exam, (resolve, reject) => {
    const { hostname: host, port } = exam;
    const options = { ...tlsOptions(exam), host, port, rejectUnauthorized: false };
    const socket = connectTls({ ...options, ALPNProtocols: ["h2", "http/1.1"] });
    socket.on("error", reject);
    socket.on("end", () => reject(new Error("the connection was closed")));
    socket.on("secureConnect", () => resolve(shaken(socket)));
    return () => socket.destroy();
  });
}

/** Node.js gives an Error with a code here; its types know an older form. */
const shaken = (socket: TLSSocket): Handshake => ({
  protocol: socket.getProtocol() ?? "TLS",
  certificate: socket.getPeerX509Certificate(),
  problem: codeOf(socket.authorizationError),
});

/** The code of an error, and otherwise its text. */
export function codeOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return typeof error === "string" ? error : undefined;
  const { code } = error as NodeJS.ErrnoException;
  return code ?? error.message;
}

/** Whether the certificate is one for the host of this endpoint. */
export function hasName({ credentials, hostname }: Exam, certificate: X509Certificate): boolean {
  const name = credentials?.serverName ?? hostname;
  const found = isIP(name) === 0 ? certificate.checkHost(name) : certificate.checkIP(name);
  return found !== undefined;
}
