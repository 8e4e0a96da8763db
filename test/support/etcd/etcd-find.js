// Finds the etcd that tests, demo and playground start; fetches one if the machine has none.
import { realpathSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import {
  candidate,
  EtcdMissingError,
  fromFolder,
  fromPath,
  osRelease,
  searchEtcd,
} from "../../../dist/testing/find.js";
import { cacheFolder, inCache } from "./etcd-cache.js";
import { buildWithGo } from "./etcd-go.js";
import { fetchDebianPackages } from "./etcd-debian.js";

export { EtcdMissingError, etcdEnv } from "../../../dist/testing/find.js";

/**
 * @typedef {object} Etcd
 * @property {string} etcd path of the server
 * @property {string} etcdctl path of the client
 * @property {string} version such as "3.4.23"
 */

/** @typedef {import("../../../dist/testing/find.js").Search} Search */

/**
 * @param {{ version?: string | undefined, env?: NodeJS.ProcessEnv }} [options] `version`: a prefix such as "3.5";
 *   default: LEASEHOLD_ETCD_VERSION, else whatever comes first
 * @returns {Promise<Etcd>}
 */
export async function findEtcd(options = {}) {
  const env = options.env ?? process.env;
  const version = options.version ?? (env["LEASEHOLD_ETCD_VERSION"] || undefined);
  const steps = [fromFolder, fromPath, fromCacheOrFetch];
  const { etcdctl = "", ...found } = await searchEtcd(steps, { env, version, withClient: true });
  return { ...found, etcdctl };
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
