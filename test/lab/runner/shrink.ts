/**
 * Shortens the list of faults of a run that broke an invariant: tries each half and continues with one that fails; if
 * neither does, it tries the list without one of its quarters. Ends when nothing shorter fails or `runs` are used up. A
 * run of several processes is not repeatable to the microsecond: a half that passes proves nothing, but a result that
 * failed does.
 */
export async function shrink<T>(
  faults: readonly T[],
  fails: (some: readonly T[]) => Promise<boolean>,
  { runs }: { runs: number },
): Promise<readonly T[]> {
  let short = faults;
  let left = runs;
  for (;;) {
    const next = await firstFailing(candidates(short), (some) => left-- > 0 && fails(some));
    if (next === undefined) return short;
    short = next;
  }
}

function candidates<T>(list: readonly T[]): (readonly T[])[] {
  if (list.length < 2) return [];
  const half = Math.ceil(list.length / 2);
  const halves = [list.slice(0, half), list.slice(half)];
  if (list.length < 4) return halves;
  const quarter = Math.ceil(list.length / 4);
  const lessAQuarter = [0, 1, 2, 3].map((q) => list.filter((_, n) => Math.floor(n / quarter) !== q));
  return [...halves, ...lessAQuarter];
}

async function firstFailing<T>(
  lists: readonly (readonly T[])[],
  fails: (some: readonly T[]) => Promise<boolean> | boolean,
): Promise<readonly T[] | undefined> {
  for (const list of lists) if (await fails(list)) return list;
  return undefined;
}
