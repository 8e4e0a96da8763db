// Runs test/proxies against a real nginx and a real HAProxy. Prints `not run: reason` and exits with 75 without them.
import { findHaproxy } from "../test/support/servers/haproxy.js";
import { findNginx } from "../test/support/servers/nginx.js";
import { exitNotRun, runVitest } from "./vitest-run.js";

const nginx = await findNginx().catch(exitNotRun);
const haproxy = await findHaproxy().catch(exitNotRun);
const versions = `nginx ${nginx.version}, HAProxy ${haproxy.version}`;
console.log(`${versions}.`);
process.exitCode = await runVitest("test/proxies", { env: { LEASEHOLD_PROXIES: versions } });
