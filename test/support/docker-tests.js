// Runs test/docker against etcd in a container; ends with 75 and `not run: reason` where there is no docker engine.
import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { dockerEngine } from "./docker-engine.js";
import { containersOf, provideImage } from "./docker-image.js";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** EX_TEMPFAIL of sysexits.h: nothing is wrong, but it cannot be done here. */
const EXIT_NOT_RUN = 75;

const engine = await dockerEngine().catch((/** @type {Error} */ error) => {
  console.log(`not run: ${error.message}`);
  process.exit(EXIT_NOT_RUN);
});
try {
  const { image, made } = await provideImage({ ...process.env, ...engine.env });
  console.log(`Image ${image}: ${made}.`);
  const env = { ...process.env, ...engine.env, ...containersOf(image) };
  process.exitCode = await runTests(engine.within, env);
} finally {
  await engine.stop();
}

/** @param {readonly string[]} within @param {NodeJS.ProcessEnv} env */
async function runTests(within, env) {
  const vitest = path.join(ROOT, "node_modules/vitest/vitest.mjs");
  const [command = process.execPath, ...rest] = [...within, process.execPath, vitest, "run", "test/docker"];
  const child = spawn(command, rest, { cwd: ROOT, stdio: "inherit", env });
  const [code] = await once(child, "exit");
  return /** @type {number | null} */ (code) ?? 1;
}
