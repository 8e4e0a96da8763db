// Builds etcd from its Go modules, for series that no Debian release has yet. `go install …@version` refuses them
// because of their replace directives; a main module that imports them works.
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

const SERVER = `package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
`;
const CLIENT = `package main

import "go.etcd.io/etcd/etcdctl/v3/ctlv3"

func main() { ctlv3.MustStart() }
`;

/**
 * @param {string} into folder that gets `etcd` and `etcdctl`
 * @param {{ env: NodeJS.ProcessEnv, version?: string | undefined }} options `version`: "3.6" = its newest patch
 */
export async function buildWithGo(into, { env, version }) {
  const work = await mkdtemp(path.join(os.tmpdir(), "leasehold-go-"));
  const settings = { cwd: work, env: { ...env, GOWORK: "off", GOFLAGS: "-mod=mod" }, timeout: 400_000 };
  /** @param {readonly string[]} args */
  const go = (...args) => run("go", args, { ...settings, maxBuffer: 16 << 20 });
  try {
    await writeMain(work, "etcd", SERVER);
    await writeMain(work, "etcdctl", CLIENT);
    await go("mod", "init", "leasehold.example/etcd");
    await go("get", `go.etcd.io/etcd/server/v3@v${version}`, `go.etcd.io/etcd/etcdctl/v3@v${version}`);
    await go("build", "-buildvcs=false", "-o", into + path.sep, "./etcd", "./etcdctl");
  } catch (error) {
    throw new Error(`build with Go: ${explain(error)}`, { cause: error });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** @param {string} work @param {string} name @param {string} source */
async function writeMain(work, name, source) {
  await mkdir(path.join(work, name));
  await writeFile(path.join(work, name, "main.go"), source);
}

/** Why a `go` command failed. @param {unknown} error */
export function explain(error) {
  const { code, message, stderr } = /** @type {NodeJS.ErrnoException & { stderr?: string }} */ (error);
  if (code === "ENOENT") return "there is no go here";
  const told = (stderr ?? "").split("\n").filter((line) => line && !line.startsWith("go: downloading"));
  return told.at(-1) ?? message.split("\n")[0] ?? "failed";
}
