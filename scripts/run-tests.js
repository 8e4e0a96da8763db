// `npm test [-- FILTER …]`: all tests against a separate etcd, followed by the ten slowest tests. Arguments are passed
// to vitest: `npm test -- mutex`, `npm test -- -t "aborts"`.
import { spawn } from "node:child_process";
import { once } from "node:events";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { exitWhenMissing, findEtcd } from "../test/support/etcd/etcd.js";

const ROOT = fileURLToPath(new URL("../", import.meta.url));

const etcd = await findEtcd().catch(exitWhenMissing);
console.log(`Testing with etcd ${etcd.version} (${etcd.etcd}) on Node ${process.versions.node}.`);

const args = process.argv.slice(2);
const reporters = ["--reporter=default", `--reporter=${path.join(ROOT, "scripts/slowest-reporter.js")}`];
const vitest = path.join(ROOT, "node_modules/vitest/vitest.mjs");
const child = spawn(process.execPath, [vitest, "run", ...reporters, ...args], {
  cwd: ROOT,
  stdio: "inherit",
});
// a terminal sends Ctrl-C to vitest as well; when it ends, so does this process
for (const name of /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"])) {
  process.on(name, () => name !== "SIGINT" && child.kill(name));
}
const [code, signal] = await once(child, "exit");
process.exitCode = code ?? 128 + (os.constants.signals[/** @type {NodeJS.Signals} */ (signal)] ?? 0);
