import type { Call } from "./calls.js";
import { nameOf, type Rule } from "./facts.js";
import { grouped } from "./grouped.js";
import { groupedByPair } from "./pair-map.js";
import { ByPlace, type GrowingPlace, type Place } from "./places.js";
import { FOREVER, later, type Span } from "./spans.js";

/**
 * Places that one transaction has put for a call that requests several names at once. None of them holds before all
 * may: their turn is that of the last one.
 */
export function togetherOf(
  places: ReadonlyMap<string, readonly GrowingPlace[]>,
  calls: readonly Call[],
): ByPlace<readonly Place[]> {
  const found = new ByPlace<readonly Place[]>();
  const requests = grouped(requestsOf(calls), ({ owner }) => owner);
  if (requests.size === 0) return found;
  const granted = groupedByPair(
    calls,
    ({ owner }) => owner,
    ({ hold }) => hold?.create,
  );
  const all = [...places.values()].flat();
  const batches = groupedByPair(
    all,
    ({ owner }) => owner,
    ({ create }) => create,
  );
  for (const batch of batches.values()) {
    const { owner, create } = batch[0] as Place;
    const requested = openFirst(requests.get(owner ?? "") ?? [], batch);
    for (const group of groupsOf(batch, granted.get(owner, create) ?? [], requested)) {
      turnTogether(group);
      for (const place of group) found.set(place, group);
    }
  }
  return found;
}

interface Request {
  readonly owner: string;
  readonly names: ReadonlySet<string>;
  readonly open: Open[];
}

/** From a call to its outcome, which is `FOREVER` away for one without an outcome. */
interface Open extends Span {
  /** The create revision of the places that it was granted: none of its places is newer. */
  readonly last: bigint;
}

/** Each set of names that an owner has requested at once. */
function requestsOf(calls: readonly Call[]): Iterable<Request> {
  const found = new Map<string, Request>();
  for (const { owner = "", names, invoked, outcome, hold } of calls) {
    if (names.length === 0) continue;
    const id = `${owner} ${[...names].sort().join()}`;
    const request = found.get(id) ?? { owner, names: new Set(names), open: [] };
    request.open.push({ from: invoked, to: outcome?.t ?? FOREVER, last: hold?.create ?? FOREVER });
    found.set(id, request);
  }
  return found.values();
}

/**
 * First the requests that may have put places of the batch while they were open. Then the others, whose late put may have created them.
 * Those for more names come before those for some of them: else one place of a joint transaction would seem to stand alone.
 */
function openFirst(requests: readonly Request[], batch: readonly Place[]): readonly Request[] {
  const mayPut = (request: Request): boolean => request.open.some((open) => isOpenFor(open, request, batch));
  const largest = requests.toSorted((a, b) => b.names.size - a.names.size);
  return [...largest.filter(mayPut), ...largest.filter((request) => !mayPut(request))];
}

/**
 * A call that was granted puts its places once, unless it has lost one of them: it joins the queues again only when it knows that. So
 * its older places are those of which one was deleted before the granted ones were put.
 */
function isOpenFor({ from, to, last }: Open, { names }: Request, batch: readonly Place[]): boolean {
  const { seen = 0n, create = 0n } = batch[0] ?? {};
  if (seen < from || to < seen || create > last) return false;
  if (create === last || last === FOREVER) return true;
  return batch.some(({ lock, deleted }) => names.has(lock) && deleted !== undefined && deleted < last);
}

/**
 * Calls that do not concern each other may share a request and thus a revision. A place belongs to the call that it was
 * granted to; of the others, those belong together whose names their owner has requested at once.
 */
function groupsOf(batch: readonly GrowingPlace[], granted: readonly Call[], requested: readonly Request[]) {
  let rest = batch;
  const take = (names: ReadonlySet<string>) => {
    const group = rest.filter(({ lock }) => names.has(lock));
    if (group.length < names.size) return [];
    rest = rest.filter((place) => !group.includes(place));
    return [group];
  };
  for (const { lock, names } of granted) if (names.length === 0) take(new Set([lock]));
  const several = granted.filter(({ names }) => names.length > 0).map(({ names }) => new Set(names));
  return [...several, ...requested.map(({ names }) => names)].flatMap(take);
}

function turnTogether(group: readonly GrowingPlace[]): void {
  const turns = group.map(({ headSince, headSeen }) => ({ headSince, headSeen }));
  const last = turns.reduce((a, b) =>
    a.headSince === undefined || b.headSince === undefined
      ? { headSince: undefined, headSeen: undefined }
      : { headSince: later(a.headSince, b.headSince), headSeen: later(a.headSeen ?? 0n, b.headSeen ?? 0n) },
  );
  const ends = group.flatMap(({ deleted }) => deleted ?? []);
  const before = last.headSince !== undefined && ends.some((end) => end <= (last.headSince ?? 0n));
  for (const place of group) {
    place.headSince = before ? undefined : last.headSince;
    place.headSeen = before ? undefined : last.headSeen;
  }
}

/** I14: several names are granted at once only if places under all of them were created at one revision. */
export const allAtOnce: Rule = ({ calls, together }) =>
  calls.flatMap(({ hold, names }) =>
    hold === undefined || names.length === 0 || together.has(hold)
      ? []
      : [{ text: `${nameOf(hold)} was granted without places of its revision under ${names.join(", ")}` }],
  );
