// HAProxy in front of etcd.
import { findProgram } from "./debian-program.js";
import { startReverseProxy } from "./reverse-proxy.js";

/** @param {NodeJS.ProcessEnv} [env] */
export const findHaproxy = (env = process.env) =>
  findProgram(
    {
      ...{ names: ["haproxy"], package: "haproxy", file: "usr/sbin/haproxy" },
      ...{ versionArgs: ["-v"], version: /version (\d+[.\d]*)/ },
    },
    env,
  );

/** @param {import("./reverse-proxy.js").ProxySetting} setting */
export async function startHaproxy(setting) {
  const plan = {
    name: "haproxy",
    found: await findHaproxy(),
    args: (/** @type {string} */ file) => ["-W", "-f", file],
    configuration: (/** @type {{ port: number, folder: string }} */ place) => configuration(setting, place),
    ready: /Loading success/,
    reload: /** @type {const} */ (["SIGUSR2", /Loading success/g]),
  };
  return startReverseProxy(plan, setting);
}

/** @param {import("./reverse-proxy.js").ProxySetting} setting @param {{ port: number, folder: string }} place */
function configuration({ target, pair, streams = 100, idleS = 60, drainS }, { port, folder }) {
  return `
global
  tune.h2.max-concurrent-streams ${streams}
  ${drainS === undefined ? "" : `hard-stop-after ${drainS}s`}
defaults
  mode http
  timeout connect 2s
  timeout client ${idleS}s
  timeout server ${idleS}s
  timeout http-keep-alive ${idleS}s
frontend clients
  bind 127.0.0.1:${port} ${pair ? `ssl crt ${folder}/pair.pem alpn h2` : "proto h2"}
  default_backend etcd
backend etcd
  server etcd 127.0.0.1:${target} proto h2
`;
}
