// npm etcd3's Lock. It does not wait: a client that finds the lock taken has to try again, as both variants here do.
import { setTimeout as delay } from "node:timers/promises";
import { Etcd3, type Lock } from "etcd3";
import { TimeUpError, type Connect, type Held } from "../adapter.js";

/** The pause between two attempts, randomized so that two waiters do not keep colliding. */
const retryMs = () => 50 + Math.random() * 100;

type Attempt = (lock: Lock, timeLeftMs: number) => Promise<Held>;

const waiting =
  (attempt: Attempt): Connect =>
  ({ addresses, ttlSeconds }) => {
    const client = new Etcd3({ hosts: addresses.map((address) => `http://${address}`) });
    return {
      async acquire(name, { timeoutMs }) {
        const until = performance.now() + timeoutMs;
        for (;;) {
          const left = until - performance.now();
          const tried = attempt(client.lock(name).ttl(ttlSeconds), left);
          const held = await tried.catch((error: unknown) => failed(error, until));
          if (held !== undefined) return held;
          await delay(retryMs());
        }
      },
      close: () => Promise.resolve(client.close()),
    };
  };

/** undefined: try again, whatever the error was */
function failed(error: unknown, until: number): undefined {
  if (performance.now() >= until) throw new TimeUpError((error as Error).message);
}

/** `acquire()` and `release()`, the call limited by a deadline. */
export const connectAcquiring = waiting(async (lock, timeLeftMs) => {
  await lock.options({ deadline: Date.now() + timeLeftMs }).acquire();
  // Otherwise the deadline would also apply to the release.
  lock.options(undefined as never);
  return { release: () => lock.release() };
});

/** `do(work)`, as in etcd3's own example; an attempt that has run out of time is left to end by itself. */
export const connectDoing = waiting(
  (lock, timeLeftMs) =>
    new Promise((resolve, reject) => {
      let wanted = true;
      const late = setTimeout(() => {
        wanted = false;
        reject(new TimeUpError("not granted in time"));
      }, timeLeftMs);
      const ended = lock.do(async () => {
        clearTimeout(late);
        if (wanted) await new Promise<void>((finish) => resolve({ release: () => release(finish) }));
      });
      const release = (finish: () => void) => {
        finish();
        return ended;
      };
      ended.catch(reject);
    }),
);
