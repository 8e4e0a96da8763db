// Child processes that use leasehold, for tests that stop, continue and kill them. See `worker.js`.
import { fork } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { fileURLToPath } from "node:url";
import { owned } from "./owned.js";

/**
 * @typedef {import("../fixtures/claims.js").Run} Run
 * @typedef {{ as: string, source?: string, timeoutMs?: number, rejoin?: boolean }} TakeOptions
 *   as: the name of this attempt and of its lock; source: a session's name, default the cluster
 * @typedef {{ name: string, message: string, code?: string | undefined, loss?: string | undefined, cause?: ErrorShape | undefined }} ErrorShape
 * @typedef {{ at: bigint, fence: bigint, key: string }} Taken `at`: when the caller had it, monotonic
 * @typedef {{ type: "ended", lock: string, at: bigint, held: boolean, reason: ErrorShape }} Ended
 * @typedef {{ type: "state", session: string, state: string, previous: string, at: bigint }} StateChange
 * @typedef {{ execArgv?: string[], env?: NodeJS.ProcessEnv }} ForkOptions
 */

const WORKER = fileURLToPath(new URL("./worker.js", import.meta.url));
export const SHIFT_DATE = new URL("./shift-date.js", import.meta.url).href;

/** The rejection of a call in a worker. */
export class WorkerError extends Error {
  /** @param {string} worker @param {ErrorShape} shape */
  constructor(worker, shape) {
    super(`${worker}: ${shape.name}: ${shape.message}`);
    this.shape = shape;
    this.code = shape.code;
    this.loss = shape.loss;
  }
}

export class Worker {
  #child;
  #events = new EventEmitter();
  #nextId = 1;
  /** @type {(Ended | StateChange)[]} */
  #history = [];
  /** @type {Map<number, { resolve: (value: any) => void, reject: (error: Error) => void }>} */
  #calls = new Map();
  /** Unhandled rejections, uncaught exceptions and warnings, which must not occur in any test. @type {string[]} */
  complaints = [];
  name;
  /** Resolves when the process has ended. @type {Promise<{ code: number | null, signal: string | null }>} */
  exited;

  /** @param {string} name @param {ForkOptions} options */
  constructor(name, { execArgv = [], env = {} }) {
    this.name = name;
    this.#events.setMaxListeners(0);
    this.#child = owned(
      fork(WORKER, { serialization: "advanced", execArgv, env: { ...process.env, ...env } }),
    );
    this.#child.on("message", (message) => this.#heard(/** @type {any} */ (message)));
    this.exited = once(this.#child, "exit").then(([code, signal]) => {
      for (const { reject } of this.#calls.values()) reject(new Error(`${name} ended (${signal ?? code})`));
      this.#events.emit("news");
      return { code, signal };
    });
  }

  get pid() {
    return /** @type {number} */ (this.#child.pid);
  }
  get running() {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** @param {{ type: string, id: number, value: unknown, error: ErrorShape, what: string }} message */
  #heard(message) {
    const { type, id } = message;
    if (type === "ready") this.#events.emit("ready");
    else if (type === "complaint")
      this.complaints.push(`${this.name}: ${message.what}: ${message.error.message}`);
    else if (type === "done") this.#settle(id)?.resolve(message.value);
    else if (type === "failed") this.#settle(id)?.reject(new WorkerError(this.name, message.error));
    else this.#history.push(/** @type {any} */ (message));
    this.#events.emit("news");
  }
  /** @param {number} id */
  #settle(id) {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    return call;
  }

  /** @param {string} command @param {object} [args] @returns {Promise<any>} */
  #call(command, args = {}) {
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject });
      this.#child.send({ id, command, args });
    });
  }

  async ready() {
    await Promise.race([
      once(this.#events, "ready"),
      this.exited.then(() => Promise.reject(new Error(`${this.name} did not start`))),
    ]);
  }
  /** @param {import("../../../src/index.js").ConnectOptions} options @returns {Promise<void>} */
  connect(options) {
    return this.#call("connect", { options });
  }
  /**
   * @param {string} as @param {import("../../../src/index.js").SessionOptions} options
   * @returns {Promise<{ leaseId: bigint, ttlSeconds: number }>}
   */
  session(as, options) {
    return this.#call("session", { as, options });
  }
  /** @param {string} name @param {TakeOptions} options @returns {Promise<Taken>} */
  lock(name, options) {
    return this.#call("take", { ...options, name, how: "lock" });
  }
  /** @param {string} name @param {TakeOptions} options @returns {Promise<Taken | undefined>} */
  tryLock(name, options) {
    return this.#call("take", { ...options, name, how: "tryLock" });
  }
  /** Resolves when the standing session that the worker has now has ended. @returns {Promise<void>} */
  standingEnd() {
    return this.#call("standingEnd");
  }
  /** Aborts a pending `lock` or `tryLock`. @param {string} as @returns {Promise<void>} */
  abort(as) {
    return this.#call("abort", { as });
  }
  /** @param {string} as @returns {Promise<{ at: bigint }>} */
  release(as) {
    return this.#call("release", { as });
  }
  /** @param {string} as @returns {Promise<{ at: bigint, held: boolean, remainingMs: number, aborted: boolean }>} */
  read(as) {
    return this.#call("read", { as });
  }
  /** @param {string} as @returns {Promise<Run[]>} */
  claims(as) {
    return this.#call("claims", { as });
  }
  /** @param {string} source @param {{ drainMs?: number }} [options] @returns {Promise<void>} */
  close(source, options = {}) {
    return this.#call("close", { source, ...options });
  }
  /** @param {number} ms @returns {Promise<{ moved: number }>} */
  shiftDate(ms) {
    return this.#call("shiftDate", { ms });
  }
  /** The wall-clock time of this process. @returns {Promise<number>} */
  wallClock() {
    return this.#call("wallClock");
  }
  /** Disconnects; the process must then end by itself once nothing of leasehold is open. */
  async leave() {
    await this.#call("leave");
    return this.exited;
  }

  /** The end of a lock, past or future. @param {string} lock @returns {Promise<Ended>} */
  async ended(lock) {
    for (;;) {
      const found = this.#history.find((event) => event.type === "ended" && event.lock === lock);
      if (found) return /** @type {Ended} */ (found);
      if (!this.running) throw new Error(`${this.name} ended before its lock ${lock} did`);
      await once(this.#events, "news");
    }
  }
  /** State changes so far. @param {string} session @returns {StateChange[]} */
  states(session) {
    return this.#history
      .filter((event) => event.type === "state")
      .filter((event) => event.session === session);
  }

  /** SIGSTOP: stops the process, like a long pause of its machine. */
  pause() {
    process.kill(this.pid, "SIGSTOP");
  }
  resume() {
    process.kill(this.pid, "SIGCONT");
  }
  /** kill -9 */
  async kill() {
    if (this.running) process.kill(this.pid, "SIGKILL");
    await this.exited;
  }
}

/** Starts workers and ends them all, even if the test fails. Fails itself if one of them recorded a complaint. */
export class Crew {
  /** @type {Worker[]} */
  #workers = [];
  #atExit = () => {
    for (const worker of this.#workers) if (worker.running) process.kill(worker.pid, "SIGKILL");
  };

  constructor() {
    process.once("exit", this.#atExit);
  }

  /** @param {string} name @param {ForkOptions} [options] */
  async start(name, options = {}) {
    const worker = new Worker(name, options);
    this.#workers.push(worker);
    await worker.ready();
    return worker;
  }

  async [Symbol.asyncDispose]() {
    await Promise.all(this.#workers.map((worker) => worker.kill()));
    process.off("exit", this.#atExit);
    const complaints = this.#workers.flatMap((worker) => worker.complaints);
    if (complaints.length > 0) throw new Error(`A worker complained: ${complaints.join("; ")}`);
  }
}
