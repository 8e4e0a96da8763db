// Clients whose waiters ask again and again, with the settings that the comparison under faults uses.
import type { Connect as ConnectPolling } from "../../test/chaos/rivals/adapter.js";
import type { Connect } from "./client.js";

/** They have no sessions: each hold is one by itself, on one connection per process. */
export const polling =
  (connect: ConnectPolling): Connect =>
  (where) => {
    const client = connect(where);
    return {
      session: () =>
        Promise.resolve({
          lockable: (name) => ({ lock: (timeoutMs) => client.acquire(name, { timeoutMs }) }),
          close: () => Promise.resolve(),
        }),
      close: () => client.close(),
    };
  };
