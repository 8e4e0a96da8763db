// Runs the recipes of examples/frameworks against the real packages from the registry, with the packed library, an etcd and a Redis;
// their types; and the guardian under the real PM2. Prints `not run: reason` and exits with 75 without the registry; without a Redis, BullMQ's test says so.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { cp, mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startEtcd } from "../support/etcd/etcd.js";
import { startRedis } from "../support/servers/redis.js";
import { exitNotRun } from "../../scripts/vitest-run.js";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const TSC = path.join(ROOT, "node_modules/typescript/bin/tsc");
const PACKAGES = [
  ...["fastify@5", "express@5", "@types/express@5", "bullmq@5", "pm2@7"],
  ...["@nestjs/common@11", "@nestjs/core@11", "reflect-metadata@0.2", "rxjs@7"],
];
const COMPILER = {
  ...{ module: "nodenext", target: "es2022", strict: true, skipLibCheck: true },
  ...{ allowJs: true, checkJs: false, experimentalDecorators: true, emitDecoratorMetadata: true },
  ...{ outDir: "built", types: ["node"], typeRoots: [path.join(ROOT, "node_modules/@types")] },
};
const run = promisify(execFile);

const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-frameworks-"));
const etcd = await startEtcd();
const redis = await startRedis().catch((error) => {
  console.log(`BullMQ not run: ${error.message}`);
  return undefined;
});
try {
  await install();
  for (const from of ["examples/frameworks", "test/frameworks"])
    await cp(path.join(ROOT, from), folder, { recursive: true });
  const project = { compilerOptions: COMPILER, include: ["*.js", "*.ts", "*.mts", "*.mjs"] };
  await writeFile(path.join(folder, "tsconfig.json"), JSON.stringify(project));
  await run(process.execPath, [TSC, "-p", folder]).catch(({ stdout }) => {
    throw new Error(stdout);
  });
  const env = {
    ...process.env,
    ETCD: etcd.endpoints.join(),
    REDIS_PORT: redis && String(redis.servers[0]?.port),
  };
  const tests = spawn(
    process.execPath,
    [
      "--test-reporter=spec",
      "--test-timeout=120000",
      "--test",
      "built/frameworks.mjs",
      "built/idempotency.mjs",
      "built/pm2.mjs",
    ],
    {
      ...{ cwd: folder, env, stdio: "inherit", timeout: 180_000 },
    },
  );
  const [code] = await once(tests, "exit");
  process.exitCode = code ?? 1;
} catch (error) {
  console.error(/** @type {Error} */ (error).message);
  process.exitCode = 1;
} finally {
  await end();
}

async function install() {
  const { stdout } = await run("npm", ["pack", "--json", "--pack-destination", folder], { cwd: ROOT });
  const [{ filename }] = /** @type {[{ filename: string }]} */ (JSON.parse(stdout));
  await writeFile(path.join(folder, "package.json"), '{ "private": true, "type": "module" }');
  const args = ["install", "--no-audit", "--no-fund", "--ignore-scripts", `./${filename}`, ...PACKAGES];
  await run("npm", args, { cwd: folder, timeout: 240_000 }).catch(async (error) => {
    await end();
    const lines = String(error.stderr ?? error.message)
      .trim()
      .split("\n");
    exitNotRun(new Error(`the frameworks cannot be had from the registry: ${lines.at(-1)}`));
  });
}

async function end() {
  await Promise.all([etcd.stop(), redis?.stop(), rm(folder, { recursive: true, force: true })]);
}
