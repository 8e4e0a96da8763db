import type { Leader } from "../../src/index.js";

/** What an observer is told next; undefined is a vacancy. Rejects when the observation has ended. */
export async function nextLeader(
  observer: AsyncIterableIterator<Leader | undefined>,
): Promise<Leader | undefined> {
  const told: IteratorResult<Leader | undefined, undefined> = await observer.next();
  if (told.done) throw new Error("the observation has ended");
  return told.value;
}
