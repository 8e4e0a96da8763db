// npm redis-semaphore with ioredis, both with their defaults except for the TTL and the time limit.
import { Redis } from "ioredis";
import { Mutex, RedlockMutex, TimeoutError } from "redis-semaphore";
import { TimeUpError, type Connect } from "../adapter.js";
import { redisAt } from "./ioredis.js";

interface Options {
  lockTimeout: number;
  acquireTimeout: number;
  onLockLost(): void;
}
type Make = (clients: Redis[], name: string, options: Options) => Mutex | RedlockMutex;

const connecting =
  (make: Make): Connect =>
  ({ addresses, ttlSeconds }) => {
    const clients = addresses.map(redisAt);
    return {
      async acquire(name, { timeoutMs }) {
        const listeners = new Set<() => void>();
        const mutex = make(clients, name, {
          lockTimeout: ttlSeconds * 1000,
          acquireTimeout: timeoutMs,
          onLockLost: () => listeners.forEach((told) => told()),
        });
        await mutex.acquire().catch(timeUp);
        return {
          held: () => mutex.isAcquired,
          onLost: (told) => void listeners.add(told),
          release: () => mutex.release(),
        };
      },
      close: async () => void (await Promise.all(clients.map((client) => client.quit()))),
    };
  };

function timeUp(error: unknown): never {
  throw error instanceof TimeoutError ? new TimeUpError(error.message) : error;
}

export const connectMutex = connecting((clients, name, options) => {
  const [client] = clients;
  if (client === undefined) throw new RangeError("Expected one address, got none");
  return new Mutex(client, name, options);
});
export const connectRedlockMutex = connecting(
  (clients, name, options) => new RedlockMutex(clients, name, options),
);
