// etcd's own gRPC proxy, `etcd grpc-proxy`, in front of one of our clusters.
import { mkdtemp } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { etcdEnv } from "./etcd-find.js";
import { request } from "../clients/etcd-http.js";
import { Guardian } from "../servers/guarded.js";
import { freePorts } from "../servers/ports.js";
import { ServerProcess } from "../servers/server-process.js";

/** Shorter than the time limit of a test, so that the error of a proxy that does not start has the lines that it printed. */
const START_MS = 20_000;

/** @param {import("./etcd.js").EtcdCluster} cluster */
export async function startEtcdGrpcProxy(cluster) {
  const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-grpc-proxy-"));
  const guardian = new Guardian(folder);
  const [port, metricsPort] = await freePorts(2, guardian);
  const process = new ServerProcess({
    title: "etcd grpc-proxy",
    command: [
      // A search for the version would download it where the cache has it as the machine's default only.
      cluster.program,
      ...["grpc-proxy", "start", `--endpoints=${cluster.endpoints.join(",")}`, `--data-dir=${folder}`],
      ...[`--listen-addr=127.0.0.1:${port}`, `--metrics-addr=http://127.0.0.1:${metricsPort}`],
      // etcd 3.6 and later dials it
      `--advertise-client-url=127.0.0.1:${port}`,
    ],
    env: etcdEnv(),
    ready: /listening for gRPC proxy client requests/,
    answers: async () => {
      const { status, text } = await request(`http://127.0.0.1:${metricsPort}/health`);
      return status === 200 ? "" : text;
    },
    tellGuardian: (line) => guardian.tell(line),
  });
  const stop = async () => {
    await process.kill();
    await guardian.dismiss();
  };
  await process.start({ timeoutMs: START_MS }).catch(async (/** @type {unknown} */ error) => {
    await stop();
    throw error;
  });
  return { endpoint: `http://127.0.0.1:${port}`, [Symbol.asyncDispose]: stop };
}
