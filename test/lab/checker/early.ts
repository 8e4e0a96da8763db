import type { Setting } from "../runner/history.js";
import type { Hold } from "./calls.js";
import type { Fault } from "./faults.js";
import { ByPlace, processOf, type Place } from "./places.js";
import { earlier, FOREVER, later } from "./spans.js";
import { BREATH, DETECTION, type Troubles } from "./troubles.js";

const SECOND = 1_000_000_000n;

/** A place that was removed although its holder did nothing wrong: the holder cannot know until it is notified. */
export interface Early {
  readonly cause: string;
  /** Otherwise the cause is only possible. */
  readonly known: boolean;
  /** The earliest time at which it was removed. */
  readonly since: bigint;
  /** The time by which the holder must have been notified. */
  readonly until: bigint;
}
interface Context {
  readonly setting: Setting;
  readonly troubles: Troubles;
  readonly holdOf: ByPlace<Hold>;
  readonly together: ByPlace<readonly Place[]>;
  readonly lastUse: ReadonlyMap<string, bigint>;
}

export function earlyTakings(places: readonly Place[], context: Context): ByPlace<Early> {
  const { troubles, lastUse } = context;
  const takerOf = takersOf(troubles.faults);
  const found = new ByPlace<Early>();
  for (const place of places) {
    const { lease, deleted, deletedSeen, leaseEnded } = place;
    if (deletedSeen === undefined) continue;
    const taker = takerOf(place);
    if (taker !== undefined) {
      const until = toldBy(place, troubles);
      found.set(place, { cause: `taken by ${taker.fault}`, known: true, since: taker.from, until });
    } else if ((leaseEnded || lastUse.get(lease) === deleted) && mayBeRevoked(place, context)) {
      const times = { since: deletedSeen - DETECTION, until: toldLate(place, troubles) };
      found.set(place, { cause: "revoked early by etcd", known: false, ...times });
    }
  }
  return withThoseBeside(found, context);
}

/**
 * If one of several places that were acquired together is removed early, the client releases the others as soon as it
 * knows.
 */
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

/** Per lease, the last revision at which one of its places was created or deleted; `FOREVER` if one still exists. */
export function lastUseOf(places: Iterable<Place>): Map<string, bigint> {
  const lastUse = new Map<string, bigint>();
  for (const { lease, create, deleted = FOREVER } of places)
    lastUse.set(lease, later(later(create, deleted), lastUse.get(lease) ?? 0n));
  return lastUse;
}

/**
 * The fault that took a place: the one that names the revision, or one that targets its key, its lease or a folder of keys and was
 * never answered.
 */
function takersOf(faults: readonly Fault[]): (place: Place) => Fault | undefined {
  const taking = faults.filter(({ effect }) => effect === "takes-place");
  const byRevision = new Map(taking.flatMap((fault) => fault.took.map((revision) => [revision, fault])));
  const unanswered = taking.filter(({ took }) => took.length === 0);
  return ({ key, lease, deleted, deletedSeen }) => {
    if (deleted === undefined || deletedSeen === undefined) return undefined;
    const aimsAt = ({ target }: Fault): boolean =>
      target === key || target === lease || (target.endsWith("/") && key.startsWith(target));
    return (
      byRevision.get(deleted) ??
      unanswered.find(
        (fault) => aimsAt(fault) && fault.from <= deletedSeen && deletedSeen <= fault.to + UNANSWERED,
      )
    );
  };
}

/** How long after it was sent an unanswered request may still be executed. */
const UNANSWERED = 5n * SECOND;

/**
 * A hold watches its own key from its first second on, and requests a renewal before it names the loss; a lost lease
 * shows with the next renewal. A stream that was hindered first falls silent; a stream that was ended is reopened on
 * another member, however long the TTL.
 */
function toldBy({ owner, deletedSeen = 0n }: Place, troubles: Troubles): bigint {
  const { ttl } = troubles;
  const p = processOf(owner) ?? "";
  const needed = later(SECOND, ttl / 3n) + ttl / 6n + BREATH;
  // A process that was stopped before it could notice the deletion begins when it continues.
  const from = troubles.ranFrom(p, deletedSeen, needed);
  const soon = from + needed;
  const span = { from, to: soon };
  // If it is cut off altogether, only its own deadline ends the hold. If it is cut off again and again, a renewal may pass between
  // two cuts, and no watch.
  const calm = troubles.calmFrom(p, from, ATTEMPTS);
  const by = troubles.hindered(span) ? later(soon, calm) + later(DETECTION, ttl) : soon;
  const ended = troubles.silenced(span) ? by : earlier(by, from + ENDED + BREATH);
  return troubles.saidBy(p, ended);
}
/** The longest pause between two attempts to open a stream is one second. */
const ATTEMPTS = 2n * SECOND;
/** An election timeout, the time that a member waits for a leader, an election, and the renewal that names the loss. */
const ENDED = 10n * SECOND;

/**
 * A member that led before it was stopped keeps answering renewals of leases that it has revoked, until it learns that
 * it no longer leads.
 */
function toldLate({ owner, deletedSeen = 0n }: Place, troubles: Troubles): bigint {
  const p = processOf(owner);
  return troubles.saidBy(p ?? "", troubles.limit(p, deletedSeen) + SECOND);
}

/**
 * A member that led when it was stopped revokes living leases when it continues (etcd#15247). This applies only with
 * several members, only to whole leases, only when etcd was disturbed, and not to what the holder had released before.
 */
function mayBeRevoked(place: Place, { setting, troubles, holdOf }: Context): boolean {
  const { deletedSeen = 0n } = place;
  if ((setting.members ?? 1) === 1) return false;
  const over = holdOf.get(place)?.ends[0]?.t ?? FOREVER;
  return over > deletedSeen && troubles.hindered({ from: deletedSeen, to: deletedSeen });
}
