// Finds the etcd that tests, demo and playground start; fetches one if the machine has none. It only looks for
// programs, never for a running server: tests kill leaders and fill quotas.
import { execFile } from "node:child_process";
import { existsSync, readFileSync, realpathSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { cacheFolder, inCache } from "./etcd-cache.js";
import { buildWithGo } from "./etcd-go.js";
import { fetchDebianPackages } from "./etcd-debian.js";

const run = promisify(execFile);

/**
 * @typedef {object} Etcd
 * @property {string} etcd path of the server
 * @property {string} etcdctl path of the client
 * @property {string} version such as "3.4.23"
 */

/** EX_UNAVAILABLE of sysexits.h: something that this command needs is missing. */
export const EXIT_UNAVAILABLE = 69;

/** There is no etcd on this machine and no way to get one. `message` says what was tried and what to do. */
export class EtcdMissingError extends Error {
  /** @param {readonly string[]} tried @param {string} [version] */
  constructor(tried, version) {
    super(missingText(tried, version));
    this.name = "EtcdMissingError";
    this.exitCode = EXIT_UNAVAILABLE;
    this.reason = tried.at(-1) ?? "nothing was tried";
  }
}

/**
 * @param {{ version?: string | undefined, env?: NodeJS.ProcessEnv }} [options] `version`: a prefix such as "3.5";
 *   default: LEASEHOLD_ETCD_VERSION, else whatever comes first
 * @returns {Promise<Etcd>}
 */
export async function findEtcd(options = {}) {
  const env = options.env ?? process.env;
  const version = options.version ?? (env["LEASEHOLD_ETCD_VERSION"] || undefined);
  /** @type {string[]} */
  const tried = [];
  for (const step of [fromFolder, fromPath, fromCacheOrFetch]) {
    const found = await step({ env, version, tried });
    if (found) return found;
  }
  throw new EtcdMissingError(tried, version);
}

/**
 * @typedef {object} Search
 * @property {NodeJS.ProcessEnv} env
 * @property {string | undefined} version
 * @property {string[]} tried
 */

/** @param {Search} search */
async function fromFolder(search) {
  const folder = search.env["LEASEHOLD_ETCD"];
  if (folder) return candidate(`LEASEHOLD_ETCD=${folder}`, [folder], search);
  search.tried.push("LEASEHOLD_ETCD: not set");
  return undefined;
}

/** @param {Search} search */
async function fromPath(search) {
  const folders = (search.env["PATH"] ?? "").split(path.delimiter).filter(Boolean);
  return candidate("PATH", folders, search);
}

/** @param {Search} search */
async function fromCacheOrFetch(search) {
  const { env, version, tried } = search;
  if (process.platform !== "linux") {
    tried.push(`download: only known for Linux, this is ${process.platform}`);
    return undefined;
  }
  const fetch = isNewerThanDebian(version) ? buildWithGo : fetchDebianPackages;
  const name = version ? `etcd-${version}-${process.arch}` : `etcd-${osRelease().id}-${process.arch}`;
  try {
    const folder = await inCache(name, env, (into) => fetch(into, { env, version }));
    return await candidate(`cache ${folder}`, [folder], search);
  } catch (error) {
    tried.push(`cache ${path.join(cacheFolder(env), name)}: empty`);
    tried.push(error instanceof Error ? error.message : String(error));
    return undefined;
  }
}

/** @param {string | undefined} version */
function isNewerThanDebian(version) {
  return version !== undefined && Number(version.split(".")[1]) >= 6;
}

/**
 * @param {string} where @param {readonly string[]} folders @param {Search} search
 * @returns {Promise<Etcd | undefined>}
 */
async function candidate(where, folders, { env, version, tried }) {
  const etcd = inFolders(folders, "etcd");
  const etcdctl = inFolders(folders, "etcdctl");
  if (!etcd || !etcdctl) {
    tried.push(`${where}: no ${[!etcd && "etcd", !etcdctl && "etcdctl"].filter(Boolean).join(", no ")}`);
    return undefined;
  }
  const actual = await versionOf(etcd, env).catch((/** @type {Error} */ error) => {
    tried.push(`${where}: ${etcd} --version failed: ${error.message.split("\n")[0]}`);
  });
  if (!actual) return undefined;
  if (!version || actual === version || actual.startsWith(`${version}.`))
    return { etcd, etcdctl, version: actual };
  tried.push(`${where}: has ${actual}, asked for ${version}`);
  return undefined;
}

/** @param {readonly string[]} folders @param {string} name */
function inFolders(folders, name) {
  return folders.map((folder) => path.resolve(folder, name)).find((file) => existsSync(file));
}

/** @param {string} etcd @param {NodeJS.ProcessEnv} env */
async function versionOf(etcd, env) {
  const { stdout } = await run(etcd, ["--version"], { timeout: 20_000, env: etcdEnv(env) });
  return /etcd Version: (\S+)/.exec(stdout)?.[1];
}

/**
 * The environment for etcd and etcdctl: without the user's own ETCD_* settings, which would redirect them.
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {NodeJS.ProcessEnv}
 */
export function etcdEnv(env = process.env) {
  const clean = Object.fromEntries(Object.entries(env).filter(([name]) => !/^ETCD(CTL)?_/.test(name)));
  // etcd 3.4 refuses to start on arm64 without this acknowledgement
  return process.arch === "x64" ? clean : { ...clean, ETCD_UNSUPPORTED_ARCH: process.arch };
}

function osRelease() {
  const text = existsSync("/etc/os-release") ? readFileSync("/etc/os-release", "utf8") : "";
  /** @param {string} key */
  const field = (key) => new RegExp(`^${key}="?([^"\n]*)"?$`, "m").exec(text)?.[1] ?? "";
  return {
    id: `${field("ID") || "linux"}${field("VERSION_ID")}`,
    like: `${field("ID")} ${field("ID_LIKE")}`,
  };
}

/** @param {readonly string[]} tried @param {string | undefined} version */
function missingText(tried, version) {
  return [
    `No etcd${version ? ` ${version}` : ""} was found on this machine. Tried, in this order:`,
    ...tried.map((line) => `  - ${line}`),
    `What to do: ${advice(version)}`,
  ].join("\n");
}

/** @param {string | undefined} version */
function advice(version) {
  if (process.platform === "win32")
    return "use WSL (the library itself runs on Windows; demo and tests do not).";
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

/**
 * For the entry points of command lines: prints what is missing and exits with 69; rethrows anything else.
 * @param {unknown} error
 * @returns {never}
 */
export function exitWhenMissing(error) {
  if (!(error instanceof EtcdMissingError)) throw error;
  console.error(error.message);
  process.exit(error.exitCode);
}

const isMain =
  process.argv[1] !== undefined && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url);
if (isMain) {
  const found = await findEtcd().catch(exitWhenMissing);
  console.log(`etcd ${found.version}${os.EOL}${found.etcd}${os.EOL}${found.etcdctl}`);
}
