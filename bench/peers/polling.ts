// Clients whose waiters ask again and again, with the settings that the comparison under faults uses.
import {
  TimeUpError,
  type Connect as ConnectPolling,
  type LockClient,
} from "../../test/lab/rivals/adapter.js";
import type { Connect, Held } from "./client.js";

/** They have no sessions: each hold is one by itself, on one connection per process. */
export const polling =
  (connect: ConnectPolling): Connect =>
  (where) => {
    const client = connect(where);
    return {
      session: () =>
        Promise.resolve({
          lockable: (name) => ({ lock: (timeoutMs) => patiently(client, name, timeoutMs) }),
          close: () => Promise.resolve(),
        }),
      close: () => client.close(),
    };
  };

/** Some count attempts instead of time, and give up too early by chance. */
async function patiently(client: LockClient, name: string, timeoutMs: number): Promise<Held> {
  const until = performance.now() + timeoutMs;
  for (;;)
    try {
      return await client.acquire(name, { timeoutMs: Math.max(1, until - performance.now()) });
    } catch (error) {
      if (!(error instanceof TimeUpError) || performance.now() >= until) throw error;
    }
}
