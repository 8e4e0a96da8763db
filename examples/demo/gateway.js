// @ts-check
// The part of etcd's JSON gateway that the demo's observer needs: it shares no code with the library that it judges.
import { setTimeout as delay } from "node:timers/promises";

const base64 = (/** @type {string} */ text) => Buffer.from(text).toString("base64");
const plain = (/** @type {string | undefined} */ text) => Buffer.from(text ?? "", "base64").toString();

/** @param {string} prefix */
function rangeOf(prefix) {
  const end = Buffer.from(prefix);
  end[end.length - 1] = (end[end.length - 1] ?? 0) + 1;
  return { key: base64(prefix), range_end: end.toString("base64") };
}

/**
 * One request, tried on one member after the other until one answers or `forMs` has passed.
 * @param {readonly string[]} endpoints
 * @param {string} path
 * @param {{ body: unknown, forMs?: number }} request
 * @returns {Promise<any>}
 */
async function call(endpoints, path, { body, forMs = 10_000 }) {
  const until = performance.now() + forMs;
  for (let turn = 0; ; turn++) {
    const url = `${endpoints[turn % endpoints.length]}/v3/${path}`;
    try {
      return await post(url, body, AbortSignal.timeout(2000));
    } catch (error) {
      if (performance.now() > until) throw new Error(`${url}: ${reasonOf(error)}`, { cause: error });
      await delay(100);
    }
  }
}

/**
 * @param {string} url
 * @param {unknown} body
 * @param {AbortSignal} signal
 */
async function post(url, body, signal) {
  const answer = await fetch(url, { method: "POST", body: JSON.stringify(body), signal });
  if (!answer.ok) throw new Error(`${answer.status} ${(await answer.text()).trim().slice(0, 200)}`);
  return answer.json();
}

/** @param {unknown} error */
function reasonOf(error) {
  const { message, cause } = /** @type {Error} */ (error);
  return cause instanceof Error ? `${message}: ${cause.message}` : message;
}

/**
 * @param {readonly string[]} endpoints
 * @param {{ forMs?: number }} [options]
 * @returns {Promise<number>} the store's revision, from a quorum read
 */
export async function revisionOf(endpoints, options = {}) {
  const body = { key: base64("\0"), count_only: true };
  const { header } = await call(endpoints, "kv/range", { body, ...options });
  return Number(header.revision);
}

/**
 * @param {readonly string[]} endpoints
 * @param {string} key
 * @param {string} value
 */
export async function put(endpoints, key, value) {
  await call(endpoints, "kv/put", { body: { key: base64(key), value: base64(value) } });
}

/**
 * @param {readonly string[]} endpoints
 * @param {string} prefix
 */
export async function deletePrefix(endpoints, prefix) {
  await call(endpoints, "kv/deleterange", { body: rangeOf(prefix) });
}

/**
 * Every change below `prefix` after `revision`, in etcd's order, each once, even when members die. `signal` ends it.
 * @param {readonly string[]} endpoints
 * @param {{ prefix: string, revision: number, signal: AbortSignal }} options
 * @returns {AsyncGenerator<Omit<import("./history.js").Change, "t">, void, void>}
 */
export async function* watch(endpoints, { prefix, revision, signal }) {
  let seen = revision;
  for (let turn = 0; !signal.aborted; turn++) {
    const create = { ...rangeOf(prefix), start_revision: String(seen + 1) };
    const url = `${endpoints[turn % endpoints.length]}/v3/watch`;
    try {
      for await (const { result } of streamed(url, { create_request: create }, signal)) {
        if (result?.canceled) throw new CompactedError(`etcd ended the watch: ${JSON.stringify(result)}`);
        for (const event of result?.events ?? []) yield changeOf(event);
        if (result?.events) seen = Math.max(seen, Number(result.header.revision));
      }
    } catch (error) {
      if (error instanceof CompactedError) throw error;
    }
    if (!signal.aborted) await delay(50);
  }
}

/** Part of this run's history is lost: no verdict is possible. */
class CompactedError extends Error {}

/** @param {any} event */
function changeOf({ type = "PUT", kv }) {
  return {
    type,
    key: plain(kv.key),
    revision: Number(kv.mod_revision),
    create: Number(kv.create_revision ?? 0),
    value: plain(kv.value),
  };
}

/**
 * @param {string} url
 * @param {unknown} body
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<any, void, void>} one item per line of the answer
 */
async function* streamed(url, body, signal) {
  const answer = await fetch(url, { method: "POST", body: JSON.stringify(body), signal });
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of /** @type {AsyncIterable<Uint8Array>} */ (answer.body)) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line !== "") yield JSON.parse(line);
  }
}
