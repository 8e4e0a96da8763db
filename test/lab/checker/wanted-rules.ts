import type { Asks, Wanted } from "../runner/history.js";
import type { Hold } from "./calls.js";
import { at, ms, nameOf, type Facts, type Finding, type Rule } from "./facts.js";
import { grouped } from "./grouped.js";
import type { Place } from "./places.js";
import { earlier, FOREVER, later } from "./spans.js";

/** After one waiter, its holder is told of the next one a second later at most. */
const COALESCED = 1_000_000_000n;

/**
 * I22: a holder that listens is told while it holds, and of nothing but entries that wait behind it by etcd's record; and it is told of one
 * that waits within one TTL, or within one TTL after the cluster has settled.
 */
export const holderIsToldOfWaiters: Rule = (facts) => {
  const toldOf = grouped(facts.steps.wanted, idOf);
  return facts.steps.asks.flatMap((asks) => {
    const hold = facts.holds.find((each) => idOf(each) === idOf(asks));
    if (!hold) return [];
    const told = toldOf.get(idOf(asks)) ?? [];
    return [...told.flatMap((each) => untrue(facts, hold, asks, each)), ...untold(facts, hold, asks, told)];
  });
};

const idOf = ({ p, id, lock }: { readonly p: string; readonly id: number; readonly lock: string }): string =>
  `${p} ${id} ${lock}`;

function untrue(facts: Facts, hold: Hold, asks: Asks, { t, key, rev }: Wanted): Finding[] {
  const text = `${nameOf(hold)} was told ${at(facts, t)} that ${key}@${rev} waits`;
  const end = endOf(facts, hold);
  if (t > end) return [{ text: `${text}, ${ms(t - end)} after its end` }];
  const place = facts.placeOf.get({ lock: hold.lock, create: rev });
  if (place?.key !== key) return [{ text: `${text}, and etcd has never had it` }];
  if (!isBehind(place, hold)) return [{ text: `${text}, which is not behind it` }];
  if (place.deletedSeen !== undefined && place.deletedSeen < asks.t)
    return [{ text: `${text}, which had left before the holder listened` }];
  return [];
}

/** A call with a priority waits for each hold, whichever is older. */
const isBehind = ({ create, priority }: Place, hold: Hold): boolean =>
  create > hold.create || priority?.granted === false;

/** When its holder has nothing to listen for. */
function endOf({ troubles, end }: Facts, { p, releasing, ends }: Hold): bigint {
  const own = earlier(releasing ?? FOREVER, ends[0]?.t ?? FOREVER);
  return earlier(earlier(own, earlier(troubles.killedAt(p), troubles.crashedAt(p))), end);
}

function untold(facts: Facts, hold: Hold, asks: Asks, told: readonly Wanted[]): Finding[] {
  const end = earlier(endOf(facts, hold), facts.placeOf.get(hold)?.deletedSeen ?? FOREVER);
  const heard = (from: bigint, by: bigint): boolean =>
    told.some(({ t, rev }) => {
      const place = facts.placeOf.get({ lock: hold.lock, create: rev });
      return t <= by && place !== undefined && waitsUntil(place) > from;
    });
  return (facts.places.get(hold.lock) ?? []).flatMap((place) => {
    const from = later(place.seen, asks.t);
    if (!isBehind(place, hold) || waitsUntil(place) <= from) return [];
    const by = facts.troubles.limit(hold.p, from) + COALESCED;
    if (earlier(waitsUntil(place), end) <= by || heard(from, by)) return [];
    const text = `${nameOf(hold)} was not told within ${ms(by - from)} that ${place.key}@${place.create} waits ${at(facts, from)}`;
    return [{ text }];
  });
}

const waitsUntil = ({ headSeen = FOREVER, deletedSeen = FOREVER }: Place): bigint =>
  earlier(headSeen, deletedSeen);
