// A docker engine for the tests in test/docker: a running one, or otherwise one started here, if possible.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { setTimeout as delay } from "node:timers/promises";
import { aptInstall } from "./apt-install.js";

const run = promisify(execFile);
const START_MS = 30_000;
const GUARDIAN = fileURLToPath(new URL("./docker-guardian.js", import.meta.url));

/**
 * @typedef {object} Engine
 * @property {NodeJS.ProcessEnv} env environment for the docker command and for testcontainers
 * @property {readonly string[]} within the command that starts a program so that it reaches published ports; it execs
 * that program
 * @property {() => Promise<void>} stop
 */

/**
 * @returns {Promise<Engine>} rejects with the reason why there is none
 */
export async function dockerEngine() {
  if (await answers(process.env)) return { env: {}, within: [], stop: () => Promise.resolve() };
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

async function install() {
  if (await run("dockerd", ["--version"]).catch(() => undefined)) return;
  await aptInstall(["docker.io", "iproute2"]).catch((/** @type {Error} */ error) => {
    throw new Error(`no docker engine answers, and there is no dockerd: ${error.message}`, { cause: error });
  });
}

/** @returns {Promise<Engine>} */
async function start() {
  const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-docker-"));
  const host = `unix://${path.join(folder, "docker.sock")}`;
  const guardian = spawn(process.execPath, [GUARDIAN, folder, ...dockerd(folder, host)], {
    stdio: ["pipe", "pipe", "inherit"],
    detached: true,
  });
  const ended = once(guardian, "exit");
  const stop = async () => {
    guardian.stdin.end();
    await ended;
  };
  let said = "";
  guardian.stdout.on("data", (/** @type {Buffer} */ chunk) => (said += chunk.toString()));
  const env = { DOCKER_HOST: host };
  for (const until = Date.now() + START_MS; Date.now() < until && !/ended/.test(said); await delay(250)) {
    const within = ["nsenter", `--net=/proc/${parseInt(said)}/ns/net`];
    if (await answers({ ...process.env, ...env })) return { env, within, stop };
  }
  const log = await readFile(path.join(folder, "log"), "utf8").catch(() => "");
  await stop();
  throw new Error(`dockerd does not start here (${lastError(log)})`);
}

/** @param {string} folder @param {string} host */
function dockerd(folder, host) {
  const places = { "data-root": "data", "exec-root": "exec", pidfile: "pid" };
  return [
    ...["dockerd", "-H", host],
    ...Object.entries(places).map(([option, name]) => `--${option}=${path.join(folder, name)}`),
    // no firewall rules and no routing: the tests reach containers through docker's own proxies on 127.0.0.1
    ...["--iptables=false", "--ip-masq=false", "--ip-forward=false"],
  ];
}

/** @param {string} log */
function lastError(log) {
  const lines = log.trim().split("\n");
  return (lines.findLast((line) => /failed|error/i.test(line)) ?? lines.at(-1) ?? "it said nothing").slice(
    0,
    300,
  );
}
