import type { Connect } from "./client.js";

/** Loaded on demand: a process has only its own peer's client in memory. */
export const adapters = {
  leasehold: async () => (await import("./leasehold.js")).connect,
  "leasehold-sticky": async () => (await import("./leasehold.js")).connectSticky,
  "leasehold-etcd3": async () => (await import("./leasehold.js")).connectOverEtcd3,
  "bare-http2": async () => (await import("./bare-http2.js")).connect,
  "node-http2": async () => (await import("./node-http2.js")).connect,
  "grpc-js": async () => (await import("./grpc-js.js")).connect,
  bare: async () => (await import("./bare.js")).connect,
  etcd3: async () => (await import("./etcd3.js")).connect,
  redlock: async () => (await import("./redlock.js")).connect,
  "redis-semaphore": async () => (await import("./redis-semaphore.js")).connect,
} satisfies Record<string, () => Promise<Connect>>;

export type AdapterName = keyof typeof adapters;
