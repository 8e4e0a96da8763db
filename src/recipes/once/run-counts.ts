import type { OnceRecord } from "./history.js";

/** How many slots are in which state. */
export type RunCounts = Readonly<Record<OnceRecord["state"], number>>;

/** So many slots, the youngest, are counted: enough to see what fails, and read in five requests. */
export const COUNTED = 100;

/**
 * The states of a name's youngest slots. Undefined for a name without any, and if the user may not read the marks. `history`: that of the
 * library which has made the cluster. Rejects as it does.
 */
export async function countRuns(
  history: (limit: number) => Promise<readonly OnceRecord[]>,
): Promise<RunCounts | undefined> {
  const records = await history(COUNTED).catch((error: unknown) => {
    if ((error as { readonly code?: unknown }).code === "ETCD_REFUSED") return [];
    throw error;
  });
  if (records.length === 0) return undefined;
  const counts = { running: 0, done: 0, failed: 0, lost: 0, missed: 0 };
  for (const { state } of records) counts[state]++;
  return counts;
}
