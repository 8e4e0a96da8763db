import { breaks, keeps, tell } from "../world.js";
import { type Answer, isBefore, type Key, keyAt, type Priorities, queueAt, type Txn } from "./world.js";

const delayKeyOf = (key: string): string => `${key}'`;

export function execute(world: Priorities, txn: Txn): Answer {
  const done = condition(world, txn);
  if (done && txn.is !== "leave" && !world.leases[txn.lease]) {
    tell(world, "etcd refuses: there is no such lease");
    return { done: false, leaseGone: true, revision: world.revision };
  }
  if (done) apply(world, txn);
  else tell(world, `etcd refuses the ${txn.is} of ${txn.key}`);
  return { done, leaseGone: false, revision: world.revision };
}

function condition(world: Priorities, txn: Txn): boolean {
  const own = keyAt(world, txn.key);
  if (txn.is === "leave") return txn.created === 0 ? own?.value === txn.value : own?.created === txn.created;
  if (own || keyAt(world, delayKeyOf(txn.key))) return false;
  return txn.is === "place" || mayClaim(world, txn);
}

/** Nobody holds, and nobody better waits. */
function mayClaim(world: Priorities, { place, gone, since }: Txn): boolean {
  const queue = queueAt(world);
  if (!place && keeps(world, "first-claim-of-an-empty-queue")) return queue.length === 0;
  if (!place) return !queue.some(({ granted }) => granted);
  if (keyAt(world, place.key)?.created !== place.created) return false;
  if (keeps(world, "claim-names-what-was-in-the-way") && gone.some((key) => keyAt(world, key))) return false;
  return !keeps(world, "claim-excludes-newcomers") || !queue.some(({ created }) => created > since);
}

function apply(world: Priorities, txn: Txn): void {
  const revision = world.revision + 1;
  const { is, key, place } = txn;
  if (is === "leave") {
    deleteKeys(world, (each) => each.key === key || each.delays === key, "its owner");
    tell(world, `etcd deletes ${key} at revision ${revision}`);
    return;
  }
  if (is === "claim") judge(world, txn);
  else judgeNewcomer(world, txn);
  const { value, lease, rank } = txn;
  const put: Key = {
    ...{ key, value, lease, rank, granted: is === "claim", created: revision, deleted: 0 },
    ...{ deletedBy: "nobody", delays: undefined },
  };
  const delayLease = world.sessions[lease]?.delayLease ?? 0;
  const delay: Key = { ...put, key: delayKeyOf(key), lease: delayLease, delays: key };
  if (place) deleteKeys(world, (each) => each.key === place.key, "its owner");
  world.revision = revision;
  world.keys = [...world.keys, ...(is === "place" || !delayLease ? [put] : twins(world, put, delay))];
  tell(world, `etcd puts ${key}, ${is === "claim" ? "a hold" : "a place"}, at revision ${revision}`);
}

/** They have one create revision: etcd gives them in any order. */
const twins = ({ scenario }: Priorities, put: Key, delay: Key): readonly Key[] =>
  scenario.sessions[put.lease]?.delays === "entry first" ? [put, delay] : [delay, put];

/** At the revision of a grant nobody holds, and nobody better waits. */
function judge(world: Priorities, { key, rank, place }: Txn): void {
  const created = place?.created ?? Infinity;
  for (const other of queueAt(world)) {
    if (other.granted && !other.delays)
      breaks(world, "single holder", `${key} is granted beside ${other.key}`);
    if (!other.granted && other.key !== place?.key && isBefore(other, { rank, created }))
      breaks(world, "no overtaking", `${key} is granted before ${other.key}, which has a better place`);
  }
}

/** It makes the claim of that place fail. */
function judgeNewcomer(world: Priorities, { key, rank, passes }: Txn): void {
  if (!passes || rank < passes.rank || keyAt(world, passes.key)?.created !== passes.created) return;
  const claims = world.callers.some(
    ({ state, place }) => state.at === "claiming" && !state.call.answer && place?.key === passes.key,
  );
  if (claims)
    breaks(
      world,
      "no endless claims",
      `${key} makes the claim of ${passes.key} fail, which was known to be next`,
    );
}

/** All in one revision. */
export function deleteKeys(
  world: Priorities,
  which: (key: Key) => boolean,
  deletedBy: Key["deletedBy"],
): void {
  const isDeleted = (key: Key): boolean => key.deleted === 0 && which(key);
  if (!world.keys.some(isDeleted)) return;
  const revision = world.revision + 1;
  world.keys = world.keys.map((key) => (isDeleted(key) ? { ...key, deleted: revision, deletedBy } : key));
  world.revision = revision;
}
