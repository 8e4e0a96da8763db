import { load } from "../../test/lab/runner/leasehold.js";
import type { Connect } from "./client.js";

export const connect: Connect = async ({ addresses, ttlSeconds, build }) => {
  const leasehold = await load(build);
  const cluster = leasehold.connect({ hosts: addresses.map((address) => `http://${address}`) });
  return {
    async session() {
      const session = await leasehold.Session.open(cluster, { ttlSeconds });
      return {
        lockable(name) {
          const mutex = new leasehold.Mutex(session, name);
          return { lock: () => mutex.lock(), tryLock: () => mutex.tryLock() };
        },
        close: () => session.close({ drainMs: 0 }),
      };
    },
    close: () => cluster.close({ drainMs: 0 }),
  };
};
