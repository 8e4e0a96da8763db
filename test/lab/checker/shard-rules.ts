// The promises of `shards`, judged by etcd's record of the queues and of the members, and by what the works have recorded.
import type { Moved, ServerEvent, Settled, WorkRun } from "../runner/history.js";
import type { Hold } from "./calls.js";
import { at, ms, nameOf, type Facts, type Finding, type Rule } from "./facts.js";
import { grouped } from "./grouped.js";
import type { Place } from "./places.js";
import { FOREVER } from "./spans.js";

const SECOND = 1_000_000_000n;

/** A stretch in which the work on a shard ran. */
interface Worked {
  readonly run: WorkRun;
  readonly to: bigint;
}

const known = new WeakMap<Facts, readonly Worked[]>();

/** In the order of their begins. */
function worksOf(facts: Facts): readonly Worked[] {
  let works = known.get(facts);
  if (works === undefined) known.set(facts, (works = readWorks(facts)));
  return works;
}

function readWorks({ steps, troubles }: Facts): readonly Worked[] {
  const running = new Map<string, { run: WorkRun; to: bigint }>();
  const works: Worked[] = [];
  for (const step of steps.works) {
    const id = `${step.p}#${step.id}`;
    if (step.k === "run") {
      const worked = { run: step, to: troubles.killedAt(step.p) };
      running.set(id, worked);
      works.push(worked);
    } else if (step.k === "ran") {
      const worked = running.get(id);
      if (worked !== undefined) worked.to = step.t;
    }
  }
  return works;
}

/**
 * I24: in a member, the work on a shard has settled before it runs again, and a work begins only while its process has the lock. In the
 * lab, time goes on between leasehold's look at the clock and the first line of the work: there, a work that finds its lock ended has
 * begun too late if etcd had deleted its key by then.
 */
export const worksOneByOne: Rule = (facts) => {
  const found: Finding[] = [];
  const exact = facts.sights.length > 0;
  const last = new Map<string, Worked>();
  for (const worked of worksOf(facts)) {
    const { p, id, lock, t, owner } = worked.run;
    const before = last.get(`${owner} ${lock}`);
    if (before !== undefined && before.to > t)
      found.push({
        text: `${p}#${id} worked on ${lock} ${at(facts, t)}, while ${p}#${before.run.id} still did`,
      });
    last.set(`${owner} ${lock}`, worked);
    const hold = facts.callOf.get(p, id)?.hold;
    const end = hold?.ends[0];
    const gone = hold && (facts.placeOf.get(hold)?.deletedSeen ?? FOREVER);
    const begunLate =
      exact || gone === undefined || (gone < t && !facts.troubles.stillness(p, { from: gone, to: t }));
    if (!worked.run.held && begunLate && (end === undefined || end.t > t) && !facts.troubles.inDoubt(p, t))
      found.push({ text: `${p}#${id} began to work on ${lock} ${at(facts, t)} without its lock` });
    if (end !== undefined && end.t < t)
      found.push({
        text: `${p}#${id} began to work on ${lock} ${at(facts, t)}, ${ms(t - end.t)} after the end of its lock`,
      });
  }
  return found;
};

/** I25: a lock is released when the work under it has settled, and not before. */
export const workIsAwaited: Rule = (facts) => {
  const works = grouped(worksOf(facts), ({ run: { p, id } }) => `${p}#${id}`);
  return facts.holds.flatMap((hold) => {
    const mine = works.get(`${hold.p}#${hold.id}`) ?? [];
    const gone = letGoAt(facts, hold);
    const running = gone === undefined ? undefined : mine.find(({ run, to }) => run.t <= gone && gone < to);
    if (running === undefined || gone === undefined) return [];
    const left = running.to === FOREVER ? "which never settled" : `which took ${ms(running.to - gone)} more`;
    return [{ text: `${nameOf(hold)} was released ${at(facts, gone)} under its work, ${left}` }];
  });
};

/** When the hold ended, or its key was deleted, by its own process; undefined if that is not what ended it. */
function letGoAt(facts: Facts, hold: Hold): bigint | undefined {
  const [end] = hold.ends;
  if (end?.reason === "released") return end.t;
  const place = facts.placeOf.get(hold);
  if (place?.deletedSeen === undefined || place.deleted === undefined || facts.early.has(place))
    return undefined;
  if (end !== undefined && end.t <= place.deletedSeen) return undefined;
  // It has released nothing while it stood still, nor what it had lost by then.
  const before = { from: place.deletedSeen - SECOND, to: place.deletedSeen };
  if (facts.troubles.stillness(hold.p, before) !== undefined) return undefined;
  return (facts.lastUse.get(place.lease) ?? 0n) > place.deleted ? place.deletedSeen : undefined;
}

/**
 * I26: a shard moves only when another member's entry stands in its queue. A member that leaves lets go when `drainMs` are over, or if
 * nobody could take it. If its place had gone before, it lets nothing go: it has not yet heard of that. A release under the work is
 * judged by I25.
 */
export const neverFreeBetweenOwners: Rule = (facts) =>
  facts.steps.works.flatMap((step): Finding[] => {
    if (step.k !== "moved" || step.drained === true) return [];
    const place = facts.placeOf.get({ lock: step.lock, create: step.token });
    if (place === undefined) return [];
    // Only the record of a simulated run is dated when things happen.
    const exact = facts.sights.length > 0;
    if (exact && (place.deletedSeen ?? FOREVER) <= step.t) return [];
    const next = (facts.places.get(step.lock) ?? []).filter(
      ({ create, lease, seen, deletedSeen = FOREVER }) =>
        create > place.create &&
        lease !== place.lease &&
        (exact ? seen < step.t : seen < (place.deletedSeen ?? FOREVER)) &&
        deletedSeen > seenSince(facts, step.p, step.t),
    );
    if (next.length > 0) return [];
    const leaves = step.drained === false || isDraining(facts, step, place);
    if (leaves && !couldBeTaken(facts, step, place)) return [];
    return [
      {
        text: `${step.p}#${step.id} gave up ${step.lock} ${at(facts, step.t)}, though nobody else stood in its queue`,
      },
    ];
  });

/**
 * It has told the group so: its session can join no more queues, and is replaced. If somebody has deleted its key since, it may not know
 * that yet.
 */
function isDraining({ memberKeys }: Facts, { lock, t }: Moved, { lease }: Place): boolean {
  const [group = ""] = lock.split("/shard/");
  const last = memberKeys.findLast(
    (event) =>
      event.type === "PUT" &&
      event.lease === lease &&
      event.tSeen <= t &&
      event.key.startsWith(`${group}/members/`),
  );
  return last !== undefined && memberIn(last).draining;
}

/** Another member has been there for long enough to be seen, and is still. */
function couldBeTaken(facts: Facts, { p, lock, t }: Moved, { lease }: Place): boolean {
  const since = seenSince(facts, p, t);
  if (since === 0n) return false;
  const [group = "", shard] = lock.split("/shard/");
  const takersAt = (at: bigint) =>
    membersAt(facts, group, at).filter(
      (each) =>
        each.active && each.capacity > 0 && each.lease !== lease && !each.declines.includes(Number(shard)),
    );
  const now = takersAt(t);
  return takersAt(since).some((taker) => now.some((each) => each.lease === taker.lease));
}

/** What a process knows was so at this time, or later: its watch may lag. */
const seenSince = ({ troubles }: Facts, p: string, t: bigint): bigint =>
  troubles.disturbed(p, { from: t - SECOND, to: t }) ? 0n : t - SECOND;

interface ShardMember {
  readonly lease: string;
  readonly capacity: number;
  readonly active: boolean;
  readonly draining: boolean;
  readonly count: number;
  readonly declines: readonly number[];
}

/** I27: when nothing has happened for long, each shard has one owner, each member has its share, and all see the same owners. */
export const shardsSettle: Rule = (facts) => {
  const byGroup = grouped(facts.steps.settled, ({ lock }) => lock);
  return [...byGroup.values()].flatMap((all) => {
    const [first] = all;
    return first === undefined ? [] : settledAt(facts, first);
  });
};

function settledAt(facts: Facts, { p, t, lock: group, count, fences }: Settled): Finding[] {
  const members = membersAt(facts, group, t);
  const claimants = members.filter((each) => each.active && each.capacity > 0 && each.count === count);
  const heads = Array.from({ length: count }, (_, shard) => headAt(facts, `${group}/shard/${shard}`, t));
  const found: string[] = [];
  const loads = new Map<string, number>(claimants.map(({ lease }) => [lease, 0]));
  for (const [shard, head] of heads.entries()) {
    const takers = claimants.filter(({ declines }) => !declines.includes(shard));
    if (head === undefined && takers.length > 0)
      found.push(`shard ${shard} has no owner, though ${takers.length} could`);
    if (head !== undefined && !members.some(({ lease }) => lease === head.lease))
      found.push(`shard ${shard} is owned by ${head.owner}, which is no member`);
    const load = head && loads.get(head.lease);
    if (head && load !== undefined) loads.set(head.lease, load + 1);
  }
  const whole = claimants.reduce((sum, { capacity }) => sum + capacity, 0);
  const declined = claimants.some(({ declines }) => declines.length > 0);
  for (const { lease, capacity } of declined ? [] : claimants) {
    const share = (count * capacity) / whole;
    const load = loads.get(lease) ?? 0;
    if (load < Math.floor(share) || load > Math.floor(share) + 1)
      found.push(`the member of lease ${lease} has ${load} shards, and a share of ${share.toFixed(1)}`);
  }
  const truth = heads.map((head) => head?.create ?? "").join();
  if (truth !== fences) found.push(`${p} sees the fences ${fences}, and etcd has ${truth}`);
  return found.map((what) => ({ text: `${group}, when all was calm ${at(facts, t)}: ${what}` }));
}

function headAt(facts: Facts, lock: string, t: bigint): Place | undefined {
  return (facts.places.get(lock) ?? []).find(({ seen, freedSeen = FOREVER }) => seen <= t && t < freedSeen);
}

function membersAt({ memberKeys }: Facts, group: string, t: bigint): readonly ShardMember[] {
  const living = new Map<string, ShardMember>();
  for (const event of memberKeys) {
    if (event.tSeen > t) break;
    if (!event.key.startsWith(`${group}/members/`)) continue;
    if (event.type === "DELETE") living.delete(event.key);
    else living.set(event.key, memberIn(event));
  }
  return [...living.values()];
}

function memberIn({ value, lease }: ServerEvent): ShardMember {
  const { capacity, state, shards } = JSON.parse(value) as {
    readonly capacity: number;
    readonly state: string;
    readonly shards: { readonly count: number; readonly declines: readonly number[] };
  };
  return { lease, capacity, active: state === "active", draining: state === "draining", ...shards };
}

/** I28: a member's view of the owners at a revision is what etcd had then. */
export const viewsAreTrue: Rule = (facts) =>
  facts.steps.viewed.flatMap(({ p, t, lock: group, rev, fences }): Finding[] => {
    const shown = fences === "" ? [] : fences.split(",");
    const wrong = shown.flatMap((fence, shard) => {
      const places = facts.places.get(`${group}/shard/${shard}`) ?? [];
      const truth = ownerAt(places, rev);
      return fence === truth || mayMiss(facts, p, t, places)
        ? []
        : [`shard ${shard} had the fence ${truth || "of nobody"}, not ${fence || "of nobody"}`];
    });
    const [first] = wrong;
    if (first === undefined) return [];
    return [
      {
        text: `${p} saw owners of ${group} at revision ${rev} ${at(facts, t)} that etcd did not have: ${first}`,
      },
    ];
  });

/**
 * etcd was compacted at the very revision at which a key of the queue was deleted: a watch that begins again there is never told of that
 * deletion. A read follows soon.
 */
const mayMiss = ({ troubles }: Facts, p: string, t: bigint, places: readonly Place[]): boolean =>
  troubles.faults.some(
    ({ fault, target, from, to }) =>
      fault === "compact" &&
      places.some(({ deleted, freed }) => [deleted, freed].map(String).includes(target)) &&
      from <= t &&
      t <= troubles.limit(p, to),
  );

/** A place whose delay key is still there keeps the others waiting, and has no owner. */
function ownerAt(places: readonly Place[], rev: bigint): string {
  const head = places.find(({ create, freed = FOREVER }) => create <= rev && rev < freed);
  return head === undefined || (head.deleted ?? FOREVER) <= rev ? "" : String(head.create);
}
