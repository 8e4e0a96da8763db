// The process of a server started by tests, and the actions on it.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";

/** A server with this configuration cannot listen on its port; other ports may work. */
export class PortTakenError extends Error {}

const READY_MS = 30_000;
const KEPT_LINES = 300;

/**
 * @typedef {object} ProcessPlan
 * @property {string} title such as "etcd m1", for error messages
 * @property {readonly [string, ...string[]]} command program and arguments
 * @property {NodeJS.ProcessEnv} env
 * @property {RegExp} ready what it prints when it considers itself ready
 * @property {() => Promise<string>} answers sends a request that proves it; resolves with what was wrong, empty if
 * nothing
 * @property {(line: string) => void} tellGuardian
 */

/** @typedef {import("node:stream").Readable} Readable */
/** @typedef {import("node:child_process").ChildProcessByStdio<null, Readable, Readable>} Child */

export class ServerProcess {
  /** @type {ProcessPlan} */ #plan;
  /** @type {Child | undefined} */ #child;
  /** @type {string[]} */ #lines = [];

  /** @param {ProcessPlan} plan */
  constructor(plan) {
    this.#plan = plan;
  }

  /** The pid of the running process, or of the last one if it was killed. */
  get pid() {
    return this.#child?.pid ?? 0;
  }

  /** What `process.kill` takes for the process and its workers: it is detached, so it has a process group of its own. */
  get #group() {
    return -this.pid;
  }

  get running() {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** The last lines that it printed. */
  get log() {
    return this.#lines.join("\n");
  }

  /** Starts it, also after a `kill()`; resolves when it answers. */
  async start() {
    const { title, command, env, tellGuardian } = this.#plan;
    if (this.running) throw new Error(`${title} is already running`);
    const [program, ...args] = command;
    // detached: Ctrl-C in a terminal goes to the starter, which stops its servers gracefully
    const child = spawn(program, args, { env, stdio: ["ignore", "pipe", "pipe"], detached: true });
    this.#child = child;
    this.#lines = [];
    await once(child, "spawn");
    tellGuardian(`+${this.#group}`);
    child.once("exit", () => tellGuardian(`-${this.#group}`));
    try {
      await this.#said(child);
      await this.#answers(child);
    } catch (error) {
      await this.kill();
      throw error;
    }
    idle(child);
  }

  /** SIGKILL, also to its workers; resolves when the process has exited. */
  async kill() {
    const child = this.#child;
    if (!child || !this.running) return;
    child.ref();
    const exited = once(child, "exit");
    process.kill(this.#group, "SIGKILL");
    await exited;
  }

  /**
   * Resolves when it has said what `heard` matches once more. A program that is still starting may ignore a signal, so it is
   * sent again.
   * @param {NodeJS.Signals} name @param {RegExp} heard global
   */
  async signal(name, heard) {
    const times = () => this.log.match(heard)?.length ?? 0;
    const before = times();
    const until = Date.now() + READY_MS;
    for (let tries = 0; times() === before; tries++) {
      if (Date.now() > until) throw this.#failure(`did not react to ${name}`);
      if (tries % 100 === 0) this.#child?.kill(name);
      await delay(5);
    }
  }

  /**
   * SIGSTOP: connections stay open, but nothing is answered. Returns when the process has stopped, which is slightly
   * later.
   */
  pause() {
    if (!this.running) return;
    this.#child?.kill("SIGSTOP");
    for (let tries = 0; tries < 1_000 && !isStopped(this.pid); tries++) blockMs(1);
  }

  resume() {
    this.#child?.kill("SIGCONT");
  }

  /** @param {Child} child */
  #said(child) {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(this.#failure(`not ready within ${READY_MS} ms`)), READY_MS);
      const settle = (/** @type {() => void} */ how) => {
        clearTimeout(late);
        how();
      };
      child.once("exit", (code, signal) =>
        settle(() => reject(this.#failure(`ended with ${code ?? signal} before it was ready`))),
      );
      const heard = (/** @type {string} */ line) => {
        if (this.#lines.push(line) > KEPT_LINES) this.#lines.shift();
        if (this.#plan.ready.test(line)) settle(() => resolve(undefined));
      };
      readLines(child.stdout, heard);
      readLines(child.stderr, heard);
    });
  }

  // The log line appears before the listener has been tested.
  /** @param {Child} child */
  async #answers(child) {
    const until = Date.now() + READY_MS;
    while (child.exitCode === null && child.signalCode === null) {
      const wrong = await this.#plan.answers().catch(String);
      if (wrong === "") return;
      if (Date.now() > until) throw this.#failure(`no answer within ${READY_MS} ms (${wrong})`);
      await delay(20);
    }
    throw this.#failure("ended before it answered");
  }

  /** @param {string} what */
  #failure(what) {
    const text = `${this.#plan.title} ${what}. Its last words:\n${this.#lines.slice(-8).join("\n")}`;
    return /address already in use/i.test(this.log) ? new PortTakenError(text) : new Error(text);
  }
}

// Without /proc, a stop is assumed to be immediate.
/** @param {number} pid */
function isStopped(pid) {
  const file = `/proc/${pid}/stat`;
  return !existsSync(file) || /\) T /.test(readFileSync(file, "utf8"));
}

/** @param {number} ms */
function blockMs(ms) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

// A server that was not stopped must not keep its starter alive: the guardian cleans up.
/** @param {Child} child */
function idle(child) {
  child.unref();
  for (const pipe of [child.stdout, child.stderr])
    /** @type {Partial<import("node:net").Socket>} */ (pipe).unref?.();
}

/** @param {Readable} stream @param {(line: string) => void} onLine */
function readLines(stream, onLine) {
  let rest = "";
  stream.setEncoding("utf8");
  stream.on("data", (/** @type {string} */ chunk) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    lines.forEach(onLine);
  });
}
