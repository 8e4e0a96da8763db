// An h2c proxy in front of one etcd member that can lose or hold back single gRPC calls.
import { EventEmitter, once } from "node:events";
import http2 from "node:http2";
import { forward, refuse } from "./grpc-forward.js";
import { answerAsStray } from "../programs/stray-leader.js";

/**
 * @typedef {import("./grpc-forward.js").Call} Call
 * @typedef {"drop-answer" | "cut-answer" | "goaway" | "calm" | "hold" | "drop-request" | "delay"} Mishap
 * @typedef {Mishap | "refuse" | "overrule" | "repeat" | "repeat-late"} Act
 *   drop-answer: etcd gets the request, the client never gets the answer;
 *   cut-answer: like drop-answer, but the client's connection breaks when etcd has answered;
 *   goaway: like cut-answer, but HTTP/2 says goodbye first: the call was processed;
 *   calm: like drop-answer, but HTTP/2 resets only the call, with ENHANCE_YOUR_CALM, when etcd has answered;
 *   hold: etcd gets the request only after `release()`, or after `ms` if given, even if the client has cancelled or
 *   disconnected in the meantime;
 *   drop-request: the request is discarded; delay: forwarded `ms` later;
 *   refuse: etcd does not get the request, and the client gets `status` instead;
 *   overrule: etcd gets the request, and the client gets `status` instead of its answer;
 *   repeat: sent twice, and the client gets the second answer, as from a proxy that retries on a broken connection;
 *   repeat-late: answered, and sent once more after `release()`, or after `ms`.
 * @typedef {{ code: number, details: string }} Status of gRPC
 * @typedef {{
 *   path: string, act: Act, when?: (request: Buffer, n: number) => boolean, times?: number, ms?: number,
 *   status?: Status,
 * }} RuleOptions `n` counts the calls on `path` since the rule was created, from 1. `times`: default no limit.
 */

/** Calls whose request never ends: they are forwarded in both directions, without rules. */
const KEEPALIVE = "/etcdserverpb.Lease/LeaseKeepAlive";
const STREAMS = new Set(["/etcdserverpb.Watch/Watch", KEEPALIVE]);
/** etcd answers, but the client does not get the answer. */
const LOST = new Set(["drop-answer", "cut-answer", "goaway", "calm", "overrule", "repeat-late"]);

/** What the proxy does to some unary calls of one path. */
export class Rule {
  #events = new EventEmitter();
  #options;
  #released;
  #release = () => {};
  #calls = 0;
  #answered = 0;
  /** The number of calls that it acted on. */
  hits = 0;

  /** @param {RuleOptions} options */
  constructor(options) {
    this.#options = options;
    this.#events.setMaxListeners(0);
    this.#released = new Promise((resolve) => (this.#release = () => resolve(undefined)));
  }

  /** @param {Call} call */
  takes(call) {
    const { path, when = () => true, times = Infinity } = this.#options;
    if (call.path !== path || this.hits >= times) return false;
    this.#calls += 1;
    return when(call.message(), this.#calls);
  }

  /** @param {Call} call */
  async apply(call) {
    this.hits += 1;
    this.#events.emit("hit");
    const { act, ms, status } = this.#options;
    if (act === "drop-request") return;
    if (act === "refuse") return refuse(call, status);
    const passed = () => new Promise((resolve) => setTimeout(resolve, ms));
    const kept = () => (ms === undefined ? this.#released : Promise.race([this.#released, passed()]));
    if (act === "repeat") await forward(call, { keepOnCancel: true, silent: true });
    if (act === "repeat-late") await forward(call, { keepOnCancel: true, silent: false });
    if (act === "hold" || act === "repeat-late") await kept();
    if (act === "delay") await passed();
    const late = act === "hold";
    const lost = LOST.has(act);
    await forward(call, { keepOnCancel: late || lost, silent: lost });
    if (act === "cut-answer") call.client.session?.destroy();
    if (act === "goaway") sayGoodbye(call.client);
    if (act === "overrule") refuse(call, status);
    if (act === "calm") call.client.close(http2.constants.NGHTTP2_ENHANCE_YOUR_CALM);
    this.#answered += 1;
    this.#events.emit("answered");
  }

  /** Forwards the requests held back to etcd, and all later ones at once. */
  release() {
    this.#release();
  }
  /** Resolves when the rule has acted on `n` calls. */
  async hit(n = 1) {
    while (this.hits < n) await once(this.#events, "hit");
  }
  /** Resolves when etcd has answered `n` of the calls that the rule acted on. */
  async answered(n = 1) {
    while (this.#answered < n) await once(this.#events, "answered");
  }
}

/**
 * Names the last stream that has come: etcd may have got each of them. A client sends those above it again, which would be
 * executed twice (RFC 9113, section 6.8).
 * @param {Call["client"]} stream
 */
function sayGoodbye({ session }) {
  if (!session || session.destroyed) return;
  session.goaway(http2.constants.NGHTTP2_NO_ERROR);
  setImmediate(() => session.destroy());
}

export class GrpcProxy {
  #events = new EventEmitter();
  #server;
  #target;
  /** @type {Map<string, number>} */
  #counts = new Map();
  /** @type {Rule[]} */
  #rules = [];
  /** @type {Set<import("node:http2").ServerHttp2Session>} */
  #clients = new Set();
  /** @type {Set<import("node:http2").ClientHttp2Session>} */
  #backends = new Set();
  /** @type {import("../programs/stray-leader.js").Stray | undefined} */
  #stray;
  port = 0;

  /** @param {() => { host?: string, port: number }} target */
  constructor(target) {
    this.#target = target;
    this.#events.setMaxListeners(0);
    this.#server = http2.createServer();
    this.#server.on("session", (session) => this.#connected(session));
  }

  get endpoint() {
    return `http://127.0.0.1:${this.port}`;
  }

  /** @param {number} port */
  async listen(port) {
    this.#server.listen(port, "127.0.0.1");
    await once(this.#server, "listening");
    this.port = /** @type {import("node:net").AddressInfo} */ (this.#server.address()).port;
  }

  // One backend connection per client connection. If the backend's breaks, so does the client's, but not vice versa: a
  // request held back outlives the client that sent it.
  /** @param {import("node:http2").ServerHttp2Session} client */
  #connected(client) {
    const { host = "127.0.0.1", port } = this.#target();
    const backend = http2.connect(`http://${host}:${port}`);
    this.#clients.add(client);
    this.#backends.add(backend);
    backend.on("error", () => {});
    client.on("error", () => {});
    backend.once("close", () => {
      this.#backends.delete(backend);
      client.destroy();
    });
    client.once("close", () => this.#clients.delete(client));
    client.on("stream", (stream, headers) => this.#called({ stream, headers, backend }));
  }

  /**
   * @param {{
   *   stream: import("node:http2").ServerHttp2Stream,
   *   headers: import("node:http2").IncomingHttpHeaders,
   *   backend: import("node:http2").ClientHttp2Session,
   * }} incoming
   */
  async #called({ stream, headers, backend }) {
    const path = String(headers[":path"]);
    stream.on("error", () => {});
    const chunks = /** @type {Buffer[]} */ ([]);
    const message = () => Buffer.concat(chunks).subarray(5);
    const call = { path, headers, client: stream, backend, chunks, message, streaming: STREAMS.has(path) };
    if (!call.streaming && !(await collect(stream, chunks))) return;
    this.#counts.set(path, this.count(path) + 1);
    this.#events.emit("call");
    if (this.#stray !== undefined && path === KEEPALIVE) return answerAsStray(stream, this.#stray);
    const rule = call.streaming ? undefined : this.#rules.find((it) => it.takes(call));
    await (rule ? rule.apply(call) : forward(call, { keepOnCancel: false, silent: false }));
  }

  /** How many calls of this path have arrived. @param {string} path */
  count(path) {
    return this.#counts.get(path) ?? 0;
  }
  /** Resolves when `n` calls of this path have arrived. @param {string} path */
  async seen(path, n = 1) {
    while (this.count(path) < n) await once(this.#events, "call");
  }

  /** The first rule that takes a call acts on it. @param {RuleOptions} options */
  rule(options) {
    const rule = new Rule(options);
    this.#rules.push(rule);
    return rule;
  }
  /** @param {Rule} rule */
  remove(rule) {
    this.#rules = this.#rules.filter((it) => it !== rule);
  }

  /**
   * From now on, new connections get their renewals answered as by a deposed leader; open connections are broken.
   * undefined ends it in the same way.
   * @param {import("../programs/stray-leader.js").Stray | undefined} stray
   */
  stray(stray) {
    this.#stray = stray;
    for (const session of this.#clients) session.destroy();
  }

  async stop() {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const session of [...this.#clients, ...this.#backends]) session.destroy();
    await closed;
  }
  async [Symbol.asyncDispose]() {
    await this.stop();
  }
}

/**
 * @param {import("node:http2").ServerHttp2Stream} stream @param {Buffer[]} chunks
 * @returns {Promise<boolean>} false: the client gave up before its request was complete
 */
function collect(stream, chunks) {
  return new Promise((resolve) => {
    stream.on("data", (/** @type {Buffer} */ chunk) => chunks.push(chunk));
    // A reset ends it, too.
    stream.once("end", () => resolve(isWhole(Buffer.concat(chunks))));
    stream.once("close", () => resolve(false));
  });
}

/** @param {Buffer} frame @returns {boolean} all of the gRPC message that its five first bytes announce is there */
const isWhole = (frame) => frame.length >= 5 && frame.length === 5 + frame.readUInt32BE(1);

/**
 * @param {{ host?: string, port: number } | (() => { host?: string, port: number })} target
 * @param {{ port?: number }} [options]
 */
export async function startGrpcProxy(target, { port = 0 } = {}) {
  const proxy = new GrpcProxy(typeof target === "function" ? target : () => target);
  await proxy.listen(port);
  return proxy;
}
