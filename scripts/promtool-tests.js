// Checks the alert rules in docs/monitoring/ with Prometheus' promtool, and runs their tests. Prints `not run: reason` and exits
// with 75 without it.
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { findPromtool } from "../test/support/servers/promtool.js";
import { exitNotRun } from "./vitest-run.js";

const ROOT = fileURLToPath(new URL("../", import.meta.url));

const { program, env, version } = await findPromtool().catch(exitNotRun);
console.log(`promtool ${version}.`);
try {
  execFileSync(program, ["check", "rules", "docs/monitoring/alerts.yml"], {
    cwd: ROOT,
    env,
    stdio: "inherit",
  });
  execFileSync(program, ["test", "rules", "test/monitoring/alerts.test.yml"], {
    ...{ cwd: ROOT, env, stdio: "inherit" },
  });
} catch (error) {
  console.error(/** @type {Error} */ (error).message);
  process.exitCode = 1;
}
