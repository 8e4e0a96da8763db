// One of many processes that acquire random names, one or several at once, and record what they held and when.
// Argument: a JSON ManyLocksTask. Ends by itself.
import { openSync } from "node:fs";
import { record } from "../../lab/runner/journal.js";
import { load } from "../../lab/runner/leasehold.js";
import { seeded } from "../../lab/runner/random.js";

export interface ManyLocksTask {
  readonly seed: string;
  readonly hosts: readonly string[];
  readonly names: readonly string[];
  /** Callers at the same time, and calls of each. */
  readonly callers: number;
  readonly calls: number;
  readonly journal: string;
}

/** One hold: from the answer to its release, in nanoseconds of CLOCK_MONOTONIC. */
export interface HeldTogether {
  readonly names: readonly string[];
  readonly fence: string;
  readonly from: string;
  readonly to: string;
}

const task = JSON.parse(process.argv[2] ?? "") as ManyLocksTask;
const fd = openSync(task.journal, "a");
process.once("disconnect", () => process.exit(70));

const { connect, lockAll, Mutex } = await load(undefined);
const cluster = connect({ hosts: task.hosts });
await Promise.all(Array.from({ length: task.callers }, (_, n) => callOften(n)));
await cluster.close();
process.removeAllListeners("disconnect");
process.disconnect();

async function callOften(n: number): Promise<void> {
  const random = seeded(`${task.seed} ${n}`);
  for (let call = 0; call < task.calls; call++) {
    const wanted = new Set(Array.from({ length: random.between(1, 5) }, () => random.pick(task.names)));
    const names = [...wanted];
    const [name = ""] = names;
    // A single name is equally often a mutex.
    const lock =
      names.length === 1 && random.chance(0.5)
        ? await new Mutex(cluster, name).lock()
        : await lockAll(cluster, names);
    const from = process.hrtime.bigint();
    await new Promise(setImmediate);
    lock.assertHeld();
    record(fd, { names, fence: lock.fence, from, to: process.hrtime.bigint() });
    await lock.release();
  }
}
