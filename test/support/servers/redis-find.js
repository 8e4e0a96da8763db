// Finds the Redis server for comparisons; fetches Debian's package into the cache if the machine has none.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { rename } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { inCache } from "../etcd/etcd-cache.js";
import { fetchDebianFiles } from "../etcd/etcd-debian.js";

const run = promisify(execFile);

/**
 * @typedef {object} Redis
 * @property {string} program path of the server
 * @property {NodeJS.ProcessEnv} env to start it with
 * @property {string} version such as "7.0.15"
 */

/** There is no Redis on this machine and no way to get one; `message` says why. */
export class RedisMissingError extends Error {}

/**
 * The first one on the PATH that starts, otherwise the one in the cache.
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {Promise<Redis>}
 */
export async function findRedis(env = process.env) {
  const folders = (env["PATH"] ?? "").split(path.delimiter).filter(Boolean);
  const installed = folders.map((folder) => path.resolve(folder, "redis-server")).find(existsSync);
  const found = installed && (await started(installed, env));
  return found || fetched(env);
}

/** @param {NodeJS.ProcessEnv} env @returns {Promise<Redis>} */
async function fetched(env) {
  try {
    const folder = await inCache(`redis-debian-${process.arch}`, env, (into) => fetch(into, env));
    const found = await started(path.join(folder, "redis-server"), { ...env, LD_LIBRARY_PATH: folder });
    if (found) return found;
    throw new Error(`${folder} has one that does not start`);
  } catch (error) {
    const why = /** @type {Error} */ (error).message;
    throw new RedisMissingError(`no redis-server on the PATH, nor to be had (${why})`, { cause: error });
  }
}

// Debian has one program under several names, in the package of the tools: its name at startup determines its function.
/** @param {string} into @param {NodeJS.ProcessEnv} env */
async function fetch(into, env) {
  const libraries = ["libjemalloc.so.2", "liblzf.so.1", "libatomic.so.1"];
  await fetchDebianFiles({
    packages: ["redis-tools", "libjemalloc2", "liblzf1", "libatomic1"],
    files: ["usr/bin/redis-check-rdb", ...libraries.map((file) => `usr/lib/*/${file}`)],
    ...{ into, env },
  });
  await rename(path.join(into, "redis-check-rdb"), path.join(into, "redis-server"));
}

/** @param {string} program @param {NodeJS.ProcessEnv} env @returns {Promise<Redis | undefined>} */
async function started(program, env) {
  const { stdout } = await run(program, ["--version"], { env, timeout: 20_000 }).catch(() => ({
    stdout: "",
  }));
  const version = / v=(\S+)/.exec(stdout)?.[1];
  return version === undefined ? undefined : { program, env, version };
}
