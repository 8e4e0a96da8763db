// Finds a server for tests; fetches Debian's package into the cache if the machine has none. Nothing is installed.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { inCache } from "../etcd/etcd-cache.js";
import { fetchDebianFiles } from "../etcd/etcd-debian.js";

const run = promisify(execFile);

/**
 * @typedef {object} Program
 * @property {string} program its path
 * @property {NodeJS.ProcessEnv} env to start it with
 * @property {string} version such as "7.0.15"
 */

/**
 * @typedef {object} ProgramPlan
 * @property {string} name of the program
 * @property {string} cache the folder's name begins with it
 * @property {string[]} packages of Debian that have it, and its libraries
 * @property {string[]} files of these packages, such as "usr/bin/it": see `fetchDebianFiles`
 * @property {string} versionArg makes it print its version
 * @property {RegExp} version finds that in the output
 * @property {(folder: string) => Promise<void>} [prepare] the files that were fetched
 */

/** The program is not on this machine and there is no way to get it; `message` says why. */
export class ProgramMissingError extends Error {}

/**
 * The first one on the PATH that starts, otherwise the one in the cache.
 * @param {ProgramPlan} plan @param {NodeJS.ProcessEnv} env
 * @returns {Promise<Program>}
 */
export async function findProgram(plan, env) {
  const folders = (env["PATH"] ?? "").split(path.delimiter).filter(Boolean);
  const installed = folders.map((folder) => path.resolve(folder, plan.name)).find(existsSync);
  const found = installed && (await started(plan, installed, env));
  return found || fetched(plan, env);
}

/** @param {ProgramPlan} plan @param {NodeJS.ProcessEnv} env @returns {Promise<Program>} */
async function fetched(plan, env) {
  const { name, cache, packages, files, prepare = async () => {} } = plan;
  try {
    const folder = await inCache(`${cache}-debian-${process.arch}`, env, async (into) => {
      await fetchDebianFiles({ packages, files, into, env });
      await prepare(into);
    });
    const found = await started(plan, path.join(folder, name), { ...env, LD_LIBRARY_PATH: folder });
    if (found) return found;
    throw new Error(`${folder} has one that does not start`);
  } catch (error) {
    const why = /** @type {Error} */ (error).message;
    throw new ProgramMissingError(`no ${name} on the PATH, nor to be had (${why})`, { cause: error });
  }
}

/** @param {ProgramPlan} plan @param {string} program @param {NodeJS.ProcessEnv} env @returns {Promise<Program | undefined>} */
async function started({ versionArg, version }, program, env) {
  const said = await run(program, [versionArg], { env, timeout: 20_000 }).catch(() => undefined);
  const found = said && version.exec(said.stdout + said.stderr)?.[1];
  return found === undefined ? undefined : { program, env, version: found };
}
