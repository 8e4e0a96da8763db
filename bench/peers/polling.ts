// Clients whose waiters poll, with the same settings as in the comparison under faults.
import {
  TimeUpError,
  type Connect as ConnectPolling,
  type LockClient,
} from "../../test/lab/rivals/adapter.js";
import type { Connect, Held } from "./client.js";

/** They have no sessions: each hold is independent, on one connection per process. */
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

/** Some count attempts instead of time, and so may give up too early. */
async function patiently(client: LockClient, name: string, timeoutMs: number): Promise<Held> {
  const until = performance.now() + timeoutMs;
  for (;;)
    try {
      return await client.acquire(name, { timeoutMs: Math.max(1, until - performance.now()) });
    } catch (error) {
      if (!(error instanceof TimeUpError) || performance.now() >= until) throw error;
    }
}
