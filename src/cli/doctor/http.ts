import http from "node:http";
import https from "node:https";
import { limited, type EndpointReport, type Exam } from "./exam.js";
import { tlsOptions } from "./sockets.js";

/** Beyond this an answer is cut: none of etcd's answers is that long. */
const MAX_BYTES = 256 * 1024;

export interface HttpAnswer {
  readonly status: number;
  readonly type: string;
  /** Of the server's clock, in milliseconds; NaN without one. */
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
      ...{ host: exam.hostname, port: exam.port, path, agent: false },
      method: body === undefined ? "GET" : "POST",
      headers: token === undefined ? {} : { authorization: token },
    };
    const sent = plain ? http.request(options) : https.request({ ...options, ...tlsOptions(exam) });
    sent.on("error", reject);
    sent.on("response", (response) => {
      const askedAt = (start + exam.clock.date().getTime()) / 2;
      readAll(response, (text) => resolve({ ...headOf(response), askedAt, text }), reject);
    });
    sent.end(body === undefined ? undefined : JSON.stringify(body));
    return () => sent.destroy();
  });
}

const headOf = ({ statusCode = 0, headers }: http.IncomingMessage) => ({
  status: statusCode,
  type: headers["content-type"] ?? "",
  date: Date.parse(headers.date ?? ""),
});

function readAll(
  response: http.IncomingMessage,
  done: (text: string) => void,
  failed: (error: unknown) => void,
): void {
  let text = "";
  response.setEncoding("utf8");
  response.on("data", (chunk: string) => {
    text += chunk;
    if (text.length > MAX_BYTES) done(text.slice(0, MAX_BYTES));
  });
  response.on("error", failed);
  response.on("end", () => done(text));
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
