// A browser for tests: the machine's own Chromium, or Debian's, unpacked into the cache. Nothing is installed.
import { execFile } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { inCache } from "../etcd/etcd-cache.js";
import { fetchDebianTree } from "../etcd/etcd-debian.js";

const run = promisify(execFile);

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/**
 * Rejects with the reason if there is none.
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {Promise<import("./debian-program.js").Program>}
 */
export async function findChromium(env = process.env) {
  const folders = (env["PATH"] ?? "").split(path.delimiter).filter(Boolean);
  const installed = folders
    .flatMap((folder) => NAMES.map((name) => path.join(folder, name)))
    .filter(existsSync);
  for (const program of installed) {
    const version = await versionOf(program, env);
    if (version !== undefined) return { program, env, version };
  }
  return fetched(env).catch((/** @type {Error} */ error) => {
    throw new Error(`no Chromium on the PATH, nor to be had (${error.message})`, { cause: error });
  });
}

/** @param {NodeJS.ProcessEnv} env */
async function fetched(env) {
  const folder = await inCache(`chromium-debian-${process.arch}`, env, (into) =>
    fetchDebianTree({ name: "chromium", into, env }),
  );
  const libraries = path.join(folder, "usr/lib");
  const here = readdirSync(libraries).filter((name) => name.endsWith("-linux-gnu"));
  const paths = here.flatMap((name) => [
    path.join(libraries, name),
    path.join(libraries, name, "pulseaudio"),
  ]);
  const program = path.join(libraries, "chromium/chromium");
  const its = { ...env, LD_LIBRARY_PATH: paths.join(":") };
  const version = await versionOf(program, its);
  if (version === undefined) throw new Error(`${program} does not start`);
  return { program, env: its, version };
}

/** @param {string} program @param {NodeJS.ProcessEnv} env @returns {Promise<string | undefined>} */
async function versionOf(program, env) {
  const args = ["--version", "--no-sandbox"];
  const said = await run(program, args, { env, timeout: 30_000 }).catch(() => undefined);
  return said && /(\d+(\.\d+)+)/.exec(said.stdout)?.[1];
}
