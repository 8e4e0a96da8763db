/** The unit that a name ends with: `timeout` and `timeoutSec` are near `timeoutMs`. */
const UNIT = /(?:ms|millis|milliseconds|s|secs?|seconds?)$/;
const MAX_EDITS = 2;

const normal = (name: string): string => name.toLowerCase().replaceAll(/[_-]/g, "");
const stem = (name: string): string => normal(name).replace(UNIT, "");

/** The known names that a user may have meant by `option`: none if none is near. */
export function suggestions(option: string, known: readonly string[]): readonly string[] {
  const ranked = known.map((name) => ({ name, rank: rankOf(option, name) }));
  const best = Math.min(...ranked.map(({ rank }) => rank));
  return best === Infinity ? [] : ranked.filter(({ rank }) => rank === best).map(({ name }) => name);
}

/** 0: the same name but for case, dashes and unit; from 1 on: single edits; then: one is a part of the other. */
function rankOf(option: string, name: string): number {
  if (normal(option) === normal(name) || (stem(option) !== "" && stem(option) === stem(name))) return 0;
  const edits = Math.min(distance(normal(option), normal(name)), distance(stem(option), stem(name)));
  // Two edits make any short name of any other.
  if (edits <= Math.min(MAX_EDITS, Math.floor(stem(option).length / 3))) return edits;
  const [short, long] = stem(option).length < stem(name).length ? [option, name] : [name, option];
  if (stem(short).length < 3) return Infinity;
  if (normal(long).startsWith(stem(short))) return MAX_EDITS + 1;
  return normal(long).includes(stem(short)) ? MAX_EDITS + 2 : Infinity;
}

/** Single-character edits and swaps of neighbors between two names (optimal string alignment). */
function distance(a: string, b: string): number {
  let [before, row] = [[] as readonly number[], Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const swapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1] ? (before[j - 2] ?? 0) + 1 : Infinity;
      next.push(Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, replaced, swapped));
    }
    [before, row] = [row, next];
  }
  return row[b.length] ?? 0;
}

/** `a`, `a or b`, `a, b or c`. */
export function eitherOf(names: readonly string[]): string {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
}
