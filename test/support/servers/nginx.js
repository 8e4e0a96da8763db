// nginx in front of etcd.
import { findProgram } from "./debian-program.js";
import { startReverseProxy } from "./reverse-proxy.js";

/** @param {NodeJS.ProcessEnv} [env] */
export const findNginx = (env = process.env) =>
  findProgram(
    {
      ...{ names: ["nginx"], package: "nginx", file: "usr/sbin/nginx" },
      ...{ versionArgs: ["-v"], version: /nginx\/(\S+)/ },
    },
    env,
  );

/** @param {import("./reverse-proxy.js").ProxySetting} setting */
export async function startNginx(setting) {
  const plan = {
    name: "nginx",
    found: await findNginx(),
    args: (/** @type {string} */ file) => ["-c", file, "-e", "stderr"],
    configuration: (/** @type {{ port: number, folder: string }} */ place) => configuration(setting, place),
    ready: /start worker process \d+/,
    reload: /** @type {const} */ (["SIGHUP", /: gracefully shutting down/g]),
  };
  return startReverseProxy(plan, setting);
}

/** @param {import("./reverse-proxy.js").ProxySetting} setting @param {{ port: number, folder: string }} place */
function configuration(
  { target, pair, streams = 128, requests = 1000, idleS = 60, drainS },
  { port, folder },
) {
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
  return `
    daemon off;
    pid ${folder}/pid;
    error_log stderr notice;
    worker_processes 1;
    ${drainS === undefined ? "" : `worker_shutdown_timeout ${drainS}s;`}
    events { worker_connections 1024; }
    http {
      access_log off;
      ${temporary.map((name) => `${name}_temp_path ${folder}/${name};`).join(" ")}
      upstream etcd { server 127.0.0.1:${target}; keepalive 16; }
      server {
        listen 127.0.0.1:${port} http2 ${pair ? "ssl" : ""};
        ${pair ? `ssl_certificate ${folder}/pair.pem; ssl_certificate_key ${folder}/pair.pem;` : ""}
        http2_max_concurrent_streams ${streams};
        keepalive_requests ${requests};
        keepalive_timeout ${idleS}s;
        client_max_body_size 0;
        client_body_timeout ${idleS}s;
        grpc_read_timeout ${idleS}s;
        grpc_send_timeout ${idleS}s;
        location / { grpc_pass grpc://etcd; }
      }
    }
  `;
}
