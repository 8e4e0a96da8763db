// npm redlock 5 with ioredis: `using`, which extends the lock by itself, with the settings of its README.
import Redlock, { ExecutionError } from "redlock";
import { TimeUpError, type Connect, type Held } from "../adapter.js";
import { redisAt } from "./ioredis.js";

const RETRY_MS = 200;
const SETTINGS = {
  driftFactor: 0.01,
  retryDelay: RETRY_MS,
  retryJitter: 200,
  automaticExtensionThreshold: 500,
};

export const connect: Connect = ({ addresses, ttlSeconds }) => {
  const redlock = new Redlock(addresses.map(redisAt), SETTINGS);
  return {
    acquire: (name, { timeoutMs }) =>
      new Promise<Held>((resolve, reject) => {
        const retry = { retryCount: Math.ceil(timeoutMs / RETRY_MS) };
        const ended = redlock.using([name], ttlSeconds * 1000, retry, (signal) => {
          const { promise, finish } = finishing();
          const release = () => {
            finish();
            return ended;
          };
          const onLost = (told: () => void) => signal.addEventListener("abort", told);
          resolve({ held: () => !signal.aborted, onLost, release });
          return promise;
        });
        ended.catch((error: unknown) => reject(timeUp(error)));
      }),
    close: () => redlock.quit(),
  };
};

/** It has no time limit, only a number of attempts. */
const timeUp = (error: unknown) =>
  error instanceof ExecutionError ? new TimeUpError(error.message) : (error as Error);

function finishing() {
  let finish = () => {};
  const promise = new Promise<void>((resolve) => (finish = resolve));
  return { promise, finish };
}
