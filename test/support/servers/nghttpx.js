// nghttpx in front of etcd.
import { findProgram } from "./debian-program.js";
import { startReverseProxy } from "./reverse-proxy.js";

/** @param {NodeJS.ProcessEnv} [env] */
export const findNghttpx = (env = process.env) =>
  findProgram(
    {
      ...{ names: ["nghttpx"], package: "nghttp2-proxy", file: "usr/sbin/nghttpx" },
      ...{ versionArgs: ["--version"], version: /nghttp2\/(\S+)/ },
    },
    env,
  );

/** @param {import("./reverse-proxy.js").ProxySetting} setting */
export async function startNghttpx(setting) {
  const plan = {
    name: "nghttpx",
    found: await findNghttpx(),
    args: (/** @type {string} */ file) => [`--conf=${file}`],
    configuration: (/** @type {{ port: number, folder: string }} */ place) => configuration(setting, place),
    ready: /Listening on/,
  };
  return startReverseProxy(plan, setting);
}

/** @param {import("./reverse-proxy.js").ProxySetting} setting @param {{ port: number, folder: string }} place */
function configuration({ target, pair, streams = 100, idleS = 60, table = 4096 }, { port, folder }) {
  return `
frontend=127.0.0.1,${port}${pair ? "" : ";no-tls"}
backend=127.0.0.1,${target};;proto=h2
${pair ? `private-key-file=${folder}/pair.pem\ncertificate-file=${folder}/pair.pem` : ""}
workers=1
frontend-http2-max-concurrent-streams=${streams}
frontend-http2-decoder-dynamic-table-size=${table}
frontend-http2-read-timeout=${idleS}s
stream-read-timeout=${idleS}s
stream-write-timeout=${idleS}s
backend-read-timeout=${idleS}s
`;
}
