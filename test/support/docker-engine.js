// A docker engine for the tests in test/docker: the one that answers, else one of our own, where that may be started.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { setTimeout as delay } from "node:timers/promises";

const run = promisify(execFile);
const BRIDGE = "/sys/class/net/docker0";
const START_MS = 30_000;

/**
 * @typedef {object} Engine
 * @property {NodeJS.ProcessEnv} env environment for the docker command and for testcontainers
 * @property {() => Promise<void>} stop
 */

/**
 * @returns {Promise<Engine>} rejects with the reason why there is none
 */
export async function dockerEngine() {
  if (await answers(process.env)) return { env: {}, stop: () => Promise.resolve() };
  if (process.platform !== "linux") throw new Error("no docker engine answers");
  if (process.getuid?.() !== 0) throw new Error("no docker engine answers, and only root may start one");
  await install();
  return start();
}

/** @param {NodeJS.ProcessEnv} env */
async function answers(env) {
  return run("docker", ["version"], { env, timeout: 10_000 }).then(
    () => true,
    () => false,
  );
}

// Only where nobody's own machine is changed by it.
async function install() {
  if (await run("dockerd", ["--version"]).catch(() => undefined)) return;
  if (process.env["CI"] !== "true") throw new Error("no docker engine answers, and there is no dockerd");
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  try {
    await run("apt-get", ["update", "-q"], { env, timeout: 120_000 });
    const args = ["install", "-y", "-q", "--no-install-recommends", "docker.io"];
    await run("apt-get", args, { env, timeout: 300_000, maxBuffer: 16 << 20 });
  } catch (error) {
    const [line] = String(error instanceof Error ? error.message : error).split("\n");
    throw new Error(`no docker engine answers, and docker.io cannot be installed (${line})`, {
      cause: error,
    });
  }
}

/** @returns {Promise<Engine>} */
async function start() {
  const hadBridge = existsSync(BRIDGE);
  const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-docker-"));
  const host = `unix://${path.join(folder, "docker.sock")}`;
  // no firewall rules and no routing: the tests reach containers through docker's own proxies on 127.0.0.1
  const places = [
    "--data-root",
    `${folder}/data`,
    "--exec-root",
    `${folder}/exec`,
    "--pidfile",
    `${folder}/pid`,
  ];
  const network = ["--iptables=false", "--ip-masq=false", "--ip-forward=false"];
  const child = spawn("dockerd", ["-H", host, ...places, ...network], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let log = "";
  child.stderr.on("data", (/** @type {Buffer} */ chunk) => (log = (log + chunk.toString()).slice(-20_000)));
  const stop = async () => {
    if (child.exitCode === null && child.signalCode === null && child.kill()) await once(child, "exit");
    await unmountBelow(folder);
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
    if (!hadBridge && existsSync(BRIDGE))
      await run("ip", ["link", "delete", "docker0"]).catch(() => undefined);
  };
  const env = { DOCKER_HOST: host };
  for (const until = Date.now() + START_MS; Date.now() < until && child.exitCode === null; await delay(250)) {
    if (await answers({ ...process.env, ...env })) return { env, stop };
  }
  await stop();
  throw new Error(`dockerd does not start here (${lastError(log)})`);
}

// dockerd leaves mounts of its own behind, and what is mounted cannot be removed.
/** @param {string} folder */
async function unmountBelow(folder) {
  const mounts = readFileSync("/proc/self/mounts", "utf8").split("\n");
  const ours = mounts
    .map((line) => line.split(" ")[1] ?? "")
    .filter((point) => point.startsWith(`${folder}/`));
  for (const point of ours.reverse()) await run("umount", [point]).catch(() => undefined);
}

/** @param {string} log */
function lastError(log) {
  const lines = log.trim().split("\n");
  return (lines.findLast((line) => /failed|error/i.test(line)) ?? lines.at(-1) ?? "it said nothing").slice(
    0,
    300,
  );
}
