// Finds the Redis server for comparisons.
import { findProgram } from "./debian-program.js";

/** @typedef {import("./debian-program.js").Program} Redis */

/** There is no Redis on this machine and no way to get one; `message` says why. */
export { ProgramMissingError as RedisMissingError } from "./debian-program.js";

/** @param {NodeJS.ProcessEnv} [env] @returns {Promise<Redis>} */
export const findRedis = (env = process.env) =>
  findProgram(
    {
      ...{ names: ["redis-server"], package: "redis-server", file: "usr/bin/redis-server" },
      ...{ versionArgs: ["--version"], version: / v=(\S+)/ },
    },
    env,
  );
