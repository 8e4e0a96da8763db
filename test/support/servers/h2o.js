// h2o in front of etcd.
import { findProgram } from "./debian-program.js";
import { startReverseProxy } from "./reverse-proxy.js";

/** @param {NodeJS.ProcessEnv} [env] */
export const findH2o = (env = process.env) =>
  findProgram(
    {
      ...{ names: ["h2o"], package: "h2o", file: "usr/bin/h2o" },
      ...{ versionArgs: ["--version"], version: /h2o version (\S+)/ },
    },
    env,
  );

/** @param {import("./reverse-proxy.js").ProxySetting} setting */
export async function startH2o(setting) {
  const plan = {
    name: "h2o",
    found: await findH2o(),
    args: (/** @type {string} */ file) => ["-c", file],
    configuration: (/** @type {{ port: number, folder: string }} */ place) => configuration(setting, place),
    ready: /is ready to serve requests/,
  };
  return startReverseProxy(plan, setting);
}

/** @param {import("./reverse-proxy.js").ProxySetting} setting @param {{ port: number, folder: string }} place */
const configuration = ({ target, pair }, { port, folder }) => `
num-threads: 1
listen:
  host: 127.0.0.1
  port: ${port}
${pair ? `  ssl:\n    certificate-file: ${folder}/pair.pem\n    key-file: ${folder}/pair.pem` : ""}
hosts:
  default:
    paths:
      /:
        proxy.reverse.url: http://127.0.0.1:${target}/
`;
