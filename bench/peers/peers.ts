// The clients that are measured, their servers, and how their processes are started.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Start } from "../worker/protocol.js";
import type { AdapterName } from "./adapters.js";
import { assertOwnTransport } from "./build.js";
import { goContender } from "./go.js";

export type GroundKind = "etcd" | "redis" | "redis-fsync";

/** The command that starts a process of it, and its version. */
export interface Program {
  readonly command: readonly [string, ...string[]];
  readonly version: string;
}

export interface Peer {
  readonly name: PeerName;
  readonly title: string;
  readonly ground: GroundKind;
  /** Its waiters have places in etcd, which can be counted. */
  readonly queues: boolean;
  /** It is compiled before it runs, so it needs no warm-up. */
  readonly compiled?: true;
  /** Rejects with a `NotRunError` if that is not possible. */
  program(build: string | undefined): Promise<Program>;
}

export const PEER_NAMES = [
  "leasehold",
  "leasehold-sticky",
  "leasehold-etcd3",
  "go",
  "bare-http2",
  "node-http2",
  "grpc-js",
  "bare",
  "etcd3",
  "redlock",
  "redlock-fsync",
  "redis-semaphore",
  "redis-semaphore-fsync",
] as const;
export type PeerName = (typeof PEER_NAMES)[number];

const WORKER = fileURLToPath(new URL("../worker/main.ts", import.meta.url));
const TSX = import.meta.resolve("tsx");

const inNode = (adapter: AdapterName, version: string) => (build: string | undefined) =>
  Promise.resolve<Program>({
    version,
    command: [
      process.execPath,
      // Heaps are compared after a garbage collection.
      ...["--expose-gc", "--import", TSX, WORKER, JSON.stringify({ adapter, build } satisfies Start)],
    ],
  });

/** What uses parts of leasehold's own transport cannot be measured with a build that is older. */
const withOwnTransport = (adapter: AdapterName, version: string) => async (build: string | undefined) => {
  assertOwnTransport(build);
  return inNode(adapter, version)(build);
};

async function inGo(): Promise<Program> {
  const { path, client } = await goContender();
  return { command: [path], version: client };
}

export function version(name: string): string {
  const file = new URL(`../../node_modules/${name}/package.json`, import.meta.url);
  return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version.replace(/^v/, "");
}

const own = (JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as Package)
  .version;
interface Package {
  readonly version: string;
}

const onEtcd = { ground: "etcd", queues: false } as const;
const onRedis = { ground: "redis", queues: false } as const;
const onFsync = { ground: "redis-fsync", queues: false } as const;
const redlock = inNode("redlock", version("redlock"));
const semaphore = inNode("redis-semaphore", version("redis-semaphore"));

export const PEERS: Readonly<Record<PeerName, Peer>> = {
  leasehold: {
    ...{ name: "leasehold", title: "leasehold", ground: "etcd", queues: true },
    program: inNode("leasehold", own),
  },
  "leasehold-sticky": {
    ...{ name: "leasehold-sticky", title: "leasehold, sticky", ground: "etcd", queues: true },
    program: inNode("leasehold-sticky", own),
  },
  go: {
    ...{ name: "go", title: "Go concurrency.Mutex", ground: "etcd", queues: true, compiled: true },
    program: inGo,
  },
  "leasehold-etcd3": {
    ...{ name: "leasehold-etcd3", title: "leasehold over etcd3", ground: "etcd", queues: true },
    program: withOwnTransport("leasehold-etcd3", `${own} over etcd3 ${version("etcd3")}`),
  },
  "bare-http2": {
    ...{ ...onEtcd, name: "bare-http2", title: "bare requests, own transport" },
    program: withOwnTransport("bare-http2", `leasehold ${own}`),
  },
  "node-http2": {
    ...{ ...onEtcd, name: "node-http2", title: "bare requests, node:http2" },
    program: withOwnTransport("node-http2", `Node.js ${process.versions.node}`),
  },
  "grpc-js": {
    ...{ ...onEtcd, name: "grpc-js", title: "bare requests, grpc-js" },
    program: withOwnTransport("grpc-js", version("@grpc/grpc-js")),
  },
  bare: {
    ...{ ...onEtcd, name: "bare", title: "bare requests, etcd3" },
    program: inNode("bare", `etcd3 ${version("etcd3")}`),
  },
  etcd3: { ...onEtcd, name: "etcd3", title: "etcd3 Lock", program: inNode("etcd3", version("etcd3")) },
  redlock: { ...onRedis, name: "redlock", title: "redlock", program: redlock },
  "redlock-fsync": { ...onFsync, name: "redlock-fsync", title: "redlock, fsync", program: redlock },
  "redis-semaphore": { ...onRedis, name: "redis-semaphore", title: "redis-semaphore", program: semaphore },
  "redis-semaphore-fsync": {
    ...{ ...onFsync, name: "redis-semaphore-fsync", title: "redis-semaphore, fsync", program: semaphore },
  },
};
