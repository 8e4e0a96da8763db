// One member of a cluster that we started: the process, and what can be done to it.
import { askGateway, parseMetrics, request, statusBy } from "../clients/etcd-http.js";
import { ServerProcess } from "../servers/server-process.js";

export { PortTakenError } from "../servers/server-process.js";

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
 * @property {import("../clients/etcd-http.js").ClientTls | undefined} tls
 * @property {(line: string) => void} tellGuardian
 */

/** What etcd says when it wants to know who asks, and has no valid token. */
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
    // From Node.js 26 on grpc-js speaks TLS to names only.
    this.endpoint = plan.tls
      ? `https://localhost:${plan.clientPort}`
      : `http://${plan.host}:${plan.clientPort}`;
    this.dataDir = plan.args.find((arg) => arg.startsWith("--data-dir="))?.slice("--data-dir=".length) ?? "";
    this.#process = new ServerProcess({
      title: `etcd ${plan.name}`,
      command: [first, ...rest],
      env,
      ready: /ready to serve client requests|serving client traffic/,
      // a read that needs a quorum
      answers: () => this.#quorumRead(),
      tellGuardian,
    });
  }

  /** Of the running process; that of the last one when it was killed. */
  get pid() {
    return this.#process.pid;
  }

  get running() {
    return this.#process.running;
  }

  /** The last lines of etcd's own log. */
  get log() {
    return this.#process.log;
  }

  /** Starts the process; resolves when it serves clients. */
  async start() {
    await this.#process.start();
  }

  /** After `kill()`: the same member, with its data; resolves when it answers. */
  async restart() {
    await this.#process.start();
  }

  /** SIGKILL; resolves when the process has exited. */
  async kill() {
    await this.#process.kill();
  }

  /** SIGSTOP: connections stay open, nothing answers. Returns when the process has stopped, which is a moment later. */
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
    const { text } = await request(`http://${host}:${metricsPort}/metrics`, options);
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
  async gateway(path, body, options) {
    const send = () => askGateway(this, path, body, { ...options, tls: this.#plan.tls, token: this.#token });
    try {
      return await send();
    } catch (error) {
      if (!this.#user || !TOKEN_WANTED.test(/** @type {Error} */ (error).message)) throw error;
      await this.#authenticate(this.#user, options);
      return send();
    }
  }

  /** From now on `gateway` asks as this user, if etcd wants to know who asks. @param {{ username: string, password: string }} user */
  login(user) {
    this.#user = user;
  }

  /** What a request that does not go through `gateway` must bear now. @returns {Promise<{ authorization?: string }>} */
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
        // etcd refuses a token of before even when it asks for none any more.
        if (!/authentication is not enabled/.test(error.message)) throw error;
      },
    );
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
    const refused = /user name is empty|permission denied|invalid auth token|not supported for learner/.test(
      text,
    );
    return status === 200 || refused ? "" : text;
  }
}
