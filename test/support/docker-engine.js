// A docker engine for the tests in test/docker: the one that answers, else one of our own, where that may be started.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { setTimeout as delay } from "node:timers/promises";
import { aptInstall } from "./apt-install.js";
import { Guardian } from "./guarded.js";

const run = promisify(execFile);
const START_MS = 30_000;

/**
 * @typedef {object} Engine
 * @property {NodeJS.ProcessEnv} env environment for the docker command and for testcontainers
 * @property {readonly string[]} within what a program is started by to reach published ports; it turns into that program
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

/**
 * In namespaces of its own: its bridges touch no network of this machine, its mounts vanish with it, and with its first
 * process dies every container, also when that process is killed.
 */
const APART = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
const WITH_LOOPBACK = ["sh", "-c", 'ip link set lo up && exec "$@"', "dockerd"];

/** @returns {Promise<Engine>} */
async function start() {
  const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-docker-"));
  const guardian = new Guardian(folder);
  const host = `unix://${path.join(folder, "docker.sock")}`;
  const child = spawn("unshare", [...APART, ...WITH_LOOPBACK, ...dockerd(folder, host)], {
    stdio: ["ignore", "ignore", "pipe"],
    detached: true,
  });
  guardian.tell(`+${child.pid}`);
  let log = "";
  child.stderr.on("data", (/** @type {Buffer} */ chunk) => (log = (log + chunk.toString()).slice(-20_000)));
  const ended = once(child, "exit");
  const stop = async () => {
    child.kill("SIGKILL");
    await ended;
    await guardian.dismiss();
  };
  const env = { DOCKER_HOST: host };
  const within = ["nsenter", `--net=/proc/${child.pid}/ns/net`];
  for (const until = Date.now() + START_MS; Date.now() < until && child.exitCode === null; await delay(250)) {
    if (await answers({ ...process.env, ...env })) return { env, within, stop };
  }
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
