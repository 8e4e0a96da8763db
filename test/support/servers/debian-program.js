// Finds a program for tests: the machine's own, or that of Debian's package, unpacked into the cache. Nothing is installed.
// - Both have the layout of the package, below different folders: `root`. An installed program counts only if what it is to load
//   lies there, too.
// - Libraries that neither the package nor the machine has are unpacked with it.
import { execFile } from "node:child_process";
import { existsSync, readdirSync, realpathSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { debianTree } from "../etcd/etcd-debian.js";

const run = promisify(execFile);

/** Libraries are found below these, and pulseaudio has some in a folder of its own. */
const LIBRARIES = ["lib", "usr/lib"];
const OWN = ["", "pulseaudio"];

/**
 * @typedef {object} Program
 * @property {string} program its path
 * @property {string} root the folder in which the files of its package lie: "/" if it is installed
 * @property {NodeJS.ProcessEnv} env to start it with
 * @property {string} version such as "7.0.15"
 */

/**
 * @typedef {object} ProgramPlan
 * @property {readonly [string, ...string[]]} names on the PATH
 * @property {string} [package] of Debian that has it
 * @property {string} [file] of that package: the program
 * @property {readonly string[]} [loads] files of that package that tests make it load
 * @property {readonly string[]} versionArgs make it print its version
 * @property {RegExp} version finds that in the output
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
  for (const folder of folders)
    for (const program of plan.names.map((name) => path.resolve(folder, name)).filter(existsSync)) {
      const found = await started(plan, { program, root: rootOf(program, plan.file), env });
      if (found) return found;
    }
  return fetched(plan, env).catch((/** @type {Error} */ error) => {
    throw new ProgramMissingError(`no ${plan.names[0]} on the PATH, nor to be had (${error.message})`, {
      cause: error,
    });
  });
}

/** One that isn't where the package has it has no other file there. @param {string} program @param {string} [file] */
function rootOf(program, file = "") {
  const place = path.join(realpathSync(path.dirname(program)), path.basename(program));
  return file !== "" && place.endsWith(`/${file}`) ? place.slice(0, -file.length) : path.dirname(place);
}

/** @param {ProgramPlan} plan @param {NodeJS.ProcessEnv} env @returns {Promise<Program>} */
async function fetched(plan, env) {
  const { file } = plan;
  if (plan.package === undefined || file === undefined) throw new Error("Debian has none");
  const root = await debianTree(plan.package, env);
  const its = { ...env, LD_LIBRARY_PATH: librariesOf(root).join(path.delimiter) };
  const found = await started(plan, { program: path.join(root, file), root, env: its });
  if (found) return found;
  throw new Error(`${root} has one that does not start`);
}

/** @param {string} root */
function librariesOf(root) {
  const parents = LIBRARIES.map((name) => path.join(root, name)).filter(existsSync);
  const ofMachine = parents.flatMap((parent) =>
    readdirSync(parent)
      .filter((name) => name.endsWith("-linux-gnu"))
      .map((name) => path.join(parent, name)),
  );
  return ofMachine.flatMap((folder) => OWN.map((name) => path.join(folder, name))).filter(existsSync);
}

/** @param {ProgramPlan} plan @param {Omit<Program, "version">} found @returns {Promise<Program | undefined>} */
async function started({ loads = [], versionArgs, version }, found) {
  const { program, root, env } = found;
  if (!loads.every((file) => existsSync(path.join(root, file)))) return undefined;
  const said = await run(program, versionArgs, { env, timeout: 30_000 }).catch(() => undefined);
  const its = said && version.exec(said.stdout + said.stderr)?.[1];
  return its === undefined ? undefined : { ...found, version: its };
}
