// What a program says, for whoever waits for its word: every wait ends with the word, or with the end of the program, which tells
// what it has said and how it ended.
import { once } from "node:events";
import path from "node:path";
import { createInterface } from "node:readline";
import { finished } from "node:stream/promises";
import { setTimeout as delay } from "node:timers/promises";
/** @import { ChildProcess } from "node:child_process" */
/** @import { Worker } from "node:worker_threads" */

/** A child of the program may keep its pipes open. */
const LAST_WORDS_MS = 1000;
const SHOWN = 3000;

/** @typedef {{ readonly code: number | null, readonly signal: NodeJS.Signals | null, readonly stdout: string, readonly stderr: string }} SaidAll */

/** @typedef {{ readonly signal?: AbortSignal | undefined, readonly what?: string }} WaitOptions `what`: for the message of a failure */

/**
 * Its words are the lines of its standard output, and the messages of a fork or of a worker thread. None is lost, whenever it comes
 * and whenever it is waited for. Standard output and standard error are read if they are pipes.
 */
export class Said {
  stdout = "";
  stderr = "";
  /** Each of them, in this order. @type {unknown[]} */
  words = [];
  /** Resolves when a process has ended, and nothing has its pipes open. @type {Promise<SaidAll>} */
  ended;
  #title;
  #next = 0;
  /** How it ended. @type {string | undefined} */
  #end;
  /** @type {Set<() => void>} */
  #waiting = new Set();

  /** @param {ChildProcess | Worker} program which has just been started */
  constructor(program) {
    this.#title = "spawnargs" in program ? titleOf(program.spawnargs) : "the thread";
    const { stdout, stderr } = program;
    for (const pipe of [stdout, stderr]) pipe?.setEncoding("utf8");
    if (stdout) createInterface({ input: stdout }).on("line", (line) => this.words.push(line));
    stdout?.on("data", (/** @type {string} */ text) => {
      this.stdout += text;
      this.#news();
    });
    stderr?.on("data", (/** @type {string} */ text) => {
      this.stderr += text;
      this.#news();
    });
    program.on("message", (/** @type {unknown} */ message) => {
      this.words.push(message);
      this.#news();
    });
    this.ended = new Promise((resolve) => {
      program.once(
        "close",
        (/** @type {number | null} */ code, /** @type {NodeJS.Signals | null} */ signal) =>
          resolve({ code, signal, stdout: this.stdout, stderr: this.stderr }),
      );
    });
    this.#watch(program);
  }

  /** The nth word, from 0. @template [T=string] @param {number} n @param {WaitOptions} [options] @returns {Promise<T>} */
  word(n, options) {
    return this.#when(() => this.words.length > n && { it: /** @type {T} */ (this.words[n]) }, options);
  }

  /** The next word that was not asked for yet. @template [T=string] @param {WaitOptions} [options] @returns {Promise<T>} */
  next(options) {
    return this.word(this.#next++, options);
  }

  /** The next word that is said from now on. @returns {Promise<string>} */
  later() {
    this.#next = this.words.length;
    return this.next();
  }

  /** The first word, past or future, that fits. @template [T=string] @param {(word: T) => boolean} fits @returns {Promise<T>} */
  first(fits) {
    let at = 0;
    return this.#when(() => {
      for (; at < this.words.length; at++) {
        const it = /** @type {T} */ (this.words[at]);
        if (fits(it)) return { it };
      }
      return false;
    });
  }

  /**
   * Resolves when its standard output, or its standard error, has the text.
   * @param {string | RegExp} text @param {AbortSignal} [signal]
   * @returns {Promise<void>}
   */
  async says(text, signal) {
    const has = (/** @type {string} */ all) =>
      typeof text === "string" ? all.includes(text) : text.test(all);
    await this.#when(() => has(this.stdout + this.stderr) && { it: text }, { signal, what: String(text) });
  }

  /**
   * @template T
   * @param {() => { it: T } | false} look
   * @param {WaitOptions} [options]
   * @returns {Promise<T>}
   */
  #when(look, { signal, what = "the word that was waited for" } = {}) {
    return new Promise((resolve, reject) => {
      const fail = (/** @type {string} */ how) => {
        const all = `${this.stdout.slice(-SHOWN)}${this.stderr.slice(-SHOWN)}`;
        reject(new Error(`${this.#title} ${how} without ${what}. It said:\n${all}`));
      };
      const check = () => {
        const found = look();
        if (found) resolve(found.it);
        else if (this.#end !== undefined) fail(`ended (${this.#end})`);
        else if (signal?.aborted) fail("ran on");
        else return;
        this.#waiting.delete(check);
        signal?.removeEventListener("abort", check);
      };
      this.#waiting.add(check);
      signal?.addEventListener("abort", check);
      check();
    });
  }

  #news() {
    for (const check of this.#waiting) check();
  }

  /** @param {string} how */
  #over(how) {
    this.#end ??= how;
    this.#news();
  }

  /** Ends the waits. @param {ChildProcess | Worker} program */
  #watch(program) {
    program.once("error", (/** @type {Error} */ error) => this.#over(String(error)));
    program.once("exit", async (/** @type {number | null} */ code, /** @type {string | null} */ signal) => {
      await allRead(program);
      this.#over(signal ?? `exit code ${code}`);
    });
  }
}

/** Resolves when no more can come from a program that has ended, or in LAST_WORDS_MS. @param {ChildProcess | Worker} program */
async function allRead(program) {
  const { stdout, stderr } = program;
  const pipes = [stdout, stderr].flatMap((pipe) => (pipe ? [finished(pipe).catch(() => {})] : []));
  const messages = "connected" in program && program.connected ? [once(program, "disconnect")] : [];
  const enough = new AbortController();
  const late = delay(LAST_WORDS_MS, undefined, enough).catch(() => {});
  await Promise.race([Promise.all([...pipes, ...messages]), late]);
  enough.abort();
}

/** Its script, or the program itself. @param {readonly string[]} args */
const titleOf = ([program = "", ...args]) =>
  path.basename(args.find((word) => /\.[cm]?[jt]s$/.test(word)) ?? program);
