// One member of a cluster that we started: the process, and what can be done to it.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { askGateway, parseMetrics, request, statusBy } from "./etcd-http.js";

/** etcd with this configuration cannot listen where it was told to; other ports may do. */
export class PortTakenError extends Error {}

const READY_MS = 30_000;
const KEPT_LINES = 300;

/**
 * @typedef {object} MemberPlan
 * @property {string} name
 * @property {string} host address that it listens on
 * @property {readonly string[]} within what etcd is started by, and turns into etcd itself
 * @property {string} program
 * @property {readonly string[]} args
 * @property {NodeJS.ProcessEnv} env
 * @property {number} clientPort
 * @property {number} peerPort
 * @property {number} metricsPort
 * @property {import("./etcd-http.js").ClientTls | undefined} tls
 * @property {(line: string) => void} tellGuardian
 */

/** @typedef {import("node:child_process").ChildProcessByStdio<null, null, import("node:stream").Readable>} Child */

export class EtcdMember {
  /** @type {MemberPlan} */ #plan;
  /** @type {Child | undefined} */ #child;
  /** @type {string[]} */ #lines = [];

  /** @param {MemberPlan} plan */
  constructor(plan) {
    this.#plan = plan;
    this.name = plan.name;
    this.clientPort = plan.clientPort;
    this.peerPort = plan.peerPort;
    this.endpoint = `${plan.tls ? "https" : "http"}://${plan.host}:${plan.clientPort}`;
  }

  /** Of the running process; that of the last one when it was killed. */
  get pid() {
    return this.#child?.pid ?? 0;
  }

  get running() {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** The last lines of etcd's own log. */
  get log() {
    return this.#lines.join("\n");
  }

  /** Starts the process; resolves when it has said that it serves clients. */
  async start() {
    if (this.running) throw new Error(`${this.name} is already running`);
    const { within, program, args, env, tellGuardian } = this.#plan;
    const [command = program, ...rest] = [...within, program, ...args];
    // detached: Ctrl-C in a terminal goes to the starter, which stops its members in order
    const child = spawn(command, rest, { env, stdio: ["ignore", "ignore", "pipe"], detached: true });
    this.#child = child;
    this.#lines = [];
    await once(child, "spawn");
    tellGuardian(`+${child.pid}`);
    child.once("exit", () => tellGuardian(`-${child.pid}`));
    try {
      await this.#said(child, /ready to serve client requests|serving client traffic/);
      await this.#answers(child);
    } catch (error) {
      await this.kill();
      throw error;
    }
    idle(child);
  }

  /** After `kill()`: the same member, with its data; resolves when it answers. */
  async restart() {
    await this.start();
  }

  /** SIGKILL; resolves when the process has exited. */
  async kill() {
    const child = this.#child;
    if (!child || !this.running) return;
    child.ref();
    const exited = once(child, "exit");
    child.kill("SIGKILL");
    await exited;
  }

  /** SIGSTOP: connections stay open, nothing answers. Returns when the process has stopped, which is a moment later. */
  pause() {
    if (!this.running) return;
    this.#child?.kill("SIGSTOP");
    for (let tries = 0; tries < 1_000 && !isStopped(this.pid); tries++) blockMs(1);
  }

  resume() {
    this.#child?.kill("SIGCONT");
  }

  /** @returns {Promise<Map<string, number>>} etcd's metrics; the key is the series as printed, with its labels */
  async metrics() {
    const { host, metricsPort } = this.#plan;
    const { text } = await request(`http://${host}:${metricsPort}/metrics`);
    return parseMetrics(text);
  }

  /**
   * What this member itself believes. etcd 3.6 wants a password even for this once auth is on.
   * @param {{ timeoutMs?: number }} [options]
   */
  status(options) {
    return statusBy((path, body) => this.gateway(path, body, options));
  }

  /**
   * POST to etcd's JSON gateway (keys and values in base64).
   * @param {string} path such as "/v3/kv/range"
   * @param {unknown} body
   * @param {{ timeoutMs?: number }} [options]
   * @returns {Promise<any>} the answer; rejects with etcd's own words
   */
  gateway(path, body, options) {
    return askGateway(this, path, body, { ...options, tls: this.#plan.tls });
  }

  /** @param {Child} child @param {RegExp} pattern */
  #said(child, pattern) {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(this.#failure(`not ready within ${READY_MS} ms`)), READY_MS);
      const settle = (/** @type {() => void} */ how) => {
        clearTimeout(late);
        how();
      };
      child.once("exit", (code, signal) =>
        settle(() => reject(this.#failure(`ended with ${code ?? signal} before it was ready`))),
      );
      readLines(child.stderr, (line) => {
        if (this.#lines.push(line) > KEPT_LINES) this.#lines.shift();
        if (pattern.test(line)) settle(() => resolve(undefined));
      });
    });
  }

  // The log line comes before the listener has been tried by anybody: a read that needs a quorum proves the rest.
  /** @param {Child} child */
  async #answers(child) {
    const until = Date.now() + READY_MS;
    while (child.exitCode === null && child.signalCode === null) {
      const answer = await this.#quorumRead().catch(String);
      if (answer === "") return;
      if (Date.now() > until) throw this.#failure(`no quorum read within ${READY_MS} ms (${answer})`);
      await delay(20);
    }
    throw this.#failure("ended before it answered");
  }

  /** @returns {Promise<string>} what was wrong; empty if nothing */
  async #quorumRead() {
    const { endpoint } = this;
    const { tls, host, metricsPort } = this.#plan;
    // the gateway is a client of its own server: with client certificates it may be refused, the health page is not
    const { status, text } = await (tls
      ? request(`http://${host}:${metricsPort}/health`)
      : request(`${endpoint}/v3/kv/range`, { body: { key: "AA==" } }));
    // who we are is checked after the read has been confirmed by a quorum
    const refused = /user name is empty|permission denied|invalid auth token/.test(text);
    return status === 200 || refused ? "" : text;
  }

  /** @param {string} what */
  #failure(what) {
    const text = `etcd ${this.name} ${what}. Its last words:\n${this.#lines.slice(-8).join("\n")}`;
    return /address already in use/.test(this.log) ? new PortTakenError(text) : new Error(text);
  }
}

// Where there is no /proc, a stop is taken to be immediate.
/** @param {number} pid */
function isStopped(pid) {
  const file = `/proc/${pid}/stat`;
  return !existsSync(file) || /\) T /.test(readFileSync(file, "utf8"));
}

/** @param {number} ms */
function blockMs(ms) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

// A cluster that somebody forgot to stop must not keep its starter alive: the guardian cleans up.
/** @param {Child} child */
function idle(child) {
  child.unref();
  /** @type {Partial<import("node:net").Socket>} */ (child.stderr).unref?.();
}

/** @param {import("node:stream").Readable} stream @param {(line: string) => void} onLine */
function readLines(stream, onLine) {
  let rest = "";
  stream.setEncoding("utf8");
  stream.on("data", (/** @type {string} */ chunk) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    lines.forEach(onLine);
  });
}
