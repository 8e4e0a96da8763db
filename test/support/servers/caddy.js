// Caddy in front of etcd.
import { findProgram } from "./debian-program.js";
import { startReverseProxy } from "./reverse-proxy.js";

/** @param {NodeJS.ProcessEnv} [env] */
export const findCaddy = (env = process.env) =>
  findProgram(
    {
      ...{ names: ["caddy"], package: "caddy", file: "usr/bin/caddy" },
      ...{ versionArgs: ["version"], version: /v?(\d+[.\d]*)/ },
    },
    env,
  );

/** @param {import("./reverse-proxy.js").ProxySetting} setting */
export async function startCaddy(setting) {
  const plan = {
    name: "caddy",
    found: await findCaddy(),
    args: (/** @type {string} */ file) => ["run", "--config", file, "--adapter", "caddyfile"],
    configuration: (/** @type {{ port: number, folder: string }} */ place) => configuration(setting, place),
    ready: /serving initial configuration/,
  };
  return startReverseProxy(plan, setting);
}

/** @param {import("./reverse-proxy.js").ProxySetting} setting @param {{ port: number, folder: string }} place */
function configuration({ target, pair, idleS = 60 }, { port, folder }) {
  return `
{
  admin off
  auto_https off
  storage file_system ${folder}
  servers {
    protocols h1 h2 ${pair ? "" : "h2c"}
    timeouts {
      idle ${idleS}s
    }
  }
}
${pair ? "https" : "http"}://127.0.0.1:${port} {
  ${pair ? `tls ${folder}/pair.pem ${folder}/pair.pem` : ""}
  reverse_proxy h2c://127.0.0.1:${target} {
    flush_interval -1
  }
}
`;
}
