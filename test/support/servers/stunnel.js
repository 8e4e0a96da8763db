// stunnel in front of etcd: it takes TLS off, and passes bytes on.
import { findProgram } from "./debian-program.js";
import { startReverseProxy } from "./reverse-proxy.js";

/** @param {NodeJS.ProcessEnv} [env] */
export const findStunnel = (env = process.env) =>
  findProgram(
    {
      ...{ names: ["stunnel4"], package: "stunnel4", file: "usr/bin/stunnel4" },
      ...{ versionArgs: ["-version"], version: /stunnel (\d+[.\d]*)/ },
    },
    env,
  );

/** @param {import("./reverse-proxy.js").ProxySetting} setting */
export async function startStunnel(setting) {
  const plan = {
    name: "stunnel",
    found: await findStunnel(),
    args: (/** @type {string} */ file) => [file],
    configuration: (/** @type {{ port: number, folder: string }} */ place) => configuration(setting, place),
    ready: /Configuration successful/,
  };
  return startReverseProxy(plan, setting);
}

/** @param {import("./reverse-proxy.js").ProxySetting} setting @param {{ port: number, folder: string }} place */
const configuration = ({ target }, { port, folder }) => `
foreground = yes
pid =
[etcd]
accept = 127.0.0.1:${port}
connect = 127.0.0.1:${target}
cert = ${folder}/pair.pem
`;
