// Runs test/redis against a real Redis; exits with 75 and `not run: reason` if there is none.
import { findRedis } from "../test/support/servers/redis-find.js";
import { exitNotRun, runVitest } from "./vitest-run.js";

const { version } = await findRedis().catch(exitNotRun);
console.log(`Redis ${version}.`);
process.exitCode = await runVitest("test/redis", { env: { LEASEHOLD_REDIS: version } });
