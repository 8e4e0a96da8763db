import { load } from "../../test/lab/runner/leasehold.js";
import type { Connect } from "./client.js";

/** With the options given here, or leasehold's defaults. */
const connecting =
  (options: { readonly transport?: "etcd3" }, ofLock?: { readonly sticky: true }): Connect =>
  async ({ addresses, ttlSeconds, build }) => {
    const leasehold = await load(build);
    const hosts = addresses.map((address) => `http://${address}`);
    const cluster = leasehold.connect({ hosts, ...options });
    return {
      async session() {
        const session = await leasehold.Session.open(cluster, { ttlSeconds });
        return {
          lockable(name) {
            const mutex = new leasehold.Mutex(session, name, ofLock);
            return { lock: () => mutex.lock(), tryLock: () => mutex.tryLock() };
          },
          close: () => session.close({ drainMs: 0 }),
        };
      },
      close: () => cluster.close({ drainMs: 0 }),
    };
  };

export const connect = connecting({});
export const connectSticky = connecting({}, { sticky: true });
export const connectOverEtcd3 = connecting({ transport: "etcd3" });
