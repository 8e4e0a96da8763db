import { execFile } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** The programs of one etcd, by path. */
export interface Programs {
  readonly etcd: string;
  readonly etcdctl: string | undefined;
  /** The version of the server, such as "3.4.23". */
  readonly version: string;
}

export interface Search {
  readonly env: NodeJS.ProcessEnv;
  /** A prefix of the version, such as "3.5". */
  readonly version: string | undefined;
  /** Whether a folder without etcdctl is passed over. */
  readonly withClient: boolean;
  /** One line for each place that had none. */
  readonly tried: string[];
}
type Step = (search: Search) => Promise<Programs | undefined>;

/** There is no etcd on this machine. `message` says what was tried and what to do. */
export class EtcdMissingError extends Error {
  override readonly name = "EtcdMissingError";
  /** EX_UNAVAILABLE of sysexits.h: something that a command needs is missing. */
  readonly exitCode = 69;
  readonly reason: string;

  constructor(tried: readonly string[], version?: string) {
    super(
      [
        `No etcd${version ? ` ${version}` : ""} was found on this machine. Tried, in this order:`,
        ...tried.map((line) => `  - ${line}`),
        `What to do: ${advice(version)}`,
        "In tests, memoryEtcd() of leasehold/testing needs none; `npx leasehold dev` starts one for development.",
      ].join("\n"),
    );
    this.reason = tried.at(-1) ?? "nothing was tried";
  }
}

/** What leasehold/testing looks through: it downloads nothing. */
export const STEPS: readonly Step[] = [fromFolder, fromPath, fromCache];

/**
 * The first etcd that one of the steps finds. It only looks for programs, never for a running server: tests kill and fill it.
 * @throws {EtcdMissingError}
 */
export async function searchEtcd(steps: readonly Step[], search: Omit<Search, "tried">): Promise<Programs> {
  const tried: string[] = [];
  for (const step of steps) {
    const found = await step({ ...search, tried });
    if (found) return found;
  }
  throw new EtcdMissingError(tried, search.version);
}

export async function fromFolder(search: Search): Promise<Programs | undefined> {
  const folder = search.env["LEASEHOLD_ETCD"];
  if (folder) return candidate(`LEASEHOLD_ETCD=${folder}`, [folder], search);
  search.tried.push("LEASEHOLD_ETCD: not set");
  return undefined;
}

export async function fromPath(search: Search): Promise<Programs | undefined> {
  const folders = (search.env["PATH"] ?? "").split(path.delimiter).filter(Boolean);
  return candidate("PATH", folders, search);
}

/** What the commands of this repository have left in the user's cache. */
async function fromCache(search: Search): Promise<Programs | undefined> {
  const { env } = search;
  const caches = env["XDG_CACHE_HOME"] || path.join(env["HOME"] || os.homedir(), ".cache");
  const cache = path.join(caches, "leasehold");
  const all = existsSync(cache) ? readdirSync(cache).sort() : [];
  const names = all.filter((name) => name.startsWith("etcd-") && name.endsWith(`-${process.arch}`));
  if (names.length === 0) search.tried.push(`cache ${cache}: no etcd`);
  for (const folder of names.map((name) => path.join(cache, name))) {
    const found = await candidate(`cache ${folder}`, [folder], search);
    if (found) return found;
  }
  return undefined;
}

/** The etcd in the first of these folders that has one, if its version fits. */
export async function candidate(
  where: string,
  folders: readonly string[],
  search: Search,
): Promise<Programs | undefined> {
  const { tried, version, withClient } = search;
  const etcd = inFolders(folders, "etcd");
  const etcdctl = inFolders(folders, "etcdctl");
  if (!etcd || (withClient && !etcdctl)) {
    const missing = [!etcd && "no etcd", withClient && !etcdctl && "no etcdctl"];
    tried.push(`${where}: ${missing.filter(Boolean).join(", ")}`);
    return undefined;
  }
  const actual = await versionOf(etcd, search.env).catch((error: Error) => {
    tried.push(`${where}: ${etcd} --version failed: ${error.message.split("\n")[0]}`);
  });
  if (!actual) return undefined;
  if (!version || actual === version || actual.startsWith(`${version}.`))
    return { etcd, etcdctl, version: actual };
  tried.push(`${where}: has ${actual}, asked for ${version}`);
  return undefined;
}

function inFolders(folders: readonly string[], name: string): string | undefined {
  return folders.map((folder) => path.resolve(folder, name)).find((file) => existsSync(file));
}

/** The version that this program prints. */
export async function versionOf(
  etcd: string,
  env: NodeJS.ProcessEnv = process.env,
): Promise<string | undefined> {
  const { stdout } = await run(etcd, ["--version"], { timeout: 20_000, env: etcdEnv(env) });
  return /etcd Version: (\S+)/.exec(stdout)?.[1];
}

/** The environment for etcd and etcdctl: without the user's own ETCD_* settings, which would redirect them. */
export function etcdEnv(env: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  const clean = Object.fromEntries(Object.entries(env).filter(([name]) => !/^ETCD(CTL)?_/.test(name)));
  // etcd 3.4 refuses to start on arm64 without this acknowledgement
  return process.arch === "x64" ? clean : { ...clean, ETCD_UNSUPPORTED_ARCH: process.arch };
}

/** The distribution of this machine, as in /etc/os-release. */
export function osRelease(): { readonly id: string; readonly like: string } {
  const text = existsSync("/etc/os-release") ? readFileSync("/etc/os-release", "utf8") : "";
  const field = (key: string) => new RegExp(`^${key}="?([^"\n]*)"?$`, "m").exec(text)?.[1] ?? "";
  return {
    id: `${field("ID") || "linux"}${field("VERSION_ID")}`,
    like: `${field("ID")} ${field("ID_LIKE")}`,
  };
}

function advice(version: string | undefined): string {
  if (process.platform === "win32")
    return "use WSL (the library itself runs on Windows; what starts an etcd does not).";
  const release =
    "unpack a release of https://github.com/etcd-io/etcd/releases and set LEASEHOLD_ETCD to its folder";
  if (version !== undefined) return `${release}.`;
  if (process.platform === "darwin") return "brew install etcd";
  const { like } = osRelease();
  if (/debian|ubuntu/.test(like)) return "sudo apt-get install etcd-server etcd-client";
  if (/fedora|rhel|centos/.test(like)) return `sudo dnf install etcd   (or ${release})`;
  if (/suse/.test(like)) return `sudo zypper install etcd   (or ${release})`;
  return `${release}.`;
}
