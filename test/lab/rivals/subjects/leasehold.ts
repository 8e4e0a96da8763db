import type { ConnectOptions, Lock } from "../../../../src/index.js";
import type { Connect, Held } from "../adapter.js";
import { TimeUpError } from "../adapter.js";
import { load } from "../../runner/leasehold.js";

const leasehold = await load(undefined);

/** Longer than a scenario blocks a process. */
const MAX_STALL_MS = 60_000;

const connecting =
  (more: Partial<ConnectOptions>): Connect =>
  ({ addresses, ttlSeconds }) => {
    const hosts = addresses.map((address) => `http://${address}`);
    const cluster = leasehold.connect({ hosts, session: { ttlSeconds }, ...more });
    return {
      async acquire(name, { timeoutMs }) {
        const mutex = new leasehold.Mutex(cluster, name);
        return held(await mutex.lock({ timeoutMs }).catch(timeUp));
      },
      close: () => cluster.close(),
    };
  };

export const connect = connecting({});
export const connectWithOptions = connecting({ guardian: true, renewal: "worker", maxStallMs: MAX_STALL_MS });

const held = (lock: Lock): Held => ({
  token: lock.fence,
  held: () => lock.held,
  onLost(told) {
    const end = () => {
      if (!(lock.signal.reason instanceof leasehold.LockReleasedError)) told();
    };
    if (lock.signal.aborted) end();
    else lock.signal.addEventListener("abort", end);
  },
  release: () => lock.release(),
});

function timeUp(error: unknown): never {
  throw error instanceof leasehold.LockTimeoutError ? new TimeUpError(error.message) : error;
}
