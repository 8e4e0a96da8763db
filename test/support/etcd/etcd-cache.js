// A folder of programs that several processes may try to fill at once: one fetches, and the others wait for it.
import { existsSync, statSync } from "node:fs";
import { mkdir, open, readFile, rename, rm, utimes } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";

const POLL_MS = 100;
const BEAT_MS = 2_000;
/** A fetcher touches its lock every BEAT_MS; one that has not for this long is considered dead. */
const STALE_MS = 30_000;

/** @param {NodeJS.ProcessEnv} [env] */
export function cacheFolder(env = process.env) {
  const base = env["XDG_CACHE_HOME"] || path.join(env["HOME"] || os.homedir(), ".cache");
  return path.join(base, "leasehold");
}

/**
 * The folder `name` of the cache, filled by `fill` on first use.
 * @param {string} name
 * @param {NodeJS.ProcessEnv} env
 * @param {(folder: string) => Promise<void>} fill gets an empty folder beside the final one
 * @returns {Promise<string>}
 */
export async function inCache(name, env, fill) {
  const cache = cacheFolder(env);
  const folder = path.join(cache, name);
  if (existsSync(folder)) return folder;
  await mkdir(cache, { recursive: true });
  const unlock = await lock(`${folder}.lock`);
  try {
    if (!existsSync(folder)) await fillBeside(folder, fill);
    return folder;
  } finally {
    await unlock();
  }
}

/** @param {string} folder @param {(folder: string) => Promise<void>} fill */
async function fillBeside(folder, fill) {
  const work = `${folder}.${process.pid}-${randomUUID().slice(0, 8)}`;
  await mkdir(work, { recursive: true });
  try {
    await fill(work);
    // the lock only saves work: if two fetchers ran, the rename would still install exactly one complete folder
    await rename(work, folder).catch((error) => {
      if (!existsSync(folder)) throw error;
    });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/**
 * @param {string} file
 * @returns {Promise<() => Promise<void>>} unlocks
 */
export async function lock(file) {
  const mine = JSON.stringify({ pid: process.pid, host: os.hostname(), id: randomUUID() });
  while (!(await create(file, mine))) {
    await breakIfStale(file);
    await delay(POLL_MS);
  }
  const beat = setInterval(() => {
    const now = new Date();
    utimes(file, now, now).catch(() => {});
  }, BEAT_MS);
  return async () => {
    clearInterval(beat);
    const content = await readFile(file, "utf8").catch(() => "");
    if (content === mine) await rm(file, { force: true });
  };
}

/** @param {string} file @param {string} content */
async function create(file, content) {
  try {
    const handle = await open(file, "wx");
    await handle.writeFile(content);
    await handle.close();
    return true;
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code === "EEXIST") return false;
    throw error;
  }
}

/** @param {string} file */
async function breakIfStale(file) {
  const content = await readFile(file, "utf8").catch(() => "");
  if (!isStale(file, content)) return;
  const aside = `${file}.${randomUUID().slice(0, 8)}`;
  // rename, not delete: of several waiters that see the same dead lock, only one moves it
  await rename(file, aside).catch(() => {});
  const moved = await readFile(aside, "utf8").catch(() => undefined);
  if (moved !== undefined && moved !== content) await rename(aside, file);
  await rm(aside, { force: true });
}

/** @param {string} file @param {string} content */
function isStale(file, content) {
  const age = Date.now() - (statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
  if (age > STALE_MS) return true;
  // an empty lock is just being written
  if (content === "") return false;
  const { pid, host } = /** @type {{ pid: number, host: string }} */ (JSON.parse(content));
  return host === os.hostname() && !isAlive(pid);
}

/** @param {number} pid */
export function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return /** @type {NodeJS.ErrnoException} */ (error).code === "EPERM";
  }
}
