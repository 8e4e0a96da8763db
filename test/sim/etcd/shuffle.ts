import type { Random } from "../kernel/random.js";

/** The items in a random order, where etcd has none: it iterates over a Go map, or runs several goroutines. */
export function shuffled<Item>(items: readonly Item[], random: Random): Item[] {
  const result = [...items];
  for (let i = result.length - 1; i > 0; i--) {
    const other = random.int(i + 1);
    [result[i], result[other]] = [result[other]!, result[i]!];
  }
  return result;
}
