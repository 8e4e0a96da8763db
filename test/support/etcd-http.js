// etcd's JSON gateway and metrics page, as tests and the readiness check read them.
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";

/**
 * @typedef {object} ClientTls
 * @property {string} cert path of the server's certificate; our own requests show it too
 * @property {string} key path of its key
 * @property {string} ca path of the certificate authority
 * @property {boolean} [clientCertAuth] refuse clients without a certificate of that authority
 */

/**
 * One request on a connection of its own: a pooled one may belong to a member that was killed since.
 * @param {string} url
 * @param {{ body?: unknown, timeoutMs?: number, tls?: ClientTls | undefined }} [options]
 * @returns {Promise<{ status: number, text: string }>}
 */
export function request(url, { body, timeoutMs = 2_000, tls } = {}) {
  const secret = tls && {
    cert: readFileSync(tls.cert),
    key: readFileSync(tls.key),
    ca: readFileSync(tls.ca),
  };
  const method = body === undefined ? "GET" : "POST";
  const send = url.startsWith("https:") ? https.request : http.request;
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(timeoutMs);
    const sent = send(url, { method, signal, agent: false, ...secret }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (/** @type {string} */ chunk) => (text += chunk));
      response.on("end", () => resolve({ status: response.statusCode ?? 0, text }));
      response.on("error", reject);
    });
    sent.on("error", reject);
    sent.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

/**
 * Prometheus' text format as numbers; the key is the series with its labels, as printed.
 * @param {string} text
 * @returns {Map<string, number>}
 */
export function parseMetrics(text) {
  /** @type {Map<string, number>} */
  const series = new Map();
  for (const line of text.split("\n")) {
    const space = line.lastIndexOf(" ");
    if (space > 0 && !line.startsWith("#")) series.set(line.slice(0, space), Number(line.slice(space + 1)));
  }
  return series;
}
