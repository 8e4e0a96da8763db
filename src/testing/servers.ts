// The programs that tests start: on which ports they run, how their processes are started, suspended and killed.
// `test/support` starts etcd, Redis, PostgreSQL and the reverse proxies with it.
// - Each server is reported to a guardian, a process that kills it and removes its data when the pipe from the starter
//   closes. Servers have process groups of their own: Ctrl-C in a terminal reaches the starter only.
// - A port has no listener when it is chosen, and nobody else chooses it until the servers of its guardian have ended: one that is
//   killed finds it free at its restart. If another program takes it all the same, the servers are started again on others.
// - When a start fails, its error has the last lines that the server printed, and no process of it is left.
// - The caller's `ETCD_*` settings do not reach etcd.
import { type ChildProcess, type ChildProcessByStdio, spawn } from "node:child_process";
import dgram from "node:dgram";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import net, { type Socket } from "node:net";
import os from "node:os";
import path from "node:path";
import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";

/** Below the range of ephemeral ports: a killed server finds its port free when it is restarted. */
const FIRST = 15_000;
const COUNT = 17_000;

/**
 * Distinct ports of 127.0.0.1 without a listener, which no other call gets, in no process, until the guardian is dismissed or this
 * process ends. A program that does not ask here may still take one: a server that finds its port taken ends with a
 * `PortTakenError`, and is started again on other ports.
 */
export async function freePorts(count: number, guardian?: Guardian): Promise<number[]> {
  const ports: number[] = [];
  while (ports.length < count) {
    const port = FIRST + Math.floor(Math.random() * COUNT);
    const mark = await markOf(port);
    if (mark === undefined) continue;
    if (await isFree(port)) {
      ports.push(port);
      guardian?.keeps(mark);
    } else mark.close();
  }
  return ports;
}

/**
 * The mark of a chosen port is a UDP socket that is bound to the same number: two processes cannot have it, and the kernel removes it
 * with its process, which alone restarts servers. undefined: another one has it.
 */
function markOf(port: number): Promise<dgram.Socket | undefined> {
  return new Promise((resolve) => {
    const mark = dgram.createSocket("udp4");
    mark.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "EADDRINUSE") return resolve(mark);
      mark.close();
      resolve(undefined);
    });
    mark.once("listening", () => {
      mark.on("error", () => {});
      resolve(mark);
    });
    mark.unref();
    // Exclusive: a worker of node:cluster would share that of another one.
    mark.bind({ port, address: "127.0.0.1", exclusive: true });
  });
}

/** Whether the port has no listener now. */
export function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = net.createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}

/** What distinguishes a member of a cluster from the others. */
export interface MemberRow {
  readonly name: string;
  /** The address that it listens on. */
  readonly host: string;
  readonly clientPort: number;
  readonly peerPort: number;
  /** The URL by which its peers reach it. */
  readonly peer: string;
}

/** What etcd prints when it serves its clients: releases up to 3.5 the first, the others the second. */
export const READY = /ready to serve client requests|serving client traffic/;

/** etcd's flags for a member of a new cluster. `folder` has the data of all members. */
export function memberArgs(row: MemberRow, folder: string, rows: readonly MemberRow[]): string[] {
  const client = `http://${row.host}:${row.clientPort}`;
  return [
    `--name=${row.name}`,
    `--data-dir=${path.join(folder, row.name)}`,
    `--listen-client-urls=${client}`,
    `--advertise-client-urls=${client}`,
    `--listen-peer-urls=http://${row.host}:${row.peerPort}`,
    `--initial-advertise-peer-urls=${row.peer}`,
    `--initial-cluster=${rows.map(({ name, peer }) => `${name}=${peer}`).join(",")}`,
    `--initial-cluster-token=${path.basename(folder)}`,
    "--initial-cluster-state=new",
    "--logger=zap",
    "--log-outputs=stderr",
  ];
}

/**
 * Briefly outlives the process that has started servers: when the pipe on standard input closes, however that process ended, it
 * kills the servers that still run and removes their folder. Lines on standard input: "+PID" (a server was started), "-PID" (it
 * has exited); a negative PID is a process group. It is passed as text because a bundler would not find a file.
 */
const PROGRAM = `
const { rmSync } = require("node:fs");
const { createInterface } = require("node:readline");
const folder = process.argv[1];
const running = new Set();
for (const name of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(name, () => {});
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const pid = Number(line.slice(1));
  if (line.startsWith("+")) running.add(pid);
  else running.delete(pid);
});
lines.on("close", async () => {
  for (const pid of running) try { process.kill(pid, "SIGKILL"); } catch {}
  for (const pid of running) await gone(pid);
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
});
// A dying server may still write: removing its folder before it has exited would leave files behind.
async function gone(pid) {
  for (let tries = 0; tries < 100; tries++) {
    try { process.kill(pid, 0); } catch { return; }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
`;

/** The starter's end of the pipe to the process that cleans up after a starter that has died. */
export class Guardian {
  readonly #child: ChildProcess;
  readonly #folder: string;
  readonly #marks: dgram.Socket[] = [];

  /** `folder` is removed when the starter ends, or by `dismiss()`. */
  constructor(folder: string) {
    this.#folder = folder;
    // Options of the starter, such as a loader or coverage, would slow it down.
    const env = { ...process.env, NODE_OPTIONS: "", NODE_V8_COVERAGE: "" };
    this.#child = spawn(process.execPath, ["--input-type=commonjs", "-e", PROGRAM, "--", folder], {
      stdio: ["pipe", "ignore", "ignore"],
      detached: true,
      env,
    });
    this.#child.unref();
    this.#child.on("error", () => {});
    (this.#child.stdin as Socket | null)?.unref();
    this.#child.stdin?.on("error", () => {});
  }

  tell(line: string): void {
    this.#child.stdin?.write(`${line}\n`);
  }

  /** The servers keep the port of this mark until the guardian is dismissed. */
  keeps(mark: dgram.Socket): void {
    this.#marks.push(mark);
  }

  /** Resolves when the guardian has exited and the folder is removed. */
  async dismiss(): Promise<void> {
    const { pid, exitCode, signalCode } = this.#child;
    this.#child.ref();
    const gone = pid !== undefined && exitCode === null && signalCode === null && once(this.#child, "exit");
    this.#child.stdin?.end();
    await gone;
    for (const mark of this.#marks.splice(0)) mark.close();
    await rm(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** A server with this configuration cannot listen on its port; other ports may work. */
export class PortTakenError extends Error {}

const READY_MS = 30_000;
const KEPT_LINES = 300;
const LAST_WORDS_MS = 50;

interface ProcessPlan {
  /** Such as "etcd m1", for error messages. */
  readonly title: string;
  /** Program and arguments. */
  readonly command: readonly [string, ...string[]];
  readonly env: NodeJS.ProcessEnv;
  /** What it prints when it considers itself ready. */
  readonly ready: RegExp;
  /** Sends a request that proves it; resolves with what was wrong, empty if nothing. */
  readonly answers: () => Promise<string>;
  readonly tellGuardian: (line: string) => void;
}

interface StartLimits {
  readonly signal?: AbortSignal | undefined;
  /** @default 30000 */
  readonly timeoutMs?: number | undefined;
}

type Child = ChildProcessByStdio<null, Readable, Readable>;

/** The process of a server, and the actions on it. */
export class ServerProcess {
  readonly #plan: ProcessPlan;
  #child: Child | undefined;
  #lines: string[] = [];

  constructor(plan: ProcessPlan) {
    this.#plan = plan;
  }

  /** The pid of the running process, or of the last one if it was killed. */
  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** What `process.kill` takes for the process and its workers: it is detached, so it has a process group of its own. */
  get #group(): number {
    return -this.pid;
  }

  get running(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** The last lines that it printed. */
  get log(): string {
    return this.#lines.join("\n");
  }

  /** Starts it, also after a `kill()`; resolves when it answers. When it rejects, no process is left. */
  async start(limits: StartLimits = {}): Promise<void> {
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
      await this.#ready(child, limits);
    } catch (error) {
      await this.kill();
      throw error;
    }
    // A server that was not stopped must not keep its starter alive: the guardian cleans up.
    child.unref();
    for (const pipe of [child.stdout, child.stderr]) (pipe as Socket).unref();
  }

  /** SIGKILL, also to its workers; resolves when the process has exited. */
  async kill(): Promise<void> {
    const child = this.#child;
    if (!child || !this.running) return;
    child.ref();
    const exited = once(child, "exit");
    process.kill(this.#group, "SIGKILL");
    await exited;
  }

  /**
   * Resolves when it has said what `printed`, a global expression, matches once more. A program that is still starting may ignore a
   * signal, so it is sent again.
   */
  async signal(name: NodeJS.Signals, printed: RegExp): Promise<void> {
    const times = () => this.log.match(printed)?.length ?? 0;
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
  pause(): void {
    if (!this.running) return;
    this.#child?.kill("SIGSTOP");
    const blocked = new Int32Array(new SharedArrayBuffer(4));
    for (let tries = 0; tries < 1_000 && !isStopped(this.pid); tries++) Atomics.wait(blocked, 0, 0, 1);
  }

  resume(): void {
    this.#child?.kill("SIGCONT");
  }

  async #ready(child: Child, { signal, timeoutMs = READY_MS }: StartLimits): Promise<void> {
    const late = AbortSignal.timeout(timeoutMs);
    const over = signal === undefined ? late : AbortSignal.any([signal, late]);
    const listening = new AbortController();
    try {
      const ready = this.#printsReady(child, listening.signal);
      await Promise.race([ready.then(() => this.#answers(child, over)), abortOf(over, listening.signal)]);
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      throw late.aborted ? this.#failure(`not ready within ${timeoutMs} ms`) : error;
    } finally {
      listening.abort();
    }
  }

  #printsReady(child: Child, over: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const ended = (code: number | null, signal: string | null) =>
        // What it printed last may arrive after its exit.
        setTimeout(
          () => reject(this.#failure(`ended with ${code ?? signal} before it was ready`)),
          LAST_WORDS_MS,
        );
      child.once("exit", ended);
      over.addEventListener("abort", () => child.off("exit", ended), { once: true });
      const onLine = (line: string): void => {
        if (this.#lines.push(line) > KEPT_LINES) this.#lines.shift();
        if (this.#plan.ready.test(line)) resolve();
      };
      readLines(child.stdout, onLine);
      readLines(child.stderr, onLine);
    });
  }

  // The log line appears before the listener has been tested.
  async #answers(child: Child, over: AbortSignal): Promise<void> {
    while (child.exitCode === null && child.signalCode === null) {
      const wrong = await this.#plan.answers().catch(String);
      if (wrong === "" || over.aborted) return;
      await delay(20);
    }
    throw this.#failure("ended before it answered");
  }

  #failure(what: string): Error {
    const text = `${this.#plan.title} ${what}. Its last words:\n${this.#lines.slice(-8).join("\n")}`;
    return /address already in use/i.test(this.log) ? new PortTakenError(text) : new Error(text);
  }
}

/** Rejects when `signal` aborts; is forgotten with `over`. */
function abortOf(signal: AbortSignal, over: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    over.addEventListener("abort", () => signal.removeEventListener("abort", abort), { once: true });
  });
}

// Without /proc, a stop is assumed to be immediate.
function isStopped(pid: number): boolean {
  const file = `/proc/${pid}/stat`;
  return !existsSync(file) || /\) T /.test(readFileSync(file, "utf8"));
}

function readLines(stream: Readable, onLine: (line: string) => void): void {
  let rest = "";
  stream.setEncoding("utf8");
  stream.on("data", (chunk: string) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    lines.forEach(onLine);
  });
}

const ATTEMPTS = 5;

/** Runs `start` again, with other ports, if another process took one of them between our check and the server's bind. */
export async function withFreshPorts<T>(start: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await start();
    } catch (error) {
      if (!(error instanceof PortTakenError) || attempt === ATTEMPTS) throw error;
    }
  }
}

/** A new folder for the data of servers, and the guardian that removes it and them. */
export async function guardedFolder(): Promise<{ readonly folder: string; readonly guardian: Guardian }> {
  const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-etcd-"));
  return { folder, guardian: new Guardian(folder) };
}

/** Starts members at once, because none is ready before most of them run. Rejects when every one has started or failed. */
export async function startAll(starts: readonly Promise<void>[]): Promise<void> {
  const started = await Promise.allSettled(starts);
  const failures = started.flatMap((result) =>
    result.status === "rejected" ? [result.reason as Error] : [],
  );
  const failure = failures.find((error) => error instanceof PortTakenError) ?? failures[0];
  if (failure) throw failure;
}
