// Runs test/docker against etcd in a container; ends with 75 and `not run: reason` where there is no docker engine.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, mkdir, mkdtemp, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { dockerEngine } from "./docker-engine.js";
import { findEtcd } from "./etcd.js";

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const IMAGE = "leasehold-etcd";
/** EX_TEMPFAIL of sysexits.h: nothing is wrong, but it cannot be done here. */
const EXIT_NOT_RUN = 75;

const engine = await dockerEngine().catch((/** @type {Error} */ error) => {
  console.log(`not run: ${error.message}`);
  process.exit(EXIT_NOT_RUN);
});
try {
  const env = { ...process.env, ...engine.env };
  console.log(`Image ${IMAGE}: ${await provideImage(env)}.`);
  process.exitCode = await runTests(env);
} finally {
  await engine.stop();
}

/** @param {NodeJS.ProcessEnv} env */
async function provideImage(env) {
  try {
    await run("docker", ["build", "--quiet", "--tag", IMAGE, "docker"], { cwd: ROOT, env, timeout: 300_000 });
    return "built from docker/Dockerfile";
  } catch (error) {
    const { stderr } = /** @type {{ stderr?: string }} */ (error);
    const [line] = (stderr ?? "").split("\n").filter((text) => /error|denied|no such host/i.test(text));
    await importImage(env);
    return `made of this machine's etcd, as docker/Dockerfile cannot be built here (${line ?? String(error)})`;
  }
}

// Where no base image can be pulled: etcd and the libraries it is linked with are all that a container needs.
/** @param {NodeJS.ProcessEnv} env */
async function importImage(env) {
  const { etcd } = await findEtcd();
  const work = await mkdtemp(path.join(os.tmpdir(), "leasehold-image-"));
  try {
    await mkdir(path.join(work, "tree/usr/bin"), { recursive: true });
    await copyFile(etcd, path.join(work, "tree/usr/bin/etcd"));
    for (const file of await librariesOf(etcd)) {
      await mkdir(path.join(work, "tree", path.dirname(file)), { recursive: true });
      await copyFile(file, path.join(work, "tree", file));
    }
    const archive = path.join(work, "image.tar");
    await run("tar", ["-C", path.join(work, "tree"), "-cf", archive, "."], { timeout: 60_000 });
    const changes = [
      'ENTRYPOINT ["/usr/bin/etcd"]',
      "EXPOSE 2379 2380",
      `ENV ETCD_UNSUPPORTED_ARCH=${process.arch}`,
    ];
    const options = changes.flatMap((change) => ["--change", change]);
    await run("docker", ["import", ...options, archive, IMAGE], { env, timeout: 60_000 });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** @param {string} program */
async function librariesOf(program) {
  // a statically linked program has none, and ldd says so by its exit code
  const { stdout } = await run("ldd", [program], { timeout: 20_000 }).catch(() => ({ stdout: "" }));
  return [...stdout.matchAll(/(\/\S+) \(0x/g)].map((match) => /** @type {string} */ (match[1]));
}

/** @param {NodeJS.ProcessEnv} env */
async function runTests(env) {
  const vitest = path.join(ROOT, "node_modules/vitest/vitest.mjs");
  const child = spawn(process.execPath, [vitest, "run", "test/docker"], {
    cwd: ROOT,
    stdio: "inherit",
    // Ryuk, the container that cleans up after testcontainers, would have to be pulled; the tests clean up themselves
    env: { ...env, LEASEHOLD_ETCD_IMAGE: IMAGE, TESTCONTAINERS_RYUK_DISABLED: "true" },
  });
  const [code] = await once(child, "exit");
  return /** @type {number | null} */ (code) ?? 1;
}
