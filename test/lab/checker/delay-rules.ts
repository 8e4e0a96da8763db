import { delayedBy } from "../../../src/keys.js";
import type { ServerEvent } from "../runner/history.js";
import { type Hold, readingsOf } from "./calls.js";
import { type Facts, nameOf, type Rule } from "./facts.js";
import type { Place } from "./places.js";
import { FOREVER } from "./spans.js";
import { BREATH, DETECTION } from "./troubles.js";

/** Another client has deleted it. */
const TAKEN_BY = ["delete-key", "delete-keys", "purge"];
const REVOKED = "revoke-lease";

/** etcd looks for expired leases every half second. What it deletes later than this, it deletes late. */
const LATE = 3n * BREATH;

/** The revisions at which a fault has removed entries. */
const tookBy = ({ troubles }: Facts, faults: readonly string[]): ReadonlySet<bigint> =>
  new Set(troubles.faults.filter((each) => faults.includes(each.fault)).flatMap(({ took }) => [...took]));

/** I19: with `releaseDelayMs`, nobody follows a holder that has crashed before its delay is over. */
export const delayAfterCrash: Rule = (facts) =>
  followedInDelay(facts, Number(BREATH) / 1e6).map((text) => ({ text }));

/**
 * After the end of a holder's lease its delay key stays for the delay, and nobody behind it is granted an exclusive hold before its
 * end. A release deletes both in one revision. An etcd that is disturbed may delete both keys late and together: the delay then counts
 * from the last claim. A leader that goes on after a pause may revoke both leases of a session that lives. `lateMs`: so late may the
 * observer have seen an end.
 */
export function followedInDelay(facts: Facts, lateMs: number): readonly string[] {
  const { setting, delayKeys, placeOf, holds } = facts;
  const { releaseDelayMs = 0 } = setting;
  if (delayKeys.length === 0 || releaseDelayMs === 0) return [];
  const took = tookBy(facts, TAKEN_BY);
  const revoked = tookBy(facts, [REVOKED]);
  const deletions = delayKeys.filter(
    ({ type, rev }) => type === "DELETE" && !took.has(rev) && !revoked.has(rev),
  );
  const byCreate = new Map(deletions.map((event) => [`${event.create} ${delayedBy(event.key)}`, event]));
  return holds.flatMap((hold) => {
    const place = placeOf.get(hold);
    const freed = place && byCreate.get(`${place.create} ${place.key}`);
    const { deleted, deletedSeen } = place ?? {};
    if (!freed || deleted === undefined || deletedSeen === undefined) return [];
    if (freed.rev === deleted || took.has(deleted) || hold.releasing !== undefined) return [];
    if (wasGivenUp(facts, hold, { deleted, at: freed.tSeen, revoked })) return [];
    const claimed = readingsOf(hold).findLast(({ held }) => held)?.t ?? hold.granted;
    const { ttl } = facts.troubles;
    const late =
      deletedSeen > claimed + ttl + LATE && facts.troubles.deletesLate({ from: claimed, to: deletedSeen });
    const gapMs = Number(freed.tSeen - (late ? claimed : deletedSeen)) / 1e6;
    const apartMs = wereApart(facts, hold.p) ? SLOW_MS : 0;
    const isEarly = gapMs + lateMs + apartMs < releaseDelayMs && !revokedBoth(facts, place, freed);
    const early = isEarly ? [`${nameOf(hold)} was followed after ${gapMs} ms`] : [];
    const isShared = hold.shared || place.downgraded !== undefined;
    const isNext = (other: Hold): boolean => other.lock === hold.lock && other.create > hold.create;
    const until = freed.tSeen - BigInt(Math.round(lateMs * 1e6));
    const next = holds.filter(
      (other) => isNext(other) && !(other.shared && isShared) && other.granted < until,
    );
    return [...early, ...next.map((other) => `${nameOf(other)} was granted in the delay of ${nameOf(hold)}`)];
  });
}

interface Freed {
  readonly deleted: bigint;
  readonly at: bigint;
  /** The revisions at which leases were revoked by hand. */
  readonly revoked: ReadonlySet<bigint>;
}

/**
 * Its client lives, has been told of the end, and has removed the delay key: its lease was revoked by hand, which looks like a deletion of its
 * key; or the work on its shard had settled, and the group has released the lock. All others record their releases.
 */
function wasGivenUp(
  { steps, troubles }: Facts,
  { p, id, ends }: Hold,
  { deleted, at, revoked }: Freed,
): boolean {
  if ((ends[0]?.t ?? FOREVER) > at || troubles.killedAt(p) <= at) return false;
  const last = steps.works.findLast(
    (step) => step.k !== "moved" && step.p === p && step.id === id && step.t <= at,
  );
  return revoked.has(deleted) || last?.k === "ran";
}

const PAUSES = /^(pause|slow-disk)-/;

/**
 * etcd has revoked both leases of a holder at once, because a member goes on after a pause that was longer than the delay: if it led, it
 * takes living leases for expired (etcd#15247). No client can help that.
 */
function revokedBoth({ early, setting, troubles }: Facts, place: Place, freed: ServerEvent): boolean {
  const { deletedSeen = 0n } = place;
  if (early.get(place)?.known !== false || freed.tSeen - deletedSeen > BREATH) return false;
  const delay = BigInt(setting.releaseDelayMs ?? 0) * 1_000_000n;
  return troubles.faults.some(
    ({ fault, target, from, to }) =>
      PAUSES.test(fault) &&
      /^m\d/.test(target) &&
      from + delay <= deletedSeen &&
      deletedSeen <= to + DETECTION,
  );
}

/** A message on a slow link of the simulation takes up to that long. */
const SLOW_MS = 2500;

/**
 * A process has died whose link was slow: the renewal of its delay lease may have arrived, and that of its own lease so much later, although
 * both were sent in one write. The next two would have made up for that.
 */
function wereApart({ troubles }: Facts, p: string): boolean {
  const killed = troubles.killedAt(p);
  const slow = BigInt(SLOW_MS) * 1_000_000n;
  return troubles.faults.some(
    ({ fault, target, from, to }) =>
      fault === "link-slow" && target.split(",").includes(p) && from <= killed && killed <= to + slow,
  );
}
