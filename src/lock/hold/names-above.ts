import { EtcdRefusedError } from "../../errors.js";
import { pathOf } from "../../keys.js";
import { entryFound } from "../../kinds.js";
import type { JoinedEntry } from "../queue/entry.js";
import { queueRange } from "../queue/lock-mode.js";
import { printable } from "../../base/util/printable.js";

/** A name has up to 512 names above it, and a program any number of names: no more are asked about for a hold, and for a cluster. */
const MAX_FOR_HOLD = 8;
const MAX_FOR_CLUSTER = 100;

/**
 * Warns, once for each of them, of the names above that of a long hold that are in use: "reports", for "reports/daily". Their calls cannot
 * share a queue with it, and are rejected from now on, whereas this one has seen nothing of them. Nobody waits for the read.
 */
export function askAboutNamesAbove(entry: JoinedEntry): void {
  const { name, lease } = entry;
  const { namesAbove } = lease.services;
  let end = name.length;
  for (let n = 0; n < MAX_FOR_HOLD && (end = name.lastIndexOf("/", end - 1)) > 0; n++) {
    const above = name.slice(0, end);
    if (namesAbove.has(above) || namesAbove.size >= MAX_FOR_CLUSTER) continue;
    namesAbove.add(above);
    isInUse(entry, above).then(
      (used) => used && warn(name, above),
      // This user may not read it; otherwise the next long hold asks again.
      (error: unknown) => error instanceof EtcdRefusedError || namesAbove.delete(above),
    );
  }
}

/** Calls behind a nested entry are rejected, so an entry of the name itself is the oldest one of its queue if there is any. */
async function isInUse({ lease }: JoinedEntry, above: string): Promise<boolean> {
  const { services } = lease;
  const range = queueRange(pathOf(services, above));
  const policy = lease.policy(`ask whether "${above}" is in use`);
  const oldest = { ...range, order: "oldest first", limit: 1 } as const;
  const { kvs } = await services.client.range(oldest, policy);
  const found = kvs[0] && entryFound(above, kvs[0], services.options.prefix);
  return found?.name === above && !found.isMark;
}

function warn(name: string, above: string): void {
  const [below, used] = [JSON.stringify(printable(name)), JSON.stringify(printable(above))];
  const text =
    `${below} is held, and ${used}, above it, is in use: until ${below} is free, each new call for ${used} ` +
    `is rejected with KIND_MISMATCH. Use names that are not nested`;
  process.emitWarning(text, { type: "LeaseholdWarning", code: "NESTED_NAME" });
}
