import type { Cluster } from "../../../src/index.js";
import { describe } from "./hold-log.js";
import type { load } from "./leasehold.js";

interface Options {
  readonly cluster: Cluster;
  readonly leasehold: Awaited<ReturnType<typeof load>>;
  readonly note: (step: object) => void;
}

/** Writes down what is told of each election, until it is stopped. */
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

async function observe(
  lock: string,
  { cluster, leasehold, note }: Options,
  signal: AbortSignal,
): Promise<void> {
  try {
    for await (const leader of new leasehold.Election(cluster, lock).observe({ signal })) {
      const told = leader && { token: leader.fence, rev: leader.revision, value: leader.value };
      note({ k: "observed", lock, ...told });
    }
  } catch (error) {
    if (!signal.aborted) note({ k: "crash", event: "observe", err: describe(error) });
  }
  note({ k: "unobserved", lock });
}
