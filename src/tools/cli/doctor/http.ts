import type { X509Certificate } from "node:crypto";
import http from "node:http";
import https from "node:https";
import { connect as connectTcp, isIP } from "node:net";
import { type ConnectionOptions, connect as connectTls } from "node:tls";
import { type EndpointReport, type Exam, limited } from "./exam.js";

const bytes = (pem: string | Uint8Array | undefined): Buffer | undefined =>
  pem === undefined ? undefined : Buffer.from(pem);

/** The options of TLS, of this connection and of requests. */
const tlsOptions = ({ credentials }: Exam): ConnectionOptions => ({
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
    socket.on("secureConnect", () =>
      resolve({
        protocol: socket.getProtocol() ?? "TLS",
        certificate: socket.getPeerX509Certificate(),
        // Node.js gives an Error with a code here; its types know an older form.
        problem: codeOf(socket.authorizationError),
      }),
    );
    return () => socket.destroy();
  });
}

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

/** Beyond this an answer is cut: none of etcd's answers is that long. */
const MAX_BYTES = 256 * 1024;

export interface HttpAnswer {
  readonly status: number;
  readonly type: string;
  /** The time of the server's clock, in milliseconds; NaN without one. */
  readonly date: number;
  /** This machine's wall clock in the middle of the request. */
  readonly askedAt: number;
  readonly text: string;
}

interface HttpRequest {
  readonly path: string;
  /** A POST of JSON; without it a GET. */
  readonly body?: unknown;
  readonly token?: string | undefined;
  /** Plain HTTP, whatever the endpoint says. */
  readonly plain?: boolean;
}

/** One request on a connection of its own. Resolves with whatever HTTP answer comes. */
export function ask(
  exam: Exam,
  { path, body, token, plain = !exam.secure }: HttpRequest,
): Promise<HttpAnswer> {
  const start = exam.clock.date().getTime();
  return limited(exam, (resolve, reject) => {
    const options = {
      host: exam.hostname,
      port: exam.port,
      path,
      agent: false,
      method: body === undefined ? "GET" : "POST",
      headers: token === undefined ? {} : { authorization: token },
    };
    const sent = plain ? http.request(options) : https.request({ ...options, ...tlsOptions(exam) });
    sent.on("error", reject);
    sent.on("response", (response) => {
      const askedAt = (start + exam.clock.date().getTime()) / 2;
      const { statusCode: status = 0, headers } = response;
      const head = {
        status,
        type: headers["content-type"] ?? "",
        date: Date.parse(headers.date ?? ""),
        askedAt,
      };
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => {
        text += chunk;
        if (text.length > MAX_BYTES) resolve({ ...head, text: text.slice(0, MAX_BYTES) });
      });
      response.on("error", reject);
      response.on("end", () => resolve({ ...head, text }));
    });
    sent.end(body === undefined ? undefined : JSON.stringify(body));
    return () => sent.destroy();
  });
}

/** A JSON object of unknown fields; undefined for anything else. */
export type Fields = Readonly<Record<string, unknown>>;

export function fieldsOf(text: string): Fields | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isFields(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

export const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** etcd's JSON has 64-bit numbers as strings, and leaves out zeros. */
export const textOf = (value: unknown): string =>
  typeof value === "string" || typeof value === "number" ? String(value) : "";

export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/** A call of etcd's HTTP gateway, with the token of the user if there is one. */
export const askGateway = (
  { exam, token }: EndpointReport,
  path: string,
  body: object,
): Promise<HttpAnswer> => ask(exam, { path, body, token });
