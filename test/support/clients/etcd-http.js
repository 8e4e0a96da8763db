// etcd's JSON gateway and metrics page, as tests and the readiness check read them.
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";

/**
 * Paths of PEM files.
 * @typedef {object} ClientTls
 * @property {string} cert the server's certificate; with `clientCertAuth` it needs the extended key usage "clientAuth"
 *   besides "serverAuth", as etcd's JSON gateway shows it to its own server
 * @property {string} key
 * @property {string} ca
 * @property {boolean} [clientCertAuth] refuse clients without a certificate of that authority
 * @property {string} [clientCert] what etcdctl and our own requests show; default: the server's, if one must be shown
 * @property {string} [clientKey]
 */

/**
 * @param {ClientTls} tls
 * @returns {{ cert: string, key: string } | undefined} the files to show to the server
 */
export function shownTo(tls) {
  if (tls.clientCert && tls.clientKey) return { cert: tls.clientCert, key: tls.clientKey };
  return tls.clientCertAuth ? { cert: tls.cert, key: tls.key } : undefined;
}

/**
 * One request on its own connection: a pooled one may belong to a member that has been killed since.
 * @param {string} url
 * @param {{ body?: unknown, timeoutMs?: number, tls?: ClientTls | undefined, token?: string | undefined }} [options]
 *   `token`: of a user of etcd
 * @returns {Promise<{ status: number, text: string }>}
 */
export function request(url, { body, timeoutMs = 2_000, tls, token } = {}) {
  const secret = tls && {
    cert: readFileSync(tls.cert),
    key: readFileSync(tls.key),
    ca: readFileSync(tls.ca),
  };
  const method = body === undefined ? "GET" : "POST";
  const send = url.startsWith("https:") ? https.request : http.request;
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(timeoutMs);
    const headers = token === undefined ? {} : { authorization: token };
    const sent = send(url, { method, headers, signal, agent: false, ...secret }, (response) => {
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
 * POST to a member's JSON gateway (keys and values in base64).
 * @param {{ name: string, endpoint: string }} member
 * @param {string} path such as "/v3/kv/range"
 * @param {unknown} body
 * @param {{ timeoutMs?: number, tls?: ClientTls | undefined, token?: string | undefined }} [options]
 * @returns {Promise<any>} the answer; rejects with etcd's own message
 */
export async function askGateway({ name, endpoint }, path, body, options) {
  const { status, text } = await request(`${endpoint}${path}`, { body, ...options });
  if (status !== 200) throw new Error(`${name} ${path}: ${status} ${text}`);
  return JSON.parse(text);
}

/**
 * The member's own view.
 * @param {(path: string, body: object) => Promise<any>} gateway
 * @returns {Promise<{ leader: boolean, revision: bigint, raftTerm: bigint }>}
 */
export async function statusBy(gateway) {
  const { header, leader } = await gateway("/v3/maintenance/status", {});
  return {
    leader: header.member_id === leader,
    revision: BigInt(header.revision ?? 0),
    raftTerm: BigInt(header.raft_term ?? 0),
  };
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
