// A Go program of this repository, built with its modules, or with Debian's Go libraries if no module proxy is
// reachable.
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { NotRunError } from "../../lab/runner/ground.js";
import { inCache } from "../etcd/etcd-cache.js";
import { explain } from "../etcd/etcd-go.js";

const run = promisify(execFile);
/** A build that fills its caches. */
export const BUILD_MS = 400_000;
const PROGRAM = "program";
/** Next to the program: the version of its client. */
const CLIENT = "client-version";

/** Where Debian's golang-*-dev packages install their sources. */
const DEBIAN = "/usr/share/gocode";
/** etcd 3.4, which Debian 12 contains, has its client at a different path than later versions. */
const OLD_CLIENT = "go.etcd.io/etcd/clientv3";
const NEW_CLIENT = "go.etcd.io/etcd/client/v3";

export interface GoProgram {
  readonly path: string;
  /** The version of etcd's client in it, such as "v3.7.3". */
  readonly client: string;
}

/** The program whose sources are in `folder`, from the cache; rejects with a `NotRunError` if it cannot be built. */
export async function goProgram(folder: string, name: string): Promise<GoProgram> {
  const hash = createHash("sha256");
  const files = readdirSync(folder).filter((file) => /\.(go|mod|sum)$/.test(file));
  for (const file of files.sort()) hash.update(`${file}\0`).update(readFileSync(path.join(folder, file)));
  const cached = `${name}-go-${hash.digest("hex").slice(0, 16)}-${process.arch}`;
  const built = await inCache(cached, process.env, (into) => build(folder, into)).catch((error: unknown) => {
    throw new NotRunError((error as Error).message, { cause: error });
  });
  return {
    path: path.join(built, PROGRAM),
    client: readFileSync(path.join(built, CLIENT), "utf8"),
  };
}

/** The version of etcd's client that a module requires, such as "v3.7.3". */
export function requiredClient(folder: string): string {
  const required = readFileSync(path.join(folder, "go.mod"), "utf8");
  return new RegExp(`${NEW_CLIENT} (v\\S+)`).exec(required)?.[1] ?? "?";
}

async function build(folder: string, into: string): Promise<void> {
  try {
    await compile(folder, into, { GOWORK: "off", GOFLAGS: "-mod=readonly" });
    writeFileSync(path.join(into, CLIENT), requiredClient(folder));
  } catch (error) {
    const why = explain(error);
    if (!existsSync(DEBIAN)) throw new Error(`no Go: ${why}`, { cause: error });
    await buildWithDebian(folder, into).catch((second: unknown) => {
      throw new Error(`no Go: ${why}; with Debian's libraries: ${explain(second)}`, { cause: second });
    });
  }
}

async function buildWithDebian(folder: string, into: string): Promise<void> {
  const old = existsSync(path.join(DEBIAN, "src", OLD_CLIENT));
  const work = mkdtempSync(path.join(os.tmpdir(), "leasehold-go-"));
  try {
    for (const file of readdirSync(folder).filter((name) => name.endsWith(".go"))) {
      cpSync(path.join(folder, file), path.join(work, file));
      const text = readFileSync(path.join(work, file), "utf8");
      if (old) writeFileSync(path.join(work, file), text.replaceAll(NEW_CLIENT, OLD_CLIENT));
    }
    await compile(work, into, { GO111MODULE: "off", GOPATH: DEBIAN, GOFLAGS: "" });
    writeFileSync(path.join(into, CLIENT), old ? "of Debian's etcd 3.4" : "of Debian's etcd");
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

async function compile(folder: string, into: string, env: NodeJS.ProcessEnv): Promise<void> {
  const args = ["build", "-buildvcs=false", "-o", path.join(into, PROGRAM), "."];
  const settings = { cwd: folder, env: { ...process.env, ...env }, timeout: BUILD_MS, maxBuffer: 16 << 20 };
  await run("go", args, settings);
}
