// One member of one of our clusters: the process, and the actions on it.
import { askGateway, parseMetrics, request, statusBy } from "../clients/etcd-http.js";
import { ServerProcess } from "../servers/server-process.js";

export { PortTakenError } from "../servers/server-process.js";

/**
 * @typedef {object} MemberPlan
 * @property {string} name
 * @property {string} host address that it listens on
 * @property {readonly string[]} within the command that starts etcd, and that execs it
 * @property {string} program
 * @property {readonly string[]} args
 * @property {NodeJS.ProcessEnv} env
 * @property {number} clientPort
 * @property {number} peerPort
 * @property {number} metricsPort
 * @property {import("../clients/etcd-http.js").ClientTls | undefined} tls
 * @property {(line: string) => void} tellGuardian
 */

/** Of a question to a member that runs: a busy machine may need it. */
const PATIENCE = { timeoutMs: 10_000 };
/** etcd's errors for a request that needs a user and has no valid token. */
const TOKEN_WANTED = /user name is empty|invalid auth token|revision of auth store is old/;

export class EtcdMember {
  /** @type {MemberPlan} */ #plan;
  #process;
  /** @type {{ username: string, password: string } | undefined} */
  #user;
  /** @type {string | undefined} */
  #token;

  /** @param {MemberPlan} plan */
  constructor(plan) {
    const { within, program, args, env, tellGuardian } = plan;
    const [first = program, ...rest] = [...within, program, ...args];
    this.#plan = plan;
    this.name = plan.name;
    this.clientPort = plan.clientPort;
    this.peerPort = plan.peerPort;
    // From Node.js 26 on, grpc-js accepts only host names for TLS. Not every machine has one for ::1.
    const host = plan.tls && plan.host !== "[::1]" ? "localhost" : plan.host;
    this.endpoint = `${plan.tls ? "https" : "http"}://${host}:${plan.clientPort}`;
    this.dataDir = plan.args.find((arg) => arg.startsWith("--data-dir="))?.slice("--data-dir=".length) ?? "";
    this.#process = new ServerProcess({
      title: `etcd ${plan.name}`,
      command: [first, ...rest],
      env,
      ready: /ready to serve client requests|serving client traffic/,
      // a quorum read
      answers: () => this.#quorumRead(),
      tellGuardian,
    });
  }

  /** The pid of the running process, or of the last one if it was killed. */
  get pid() {
    return this.#process.pid;
  }

  get running() {
    return this.#process.running;
  }

  /** The last lines of etcd's log. */
  get log() {
    return this.#process.log;
  }

  /** Starts the process; resolves when it serves clients. */
  async start() {
    await this.#process.start();
  }

  /** Call after `kill()`: starts the same member with its data; resolves when it answers. */
  async restart() {
    await this.#process.start();
  }

  /** SIGKILL; resolves when the process has exited. */
  async kill() {
    await this.#process.kill();
  }

  /**
   * SIGSTOP: connections stay open, but nothing is answered. Returns when the process has stopped, which is slightly
   * later.
   */
  pause() {
    this.#process.pause();
  }

  resume() {
    this.#process.resume();
  }

  /**
   * @param {{ timeoutMs?: number }} [options]
   * @returns {Promise<Map<string, number>>} etcd's metrics; the key is the series as printed, with its labels
   */
  async metrics(options) {
    const { host, metricsPort } = this.#plan;
    const { text } = await request(`http://${host}:${metricsPort}/metrics`, { ...PATIENCE, ...options });
    return parseMetrics(text);
  }

  /**
   * The member's own view. etcd 3.6 requires a password even for this once auth is on.
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
   * @returns {Promise<any>} the answer; rejects with etcd's own message
   */
  async gateway(path, body, options) {
    const { tls } = this.#plan;
    const send = () => askGateway(this, path, body, { ...PATIENCE, ...options, tls, token: this.#token });
    try {
      return await send();
    } catch (error) {
      if (!this.#user || !TOKEN_WANTED.test(/** @type {Error} */ (error).message)) throw error;
      await this.#authenticate(this.#user, options);
      return send();
    }
  }

  /**
   * From now on `gateway` logs in as this user if etcd requires it.
   * @param {{ username: string, password: string }} user
   */
  login(user) {
    this.#user = user;
  }

  /** The headers that a request outside `gateway` needs now. @returns {Promise<{ authorization?: string }>} */
  async headers() {
    if (!this.#user) return {};
    await this.gateway("/v3/kv/range", { key: "AA==" });
    return this.#token === undefined ? {} : { authorization: this.#token };
  }

  /** @param {{ username: string, password: string }} user @param {{ timeoutMs?: number }} [options] */
  async #authenticate({ username: name, password }, options) {
    const settings = { ...options, tls: this.#plan.tls };
    this.#token = await askGateway(this, "/v3/auth/authenticate", { name, password }, settings).then(
      ({ token }) => token,
      (error) => {
        // etcd rejects an old token even when it no longer requires one.
        if (!/authentication is not enabled/.test(error.message)) throw error;
      },
    );
  }

  /** @returns {Promise<string>} what was wrong; empty if nothing */
  async #quorumRead() {
    const { endpoint } = this;
    const { tls, host, metricsPort } = this.#plan;
    // the gateway is a client of its own server: it may be refused if client certificates are required; the health page
    // is not
    const { status, text } = await (tls
      ? request(`http://${host}:${metricsPort}/health`)
      : request(`${endpoint}/v3/kv/range`, { body: { key: "AA==" } }));
    // the user is checked only after a quorum has confirmed the read
    const refused = /user name is empty|permission denied|invalid auth token|not supported for learner/.test(
      text,
    );
    return status === 200 || refused ? "" : text;
  }
}
