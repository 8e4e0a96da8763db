// @ts-check
// Metrics for Prometheus: POST /reports/<user> makes a report under a lock of that user, and GET /metrics is what Prometheus
// scrapes. All users share the label "reports/:user": a time series for each of them would be too many.
import { once } from "node:events";
import { createServer } from "node:http";
import { PrometheusExporter } from "@opentelemetry/exporter-prometheus";
import { MeterProvider } from "@opentelemetry/sdk-metrics";
import { connect, Mutex } from "leasehold";
import { instrument } from "leasehold/otel";

const { ETCD_HOSTS = "http://127.0.0.1:2379", TTL_SECONDS = "15", PORT = "8080" } = process.env;
const WAIT_MS = 1000;

const exporter = new PrometheusExporter({ preventServerStart: true });
const meterProvider = new MeterProvider({ readers: [exporter] });
const instrumentation = instrument({ meterProvider });

const cluster = connect({ hosts: ETCD_HOSTS.split(","), session: { ttlSeconds: Number(TTL_SECONDS) } });
const server = createServer((request, response) => {
  if (request.url === "/metrics") return exporter.getMetricsRequestHandler(request, response);
  answer(request, response).catch(({ code }) => {
    response.writeHead(code === "LOCK_TIMEOUT" ? 429 : 500).end();
  });
});
server.listen(Number(PORT));
await once(server, "listening");
console.log("listening");

process.once("SIGTERM", async () => {
  server.close();
  await cluster.close();
  instrumentation.disable();
  await meterProvider.shutdown();
});

/** @param {import("node:http").IncomingMessage} request @param {import("node:http").ServerResponse} response */
async function answer({ url = "" }, response) {
  const user = /^\/reports\/([\w.-]+)$/.exec(url)?.[1];
  if (user === undefined) return response.writeHead(404).end();
  const mutex = new Mutex(cluster, `reports/${user}`, { label: "reports/:user" });
  const report = await mutex.withLock(({ fence }) => `report ${fence} of ${user}`, { timeoutMs: WAIT_MS });
  return response.end(report);
}
