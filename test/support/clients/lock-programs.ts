// Programs that lock with another client than leasehold: Go's package concurrency, and jetcd. They read orders and answer in lines of JSON.
import { execFile, spawn, type ChildProcessByStdio } from "node:child_process";
import { once } from "node:events";
import { cpSync, readFileSync } from "node:fs";
import path from "node:path";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { goProgram } from "../../lab/rivals/go/build.js";
import { NotRunError } from "../../lab/runner/ground.js";
import { inCache } from "../etcd/etcd-cache.js";
import { BUILD_MS } from "../programs/go-program.js";
import { owned } from "../programs/owned.js";
import { Said } from "../programs/said.js";

const run = promisify(execFile);
const JETCD = fileURLToPath(new URL("./jetcd/", import.meta.url));
/** For a lock call, and what follows it. */
const TIMEOUT_MS = 60_000;

export type Command = readonly [string, ...string[]];

/** Rejects with a `NotRunError` where it can't be built. */
export const goCommand = async (): Promise<Command> => [await goProgram()];

/** Rejects with a `NotRunError` without Java, Maven or its modules. */
export async function jetcdCommand(): Promise<Command> {
  const [, version = "?"] =
    /jetcd-core<\/artifactId>\s*<version>([^<]+)/.exec(readFileSync(path.join(JETCD, "pom.xml"), "utf8")) ??
    [];
  try {
    await run("java", ["-version"]);
    const jars = await inCache(`jetcd-${version}`, process.env, copyJars);
    return ["java", "-cp", `${jars}/*`, path.join(JETCD, "LockProgram.java")];
  } catch (error) {
    const { message, stdout = "" } = error as Error & { stdout?: string };
    const why = stdout.split("\n").find((line) => line.includes("ERROR")) ?? message;
    throw new NotRunError(`no jetcd: ${why.slice(0, 200)}`, { cause: error });
  }
}

async function copyJars(into: string): Promise<void> {
  cpSync(path.join(JETCD, "pom.xml"), path.join(into, "pom.xml"));
  const copy = [
    "-q",
    "-B",
    "dependency:copy-dependencies",
    `-DoutputDirectory=${into}`,
    "-DincludeScope=runtime",
  ];
  await run("mvn", copy, { cwd: into, timeout: BUILD_MS });
}

interface Told {
  readonly k: string;
  readonly id?: number;
  readonly token?: string;
  readonly err?: string;
}

export class LockProgram {
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #said: Said;
  #ids = 0;

  static async start(
    [program, ...args]: Command,
    task: { addresses: readonly string[]; ttlSeconds: number },
  ): Promise<LockProgram> {
    const child = owned(spawn(program, [...args, JSON.stringify(task)], { stdio: "pipe" }));
    const started = new LockProgram(child);
    await started.#answer("ready");
    return started;
  }

  private constructor(child: ChildProcessByStdio<Writable, Readable, Readable>) {
    this.#child = child;
    this.#said = new Said(child);
    child.stdin.on("error", () => {});
  }

  /** Resolves with the create revision of its key once it holds. */
  async lock(name: string): Promise<{ id: number; token: bigint }> {
    const id = this.#tell({ do: "acquire", name });
    const { k, token = "", err = "" } = await this.#answer("granted", id);
    if (k === "refused") throw new Error(err);
    return { id, token: BigInt(token) };
  }

  /** undefined: it is locked. */
  async tryLock(name: string): Promise<{ id: number; token: bigint } | undefined> {
    const id = this.#tell({ do: "tryAcquire", name });
    const { k, token = "", err = "" } = await this.#answer("granted", id);
    if (k === "granted") return { id, token: BigInt(token) };
    if (/Locked by another session/.test(err)) return undefined;
    throw new Error(err);
  }

  async unlock(id: number): Promise<void> {
    this.#tell({ do: "release" }, id);
    await this.#answer("released", id);
  }

  /** kill -9 */
  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await exited;
  }

  #tell(order: object, id = ++this.#ids): number {
    this.#child.stdin.write(`${JSON.stringify({ ...order, id, timeoutMs: TIMEOUT_MS })}\n`);
    return id;
  }

  /** The answer of this kind, or a refusal. */
  async #answer(kind: string, id?: number): Promise<Told> {
    const fits = (line: string): boolean => {
      const told = JSON.parse(line) as Told;
      return (
        (told.k === kind || told.k === "refused" || told.k === "unreleased") &&
        (id === undefined || told.id === id)
      );
    };
    const told = JSON.parse(await this.#said.first(fits)) as Told;
    if (told.k === "unreleased") throw new Error(told.err);
    return told;
  }
}
