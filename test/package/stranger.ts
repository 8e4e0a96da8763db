// `npm run stranger`: the path of a new user. An empty project, the packed package, `npm run etcd`, and then the programs of README.md,
// copied. Prints the seconds of each step; exits with code 1 at the first that fails.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdir } from "node:fs/promises";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { makeAuthority, writeServerFiles } from "../support/fixtures/certificates.js";
import { programOf, sectionsOf } from "../support/fixtures/pages.js";
import { startWithUsers, WORKER } from "../support/fixtures/users.js";
import { Folder, removeFolders } from "./shell.js";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const SECTIONS = {
  lock: "A lock in ten lines",
  tls: "TLS and authentication",
  leader: "Leader election",
  shutdown: "Graceful shutdown",
};

let total = 0;

async function step<T>(name: string, work: () => Promise<T>): Promise<T> {
  const start = performance.now();
  const result = await work();
  const seconds = (performance.now() - start) / 1000;
  total += seconds;
  console.log(`${seconds.toFixed(1).padStart(6)} s  ${name}`);
  return result;
}

/** The commands of the repository run there; their output is all that the user knows of the cluster. */
async function npmRunEtcd(): Promise<{ hosts: string[]; stop(): Promise<unknown> }> {
  const args = ["run", "--silent", "etcd", "--", "--members", "1"];
  const child = spawn("npm", args, { cwd: ROOT, stdio: ["ignore", "pipe", "inherit"], detached: true });
  const ended = once(child, "exit");
  const stop = () => {
    if (child.exitCode === null) process.kill(-child.pid!, "SIGTERM");
    return ended;
  };
  for await (const line of createInterface({ input: child.stdout })) {
    const [, list] = /hosts: "(.*)"/.exec(line) ?? [];
    if (list !== undefined) return { hosts: list.split(","), stop };
  }
  throw new Error("npm run etcd printed no hosts");
}

async function runSection(folder: Folder, title: string, hosts: readonly string[]): Promise<string> {
  const section = sectionsOf("README.md").find((it) => it.title === title);
  if (section === undefined) throw new Error(`README.md has no section "${title}"`);
  // What strips the types of TypeScript finds none in README.md but the one of `work`.
  const program = programOf(section, hosts).replace("(_: unknown)", "(_)");
  const file = `${title.toLowerCase().replaceAll(" ", "-")}.mjs`;
  await folder.write({ [file]: program });
  return folder.run(process.execPath, [file], { ETCD_PASSWORD: WORKER.password });
}

async function tls(folder: Folder): Promise<void> {
  const authority = makeAuthority("the authority");
  const files = await writeServerFiles(authority, authority.issue("etcd"));
  const secure = await startWithUsers({ clientTls: { ...files, clientCertAuth: true } });
  try {
    const { certificate, key } = authority.issue("a client");
    await folder.write({ "ca.pem": authority.certificate, "client.pem": certificate, "client-key.pem": key });
    await runSection(folder, SECTIONS.tls, secure.endpoints);
  } finally {
    await secure.stop();
    await files.remove();
  }
}

const packed = await Folder.create("tarball");
await packed.run("npm", ["pack", "--silent", "--pack-destination", packed.path, ROOT]);
const [archive = ""] = (await readdir(packed.path)).filter((file) => file.endsWith(".tgz"));
let etcd: Awaited<ReturnType<typeof npmRunEtcd>> | undefined;
try {
  const folder = await Folder.create("stranger");
  await step("npm install leasehold, in an empty project", () =>
    folder.install(path.join(packed.path, archive)),
  );
  const { hosts } = (etcd = await step("npm run etcd, until it prints its hosts", npmRunEtcd));
  const said = await step("first lock", () => runSection(folder, SECTIONS.lock, hosts));
  if (!/holding jobs\/nightly with fencing token \d+/.test(said))
    throw new Error(`the first lock said: ${said}`);
  await step("TLS, with a client certificate and a password (starts an etcd with both)", () => tls(folder));
  await step("leader", () => runSection(folder, SECTIONS.leader, hosts));
  await step("shutdown, by SIGTERM", () => runSection(folder, SECTIONS.shutdown, hosts));
  console.log(`${total.toFixed(1).padStart(6)} s  in all: works`);
} catch (error) {
  console.error(`error  ${(error as Error).message}`);
  process.exitCode = 1;
} finally {
  await etcd?.stop();
  await removeFolders();
}
