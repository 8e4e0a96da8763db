// Apache in front of etcd.
import path from "node:path";
import { findProgram } from "./debian-program.js";
import { startReverseProxy } from "./reverse-proxy.js";

const MODULES = ["mpm_event", "authz_core", "proxy", "proxy_http2", "http2", "ssl", "socache_shmcb"];
const moduleFile = (/** @type {string} */ name) => `usr/lib/apache2/modules/mod_${name}.so`;

/** @param {NodeJS.ProcessEnv} [env] */
export const findApache = (env = process.env) =>
  findProgram(
    {
      ...{ names: ["apache2"], package: "apache2-bin", file: "usr/sbin/apache2" },
      loads: MODULES.map(moduleFile),
      ...{ versionArgs: ["-v"], version: /Apache\/(\S+)/ },
    },
    env,
  );

/** @param {import("./reverse-proxy.js").ProxySetting} setting */
export async function startApache(setting) {
  const found = await findApache();
  const plan = {
    name: "apache",
    found,
    args: (/** @type {string} */ file) => ["-f", file, "-X"],
    configuration: (/** @type {{ port: number, folder: string }} */ place) =>
      configuration(setting, { ...place, root: found.root }),
    ready: /resuming normal operations|configured/,
  };
  return startReverseProxy(plan, setting);
}

/** @param {import("./reverse-proxy.js").ProxySetting} setting @param {{ port: number, folder: string, root: string }} place */
const configuration = ({ target, pair, streams = 100, idleS = 60 }, { port, folder, root }) => `
ServerName localhost
ServerRoot ${folder}
DefaultRuntimeDir ${folder}
PidFile ${folder}/pid
ErrorLog "|$cat >&2"
${MODULES.map((name) => `LoadModule ${name}_module ${path.join(root, moduleFile(name))}`).join("\n")}
Listen 127.0.0.1:${port}
Protocols ${pair ? "h2" : "h2c"}
${pair ? `SSLEngine on\nSSLCertificateFile ${folder}/pair.pem\nSSLCertificateKeyFile ${folder}/pair.pem` : ""}
H2MaxSessionStreams ${streams}
Timeout ${idleS}
KeepAliveTimeout ${idleS}
ProxyPass / h2c://127.0.0.1:${target}/
`;
