import { AsyncLocalStorage } from "node:async_hooks";
import { subscribe } from "node:diagnostics_channel";
import type { Context } from "./context.js";

/**
 * Makes the first call of a process, for which its connection opens, in an async context of its own, and records each request
 * and each renewal in that context when the call is over: what the connection brings later concerns others.
 */
export async function callFirst({
  leasehold,
  cluster,
  locks,
  note,
}: Pick<Context, "leasehold" | "cluster" | "locks" | "note">): Promise<void> {
  const caller = new AsyncLocalStorage<{ over: boolean }>();
  for (const channel of ["tracing:leasehold.call:start", "leasehold.session.renewed"])
    subscribe(channel, () => {
      if (caller.getStore()?.over)
        note({ k: "crash", event: "in the context of another call", err: channel });
    });
  const call = { over: false };
  // It connects before it returns.
  const election = new leasehold.Election(cluster, locks[0] as string);
  const asked = caller.run(call, () => election.leader({ timeoutMs: 1000 }));
  await asked.catch(() => undefined);
  call.over = true;
}
