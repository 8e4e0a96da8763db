// Finds the Redis server for comparisons.
import { rename } from "node:fs/promises";
import path from "node:path";
import { findProgram } from "./debian-program.js";

/** @typedef {import("./debian-program.js").Program} Redis */

/** There is no Redis on this machine and no way to get one; `message` says why. */
export { ProgramMissingError as RedisMissingError } from "./debian-program.js";

const LIBRARIES = ["libjemalloc.so.2", "liblzf.so.1", "libatomic.so.1"];

/**
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {Promise<Redis>}
 */
export function findRedis(env = process.env) {
  const plan = {
    ...{ name: "redis-server", cache: "redis", versionArg: "--version", version: / v=(\S+)/ },
    packages: ["redis-tools", "libjemalloc2", "liblzf1", "libatomic1"],
    // Debian has one program under several names, in the package of the tools: its name at startup determines its function.
    files: ["usr/bin/redis-check-rdb", ...LIBRARIES.map((file) => `usr/lib/*/${file}`)],
    prepare: (/** @type {string} */ folder) =>
      rename(path.join(folder, "redis-check-rdb"), path.join(folder, "redis-server")),
  };
  return findProgram(plan, env);
}
