import { setTimeout as delay } from "node:timers/promises";
import type { Cluster } from "../../../src/index.js";
import { describe, failureOf } from "./hold-log.js";
import type { load } from "./leasehold.js";

interface Options {
  readonly cluster: Cluster;
  readonly leasehold: Awaited<ReturnType<typeof load>>;
  readonly note: (step: object) => void;
}

/** Records what `observe()` reports about each election until it is stopped. */
export function observeAll(names: readonly string[], options: Options): { stop(): Promise<void> } {
  const stopped = new AbortController();
  const listening = Promise.all(names.map((lock) => observe(lock, options, stopped.signal)));
  return {
    stop: async () => {
      stopped.abort();
      await listening;
    },
  };
}

/** Observes until it is stopped: an observation that was refused is followed by another. */
async function observe(lock: string, options: Options, signal: AbortSignal): Promise<void> {
  for (let n = 0; !signal.aborted; n++) {
    const refused = await observeOnce({ lock, n }, options, signal);
    if (!refused) return;
    await delay(AGAIN_MS, undefined, { signal }).catch(() => {});
  }
}
const AGAIN_MS = 100;

/** true = it was refused. */
async function observeOnce(
  of: { readonly lock: string; readonly n: number },
  { cluster, leasehold, note }: Options,
  signal: AbortSignal,
): Promise<boolean> {
  let refused = false;
  try {
    for await (const leader of new leasehold.Election(cluster, of.lock).observe({ signal })) {
      const told = leader && { token: leader.fence, rev: leader.modRevision, value: leader.value };
      note({ k: "observed", ...of, ...told });
    }
  } catch (error) {
    refused = (error as { code?: string }).code === "ETCD_REFUSED" && !signal.aborted;
    if (refused) note({ k: "fail", f: "observe", id: of.n, lock: of.lock, ...failureOf(error) });
    else if (!signal.aborted) note({ k: "crash", event: "observe", err: describe(error) });
  }
  note({ k: "unobserved", ...of });
  return refused;
}
