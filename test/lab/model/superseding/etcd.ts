import { breaks, keeps, tell } from "../world.js";
import {
  type Call,
  callerOf,
  type Key,
  keyAt,
  queueAt,
  supersedes,
  type Superseding,
  type Txn,
} from "./world.js";

export function execute(world: Superseding, txn: Txn): Call["answer"] {
  const done = condition(world, txn);
  if (done && txn.is === "join" && !world.leases[txn.lease]) {
    tell(world, "etcd refuses: there is no such lease");
    return { done: false, leaseGone: true, revision: world.revision };
  }
  if (done) apply(world, txn);
  else tell(world, `etcd refuses the ${txn.is} of ${txn.key}`);
  return { done, leaseGone: false, revision: world.revision };
}

function condition(world: Superseding, { is, key, value, created, since, plain, guard }: Txn): boolean {
  const own = keyAt(world, key);
  if (is === "leave") return created === 0 ? own?.value === value : own?.created === created;
  if (own) return false;
  if (plain) return true;
  const queue = queueAt(world);
  if (since === undefined) return queue.length === 0;
  if (keeps(world, "nothing-since-it-was-shown") && queue.some((other) => other.created > since))
    return false;
  return !guard || !keeps(world, "guard-is-compared") || keyAt(world, guard.key)?.created === guard.revision;
}

function apply(world: Superseding, { is, key, value, lease, overtaken, plain }: Txn): void {
  if (is === "leave") return deleteKeys(world, (each) => each.key === key, "its owner");
  const revision = world.revision + 1;
  // Its own one, of a session before.
  const whose = (each: Key): Key["deletedBy"] =>
    callerOf(world, each) === callerOf(world, { value }) ? "its owner" : "a newer call";
  const isOvertaken = (each: Key): boolean => each.deleted === 0 && overtaken.includes(each.key);
  world.keys = world.keys.map((each): Key =>
    isOvertaken(each) ? { ...each, deleted: revision, deletedBy: whose(each) } : each,
  );
  const put: Key = { key, value, lease, created: revision, deleted: 0, deletedBy: "nobody" };
  world.keys = [...world.keys, put];
  world.revision = revision;
  const others = overtaken.length > 0 ? `, and deletes ${overtaken.join(" and ")},` : "";
  tell(world, `etcd puts ${key}${others} at revision ${revision}`);
  if (!plain) judge(world, put);
}

/** The newest is alone among those that wait. */
function judge(world: Superseding, put: Key): void {
  const [, ...waiting] = queueAt(world).filter((key) => key.created < put.created);
  const older = waiting.find((key) => supersedes(world, key));
  if (older) breaks(world, "newest wins", `${older.key} still waits before ${put.key}, which is newer`);
}

/** All in one revision. */
export function deleteKeys(
  world: Superseding,
  which: (key: Key) => boolean,
  deletedBy: Key["deletedBy"],
): void {
  const isDeleted = (key: Key): boolean => key.deleted === 0 && which(key);
  const found = world.keys.filter(isDeleted);
  if (found.length === 0) return;
  const revision = world.revision + 1;
  world.keys = world.keys.map((key) => (isDeleted(key) ? { ...key, deleted: revision, deletedBy } : key));
  world.revision = revision;
  tell(world, `etcd deletes ${found.map(({ key }) => key).join(" and ")} at revision ${revision}`);
}
