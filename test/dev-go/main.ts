// etcd's own tests of the Go packages concurrency, naming and recipes, each on a new `startDevEtcd`: `node scripts/ready.js
// scripts/ts.js test/dev-go/main.ts`. Their sources come through the Go module proxy; go/ stands in for the framework that starts etcd
// for them. Arguments are those of `go test`, such as `-run TestMutex`. Prints `not run: reason` without Go or its modules.
import { execFile, spawn } from "node:child_process";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { EXIT_NOT_RUN } from "../../scripts/exit-not-run.js";
import { startDevEtcd, type TestEtcd } from "../../src/testing/start.js";
import { explain } from "../support/etcd/etcd-go.js";

const TESTS = "go.etcd.io/etcd/tests/v3@v3.6.16";
const PACKAGES = ["concurrency", "naming", "experimental/recipes"];
/** So many tests and examples there are. */
const KNOWN = 36;

const run = promisify(execFile);
const work = mkdtempSync(path.join(os.tmpdir(), "leasehold-dev-go-"));
const go = { cwd: work, env: { ...process.env, GOWORK: "off", GOFLAGS: "-mod=readonly" } };

/** The tests in `work`, compiled; returns why not if that cannot be done here. */
async function prepare(): Promise<string | undefined> {
  cpSync(fileURLToPath(new URL("go/", import.meta.url)), work, { recursive: true });
  try {
    const { stdout } = await run("go", ["mod", "download", "-json", TESTS], go);
    const { Dir: sources } = JSON.parse(stdout) as { Dir: string };
    for (const each of PACKAGES) {
      const place = path.join("integration", "clientv3", each);
      cpSync(path.join(sources, place), path.join(work, place), { recursive: true });
    }
    await run("go", ["mod", "download"], go);
  } catch (error) {
    const { code, stderr = "" } = error as NodeJS.ErrnoException & { stderr?: string };
    if (code !== "ENOENT" && !/dial tcp|lookup |time-?out|connection refused/i.test(stderr)) throw error;
    return explain(error);
  }
  return undefined;
}

/** Starts an etcd for each GET of /start/SIZE, which answers with its hosts, and stops it for one of /stop/HOSTS. */
class Clusters {
  static async open(): Promise<Clusters> {
    const server = http.createServer();
    await once(server.listen(0, "127.0.0.1"), "listening");
    return new Clusters(server);
  }

  readonly #running = new Map<string, TestEtcd>();

  private constructor(private readonly server: http.Server) {
    server.on("request", ({ url = "" }, response) => {
      const [, verb, of = ""] = url.split("/");
      const done = verb === "start" ? this.#start(of === "1" ? 1 : 3) : this.#stop(of);
      done.then(
        (text) => response.end(text),
        (error: unknown) => response.writeHead(500).end(String(error)),
      );
    });
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  async #start(members: 1 | 3): Promise<string> {
    const etcd = await startDevEtcd({ port: 0, members });
    const hosts = etcd.hosts.join();
    this.#running.set(hosts, etcd);
    return hosts;
  }

  async #stop(hosts: string): Promise<string> {
    await this.#running.get(hosts)?.stop();
    this.#running.delete(hosts);
    return "";
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#running.keys()].map((hosts) => this.#stop(hosts)));
    this.server.closeAllConnections();
    await once(this.server.close(), "close");
  }
}

interface TestEvent {
  readonly Action: string;
  readonly Test?: string;
  readonly Output?: string;
}

/** Prints what failed, and returns how many passed and failed. */
async function test(clusters: string): Promise<{ passed: number; failed: number }> {
  const args = [
    "test",
    "-json",
    "-count=1",
    "-p=1",
    "-timeout=5m",
    ...process.argv.slice(2),
    "./integration/clientv3/...",
  ];
  const env = { ...go.env, LEASEHOLD_CLUSTERS: clusters };
  const child = spawn("go", args, { ...go, env, stdio: ["ignore", "pipe", "inherit"] });
  const closed = once(child, "close");
  const said = new Map<string, string>();
  let [passed, failed] = [0, 0];
  for await (const line of readline.createInterface({ input: child.stdout })) {
    const { Action, Test, Output = "" } = JSON.parse(line) as TestEvent;
    const name = Test ?? "";
    if (Action === "output" || Action === "build-output") said.set(name, (said.get(name) ?? "") + Output);
    if (Action === "pass" && Test !== undefined) passed++;
    if (Action !== "fail" && Action !== "build-fail") continue;
    failed++;
    console.log(`--- failed: ${name}\n${said.get(name) ?? ""}`);
  }
  const [code] = (await closed) as [number | null];
  return { passed, failed: code === 0 ? failed : Math.max(1, failed) };
}

const reason = await prepare();
try {
  if (reason !== undefined) {
    console.log(`not run: ${reason}`);
    process.exitCode = EXIT_NOT_RUN;
  } else {
    await using clusters = await Clusters.open();
    const { passed, failed } = await test(clusters.url);
    const isWhole = passed >= (process.argv.length > 2 ? 1 : KNOWN);
    console.log(
      `${passed} of etcd's Go tests passed, ${failed} failed${isWhole ? "" : `: expected ${KNOWN}`}`,
    );
    process.exitCode = failed === 0 && isWhole ? 0 : 1;
  }
} finally {
  rmSync(work, { recursive: true, force: true });
}
