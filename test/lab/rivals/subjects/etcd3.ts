// npm etcd3's Lock. It does not wait: who finds the lock taken has to try again, which both ways do here.
import { setTimeout as delay } from "node:timers/promises";
import { Etcd3, type Lock } from "etcd3";
import { TimeUpError, type Connect, type Held } from "../adapter.js";

/** Pause between two attempts, at random so that two waiters do not go on colliding. */
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

/** undefined: try again, whatever it was */
function failed(error: unknown, until: number): undefined {
  if (performance.now() >= until) throw new TimeUpError((error as Error).message);
}

/** `acquire()` and `release()`, the call limited by a deadline. */
export const connectAcquiring = waiting(async (lock, timeLeftMs) => {
  await lock.options({ deadline: Date.now() + timeLeftMs }).acquire();
  // Else the deadline would apply to the release as well.
  lock.options(undefined as never);
  return { release: () => lock.release() };
});

/** `do(work)`, as in etcd3's own example; an attempt that has no more time is left to end by itself. */
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
