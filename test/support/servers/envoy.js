// Envoy in front of etcd. Debian has no package of it: the machine must have it.
import { findProgram } from "./debian-program.js";
import { startReverseProxy } from "./reverse-proxy.js";

/** @param {NodeJS.ProcessEnv} [env] */
export const findEnvoy = (env = process.env) =>
  findProgram(
    {
      names: ["envoy"],
      ...{ versionArgs: ["--version"], version: /\/(\d+[.\d]*)\// },
    },
    env,
  );

/** @param {import("./reverse-proxy.js").ProxySetting} setting */
export async function startEnvoy(setting) {
  const plan = {
    name: "envoy",
    found: await findEnvoy(),
    args: (/** @type {string} */ file) => ["-c", file, "--concurrency", "1", "--use-dynamic-base-id"],
    configuration: (/** @type {{ port: number, folder: string }} */ place) =>
      JSON.stringify(configuration(setting, place)),
    extension: "json",
    ready: /starting main dispatch loop/,
  };
  return startReverseProxy(plan, setting);
}
const address = (/** @type {number} */ port) => ({
  socket_address: { address: "127.0.0.1", port_value: port },
});

const typed = (/** @type {string} */ type, /** @type {object} */ rest) => ({
  "@type": `type.googleapis.com/envoy.extensions.${type}`,
  ...rest,
});

/** @param {import("./reverse-proxy.js").ProxySetting} setting @param {{ port: number, folder: string }} place */
function configuration({ target, pair, streams = 100, idleS = 60, table = 4096 }, { port, folder }) {
  const file = { filename: `${folder}/pair.pem` };
  const tls = {
    name: "tls",
    typed_config: typed("transport_sockets.tls.v3.DownstreamTlsContext", {
      common_tls_context: {
        alpn_protocols: ["h2"],
        tls_certificates: [{ certificate_chain: file, private_key: file }],
      },
    }),
  };
  const manager = typed("filters.network.http_connection_manager.v3.HttpConnectionManager", {
    stat_prefix: "etcd",
    codec_type: "HTTP2",
    stream_idle_timeout: `${idleS}s`,
    common_http_protocol_options: { idle_timeout: `${idleS}s` },
    http2_protocol_options: { max_concurrent_streams: streams, hpack_table_size: table },
    route_config: {
      virtual_hosts: [
        {
          name: "etcd",
          domains: ["*"],
          routes: [{ match: { prefix: "/" }, route: { cluster: "etcd", timeout: "0s" } }],
        },
      ],
    },
    http_filters: [{ name: "router", typed_config: typed("filters.http.router.v3.Router", {}) }],
  });
  const upstream = typed("upstreams.http.v3.HttpProtocolOptions", {
    explicit_http_config: { http2_protocol_options: {} },
  });
  return {
    static_resources: {
      listeners: [
        {
          address: address(port),
          filter_chains: [
            {
              filters: [{ name: "http", typed_config: manager }],
              ...(pair && { transport_socket: tls }),
            },
          ],
        },
      ],
      clusters: [
        {
          name: "etcd",
          connect_timeout: "2s",
          typed_extension_protocol_options: {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": upstream,
          },
          load_assignment: {
            cluster_name: "etcd",
            endpoints: [{ lb_endpoints: [{ endpoint: { address: address(target) } }] }],
          },
        },
      ],
    },
  };
}
