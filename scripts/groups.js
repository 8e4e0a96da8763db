// `npm run test:all -- GROUP [OPTIONS]`: tests that need a program, a server, a package or a system that not every machine has, or a
// long time. Without it, they print `not run: reason`, and the exit code is 75.
import { execFile, execFileSync, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { once } from "node:events";
import net from "node:net";
import { parseArgs, promisify } from "node:util";
import { findApache } from "../test/support/servers/apache.js";
import { findCaddy } from "../test/support/servers/caddy.js";
import { findChromium } from "../test/support/servers/chromium.js";
import { dockerEngine } from "../test/support/servers/docker-engine.js";
import { containersOf, provideImage } from "../test/support/servers/docker-image.js";
import { findEnvoy } from "../test/support/servers/envoy.js";
import { findH2o } from "../test/support/servers/h2o.js";
import { findHaproxy } from "../test/support/servers/haproxy.js";
import { findNghttpx } from "../test/support/servers/nghttpx.js";
import { findNginx } from "../test/support/servers/nginx.js";
import { findPostgres } from "../test/support/servers/postgres.js";
import { findPromtool } from "../test/support/servers/promtool.js";
import { findRedis } from "../test/support/servers/redis-find.js";
import { findStunnel } from "../test/support/servers/stunnel.js";
import { exitNotRun, ROOT, runVitest } from "./vitest-run.js";

/** @typedef {(args: readonly string[]) => Promise<number>} Group gets the options, and resolves with the exit code */

const ON_POSTGRES = /** @type {const} */ ([
  "test/meta/examples/fenced-postgres",
  "test/meta/examples/shards-offsets",
]);

/** @type {Readonly<Record<string, Group>>} */
export const GROUPS = {
  /** The page of `leasehold/ui` in a real Chromium. */
  browser: () => onServer("Chromium", findChromium, "LEASEHOLD_BROWSER", "test/browser"),
  /** Fenced writes to a real Redis. */
  redis: () => onServer("Redis", findRedis, "LEASEHOLD_REDIS", "test/redis"),
  /** Those that `npm test` runs on PGlite, on a real PostgreSQL. */
  postgres: () => onServer("PostgreSQL", findPostgres, "LEASEHOLD_POSTGRES", ...ON_POSTGRES),
  proxies,
  docker,
  ipv6,
  promtool,
  "cli-loss": cliLoss,
  "cli-scale": cliScale,
  once: onceTicks,
  /** The recipes of examples/frameworks on the real packages, and the guardian under PM2. */
  frameworks: () => program("../test/frameworks/main.js"),
  /** The manifests of examples/deploy, by the schemas of Kubernetes and of Compose. */
  manifests: () => program("../test/deploy/main.js"),
};

/**
 * @param {string} name
 * @param {() => Promise<{ version: string }>} find
 * @param {string} variable tells the tests the version
 * @param {string} filter
 * @param {string[]} more
 */
async function onServer(name, find, variable, filter, ...more) {
  const { version } = await find().catch(exitNotRun);
  console.log(`${name} ${version}.`);
  return runVitest([filter, ...more], { env: { [variable]: version } });
}

/** The library behind real reverse proxies. nginx and HAProxy must be there; it says which of the others are not. */
async function proxies() {
  const nginx = await findNginx().catch(exitNotRun);
  const haproxy = await findHaproxy().catch(exitNotRun);
  const found = [`nginx ${nginx.version}`, `HAProxy ${haproxy.version}`];
  for (const [name, find] of Object.entries({
    ...{ Envoy: findEnvoy, nghttpx: findNghttpx, Apache: findApache, Caddy: findCaddy },
    ...{ stunnel: findStunnel, h2o: findH2o },
  })) {
    const proxy = await find().catch(({ message }) => void console.log(`not run: ${message}`));
    if (proxy) found.push(`${name} ${proxy.version}`);
  }
  const versions = found.join(", ");
  console.log(`${versions}.`);
  // The tests mostly wait.
  const args = ["test/proxies", "--maxConcurrency", "16"];
  return runVitest(args, { env: { LEASEHOLD_PROXIES: versions } });
}

/** The library on an etcd in a container. */
async function docker() {
  const engine = await dockerEngine().catch(exitNotRun);
  try {
    const { image, made } = await provideImage({ ...process.env, ...engine.env });
    console.log(`Image ${image}: ${made}.`);
    const env = { ...engine.env, ...containersOf(image) };
    return await runVitest(["test/docker"], { env, within: engine.within });
  } finally {
    await engine.stop();
  }
}

/** The library on an etcd that listens on [::1]. */
async function ipv6() {
  const server = net.createServer().listen(0, "::1");
  await once(server, "listening").catch(exitNotRun);
  server.close();
  return runVitest(["test/ipv6"], { env: { LEASEHOLD_IPV6: "::1" } });
}

/** The alert rules in docs/monitoring/ and their tests, by Prometheus' promtool. */
async function promtool() {
  const { program, env, version } = await findPromtool().catch(exitNotRun);
  console.log(`promtool ${version}.`);
  const run = (/** @type {string[]} */ ...args) =>
    execFileSync(program, args, { cwd: ROOT, env, stdio: "inherit" });
  try {
    run("check", "rules", "docs/monitoring/alerts.yml");
    run("test", "rules", "test/monitoring/alerts.test.yml");
    return 0;
  } catch (error) {
    console.error(/** @type {Error} */ (error).message);
    return 1;
  }
}

/** `leasehold run` loses its lock in several ways while the next holder waits. `--rounds N` of each way, 10 by default. */
async function cliLoss(/** @type {readonly string[]} */ args) {
  const { rounds } = numbersIn(args, { rounds: 10 });
  if (!existsSync("/proc/self/stat")) exitNotRun(new Error("this system has no /proc"));
  await promisify(execFile)("perl", ["-MTime::HiRes=CLOCK_MONOTONIC", "-e", "1"]).catch(exitNotRun);
  console.log(`${rounds} rounds of each way to lose a lock.`);
  return runVitest(["test/cli-loss"], { env: { LEASEHOLD_CLI_LOSS: rounds } });
}

/** `leasehold top` with 1,000 locks and 5,000 waiters. */
async function cliScale() {
  if (!existsSync("/proc/self/stat"))
    exitNotRun(new Error("there is no /proc, which has the processor times"));
  if (spawnSync("script", ["--version"]).error)
    exitNotRun(new Error("there is no script, for a pseudo-terminal"));
  return runVitest(["test/cli-scale"], { env: { LEASEHOLD_CLI_SCALE: "1" } });
}

/**
 * The examples with a scheduler, node-cron and croner, in three replicas whose clocks differ and that are killed at random. `--ticks N` of
 * each scheduler, 1000 by default; `--seed N` of the kills. Prints how many ticks were run once, run twice (none may be), lost and told to
 * later callers, and lost and not told (none may be).
 */
async function onceTicks(/** @type {readonly string[]} */ args) {
  const { ticks, seed } = numbersIn(args, { ticks: 1000, seed: Date.now() % 1e9 });
  console.log(`${ticks} ticks of each scheduler, seed ${seed}.`);
  const env = { LEASEHOLD_ONCE_TICKS: ticks, LEASEHOLD_ONCE_SEED: seed };
  return runVitest(["test/meta/examples/once-schedulers.test.ts"], { env });
}

/** A program that sets the exit code. @param {string} file */
async function program(file) {
  await import(file);
  return Number(process.exitCode ?? 0);
}

/**
 * @template {Record<string, number>} T
 * @param {readonly string[]} args
 * @param {T} defaults
 * @returns {{ [K in keyof T]: string }}
 */
function numbersIn(args, defaults) {
  const options = Object.fromEntries(
    Object.entries(defaults).map(([name, n]) => [
      name,
      /** @type {const} */ ({ type: "string", default: String(n) }),
    ]),
  );
  const { values } = parseArgs({ args: [...args], options });
  for (const [name, text] of Object.entries(values))
    if (!/^[1-9]\d*$/.test(String(text)))
      throw new RangeError(`--${name} must be a positive number, got "${text}"`);
  return /** @type {{ [K in keyof T]: string }} */ (values);
}
