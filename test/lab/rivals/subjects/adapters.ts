import type { Connect } from "../adapter.js";

/** Loaded on demand: a worker has only its own subject's client in memory. */
export const adapters = {
  leasehold: async () => (await import("./leasehold.js")).connect,
  "leasehold-options": async () => (await import("./leasehold.js")).connectWithOptions,
  "etcd3-acquire": async () => (await import("./etcd3.js")).connectAcquiring,
  "etcd3-do": async () => (await import("./etcd3.js")).connectDoing,
  redlock: async () => (await import("./redlock.js")).connect,
  mutex: async () => (await import("./redis-semaphore.js")).connectMutex,
  "redlock-mutex": async () => (await import("./redis-semaphore.js")).connectRedlockMutex,
} satisfies Record<string, () => Promise<Connect>>;

export type AdapterName = keyof typeof adapters;
