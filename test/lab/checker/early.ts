import type { Setting } from "../runner/history.js";
import type { Hold } from "./calls.js";
import type { Fault } from "./faults.js";
import { ByPlace, processOf, type Place } from "./places.js";
import { earlier, FOREVER, later } from "./spans.js";
import { BREATH, DETECTION, type Troubles } from "./troubles.js";

const SECOND = 1_000_000_000n;

/** A place that went although its holder did nothing wrong: who holds it cannot know before it is told. */
export interface Early {
  readonly cause: string;
  /** Else it is what may have been. */
  readonly known: boolean;
  /** It went no earlier than this. */
  readonly since: bigint;
  /** By then the holder must have been told. */
  readonly until: bigint;
}
interface Context {
  readonly setting: Setting;
  readonly troubles: Troubles;
  readonly holdOf: ByPlace<Hold>;
  readonly together: ByPlace<readonly Place[]>;
}

export function earlyTakings(places: readonly Place[], context: Context): ByPlace<Early> {
  const { troubles } = context;
  const takerOf = takersOf(troubles.faults);
  const lastUse = lastUseOf(places);
  const found = new ByPlace<Early>();
  for (const place of places) {
    const { lease, deleted, deletedSeen } = place;
    if (deletedSeen === undefined) continue;
    const taker = takerOf(place);
    if (taker !== undefined) {
      const until = toldBy(place, troubles);
      found.set(place, { cause: `taken by ${taker.fault}`, known: true, since: taker.from, until });
    } else if (lastUse.get(lease) === deleted && mayBeRevoked(place, context)) {
      const times = { since: deletedSeen - DETECTION, until: toldLate(place, troubles) };
      found.set(place, { cause: "revoked early by etcd", known: false, ...times });
    }
  }
  return withThoseBeside(found, context);
}

/** One of several that were taken together is gone early: the others are given back as soon as that is known. */
function withThoseBeside(found: ByPlace<Early>, { together }: Context): ByPlace<Early> {
  const all = new ByPlace<Early>();
  for (const group of together.values())
    for (const gone of group) {
      const early = found.get(gone);
      if (early === undefined) continue;
      for (const place of group) if (!found.has(place)) all.set(place, early);
    }
  for (const [place, early] of found.entries()) all.set(place, early);
  return all;
}

/** Per lease, the last revision at which one of its places came or went; `FOREVER` if one is still there. */
export function lastUseOf(places: Iterable<Place>): Map<string, bigint> {
  const lastUse = new Map<string, bigint>();
  for (const { lease, create, deleted = FOREVER } of places)
    lastUse.set(lease, later(later(create, deleted), lastUse.get(lease) ?? 0n));
  return lastUse;
}

/** Which fault took a place: the one that names the revision, or one at its key or lease that was never answered. */
function takersOf(faults: readonly Fault[]): (place: Place) => Fault | undefined {
  const taking = faults.filter(({ effect }) => effect === "takes-place");
  const byTarget = new Map<string, Fault[]>();
  for (const fault of taking) byTarget.set(fault.target, [...(byTarget.get(fault.target) ?? []), fault]);
  return ({ key, lease, deleted, deletedSeen }) => {
    if (deleted === undefined || deletedSeen === undefined) return undefined;
    const aimed = [...(byTarget.get(key) ?? []), ...(byTarget.get(lease) ?? [])];
    return aimed.find(({ took, from, to }) =>
      took.length > 0 ? took.includes(deleted) : from <= deletedSeen && deletedSeen <= to + UNANSWERED,
    );
  };
}
/** A request that was never answered may be carried out so late. */
const UNANSWERED = 5n * SECOND;

/**
 * A hold watches its own key from its first second on, and asks for a renewal before it names the loss; a lease that
 * is gone is heard of with the next renewal. A stream that was hindered falls silent first; one that was ended is
 * opened again elsewhere, however long the TTL.
 */
function toldBy({ owner, deletedSeen = 0n }: Place, troubles: Troubles): bigint {
  const { ttl } = troubles;
  const soon = deletedSeen + later(SECOND, ttl / 3n) + ttl / 6n + BREATH;
  const span = { from: deletedSeen, to: soon };
  const by = troubles.hindered(span) ? soon + DETECTION : soon;
  const ended = troubles.silenced(span) ? by : earlier(by, deletedSeen + ENDED + BREATH);
  return troubles.saidBy(processOf(owner) ?? "", ended);
}
/** An election timeout, a member's patience without a leader, an election, and the renewal that names the loss. */
const ENDED = 10n * SECOND;

/** A member that led before it was stopped answers renewals of leases that it has revoked, until it notices. */
function toldLate({ owner, deletedSeen = 0n }: Place, troubles: Troubles): bigint {
  const p = processOf(owner);
  return troubles.saidBy(p ?? "", troubles.limit(p, deletedSeen) + SECOND);
}

/**
 * A member that led when it was stopped revokes living leases when it goes on (etcd#15247): where there are several, only
 * whole leases, only when etcd was disturbed, and not what its holder gave back before.
 */
function mayBeRevoked(place: Place, { setting, troubles, holdOf }: Context): boolean {
  const { deletedSeen = 0n } = place;
  if ((setting.members ?? 1) === 1) return false;
  const over = holdOf.get(place)?.ends[0]?.t ?? FOREVER;
  return over > deletedSeen && troubles.hindered({ from: deletedSeen, to: deletedSeen });
}
