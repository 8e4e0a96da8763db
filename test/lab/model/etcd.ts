import {
  breaks,
  excludesReaders,
  isReaders,
  keeps,
  tell,
  type Answer,
  type Key,
  type Known,
  type Place,
  type Position,
  type Txn,
  type World,
} from "./world.js";

const REFUSED = { done: false, position: undefined, own: undefined, first: undefined };

const lives = (key: Key, revision: number): boolean =>
  key.created <= revision && (key.deleted === 0 || key.deleted > revision);

/** A queue is a range: that of "jobs" contains the keys of "jobs/night", but not vice versa. */
export const covers = (name: string, other: string): boolean =>
  name === other || other.startsWith(`${name}/`);

/** The places of a queue at `revision`, oldest first. */
export const queueAt = (world: World, name: string, revision = world.revision): Key[] =>
  world.keys.filter((key) => lives(key, revision) && covers(name, key.name));

const livingKey = (world: World, key: string): Key | undefined =>
  world.keys.find((other) => other.key === key && other.deleted === 0);

/** Exactly this place: a key of the same name may exist before and after it. */
export const keyOfPlace = (world: World, { key, revision }: Place): Key | undefined =>
  world.keys.find((other) => other.key === key && other.created === revision);

/** As its value says, which begins with its caller. */
export const mayBeKept = (world: World, { value, delays }: Key): boolean =>
  delays === undefined && world.callers[value >> 4]?.setup.sticky === true;

/** The result of a range "the last places up to and including mine". */
export function positionAt(world: World, name: string, place: Place, revision: number): Position {
  if (isReaders(place.key)) return readersPositionAt(world, name, place, revision);
  const places = queueAt(world, name, revision).filter((key) => key.created <= place.revision);
  const isOwn = ({ key, delays, created }: Key): boolean =>
    key === place.key ||
    (delays === place.key && created === place.revision && keeps(world, "own-delay-key-is-nobody"));
  const before = places.filter((key) => !isOwn(key));
  const [last, next] = [before.at(-1), before.at(-2)];
  return {
    revision,
    mine: places.some((key) => key.key === place.key && key.created === place.revision),
    predecessor: last && {
      ...{ key: last.key, revision: last.created, holder: before.length === 1 },
      isFar: before.length > 3,
      ...(before.length === 1 && mayBeKept(world, last) && { mayBeKept: true }),
      before: next && { key: next.key, revision: next.created, holder: before.length === 2 },
    },
  };
}

/** The result of the range "the last place up to mine that is no reader's": a writer that has become a reader lets its readers in. */
function readersPositionAt(world: World, name: string, place: Place, revision: number): Position {
  const places = queueAt(world, name, revision).filter((key) => key.created <= place.revision);
  const others = places.filter(({ key }) => !isReaders(key));
  const nearest = keeps(world, "waiting-writer-is-a-barrier") ? others.at(-1) : others[0];
  const last = nearest?.downgraded !== undefined && nearest.downgraded <= revision ? undefined : nearest;
  return {
    revision,
    mine: places.some(({ key, created }) => key === place.key && created === place.revision),
    predecessor: last && {
      ...{ key: last.key, revision: last.created, holder: others.length === 1 },
      ...{ isFar: false, mayDowngrade: true, before: undefined },
    },
  };
}

const puts = ({ is }: Txn): boolean => is !== "leave" && is !== "transfer";

/** Transactions that arrive in one request: one, or a batch. All conditions are evaluated on the state before it. */
export function execute(world: World, txns: readonly Txn[]): Answer[] {
  const allowed = txns.map((txn) => condition(world, txn));
  // etcd examines the leases of the puts that it is to execute, and of no others (checkRequests in apply.go).
  if (txns.some((txn, i) => puts(txn) && allowed[i] && !world.leases[txn.lease]))
    return txns.map(() => refuse(world));
  const revision = world.revision + 1;
  const answers = txns.map((txn, i) => (allowed[i] ? apply(world, txn, revision) : otherwise(world, txn)));
  if (allowed.includes(true)) world.revision = revision;
  return answers.map((answer) => ({ ...answer, revision: world.revision }));
}

function refuse(world: World): Answer {
  tell(world, "etcd refuses: there is no such lease");
  return { ...REFUSED, leaseGone: true, revision: world.revision };
}

function condition(world: World, txn: Txn): boolean {
  if (txn.is === "try") {
    const queue = queueAt(world, txn.name);
    if (!isReaders(txn.key)) return queue.length === 0;
    return (
      !livingKey(world, txn.key) && !livingKey(world, delayKeyOf(txn.key)) && !queue.some(excludesReaders)
    );
  }
  const key = livingKey(world, txn.key);
  if (txn.is === "join") return key === undefined && livingKey(world, delayKeyOf(txn.key)) === undefined;
  if (txn.is === "transfer") return mayTransfer(world, txn);
  if (txn.is === "downgrade" && !keeps(world, "guarded-downgrade")) return true;
  if (txn.is === "take over" && key?.downgraded !== undefined && keeps(world, "only-a-writer-is-taken-over"))
    return false;
  const isAsPut = key === undefined || (key.modified ?? key.created) === txn.modified;
  if (txn.is === "downgrade" && !isAsPut && keeps(world, "downgrade-compares-the-last-put")) return false;
  if (!keeps(world, "guarded-release")) return key !== undefined;
  return txn.created === 0 ? key?.value === txn.value : key?.created === txn.created;
}

/** All keys that it deletes, and that of the next one, are those that were read. */
function mayTransfer(world: World, { key, created, target, moved = [] }: Txn): boolean {
  const isThere = (place: Known): boolean => livingKey(world, place.key)?.created === place.revision;
  const own = isThere({ key, revision: created }) || !keeps(world, "guarded-transfer");
  const next = (target && isThere(target)) || !keeps(world, "target-is-compared");
  return own && next && (moved.every(isThere) || !keeps(world, "moved-are-compared"));
}

/** From then on, nobody is before the target. */
function handOver(world: World, { name, key, target, moved = [], names }: Txn, revision: number): void {
  const keys = [key, ...moved.map((place) => place.key)];
  const both = keeps(world, "moved-delay-keys-leave-too");
  const isIt = (each: Key): boolean =>
    keys.includes(each.key) || (each.delays !== undefined && (both ? keys : [key]).includes(each.delays));
  const behind = world.keys.find(
    (each) => each.deleted === 0 && isIt(each) && each.created > (target?.revision ?? 0),
  );
  deleteKeys(world, isIt, "a transfer", revision);
  if (names && target)
    world.keys = world.keys.map((each) =>
      each.key === target.key && each.created === target.revision
        ? { ...each, named: true, ...(keeps(world, "the-named-one-leads") && { modified: revision }) }
        : each,
    );
  tell(world, `etcd deletes ${keys.join(" and ")} at revision ${revision}`);
  const first = firstAt(world, name, revision);
  if (behind)
    breaks(world, "true transfers", `it deletes ${behind.key}, which was not before ${target?.key}`);
  if (first?.key !== target?.key || first?.created !== target?.revision)
    breaks(world, "true transfers", `${target?.key} was to be next, but ${first?.key ?? "nobody"} is`);
}

function apply(world: World, txn: Txn, revision: number): Answer {
  const done = { ...REFUSED, done: true, leaseGone: false, revision };
  if (txn.is === "leave") {
    const both = keeps(world, "delay-key-leaves-too");
    const isIt = ({ key, delays }: Key): boolean => key === txn.key || (both && delays === txn.key);
    deleteKeys(world, isIt, "its owner", revision);
    tell(world, `etcd deletes ${txn.key} at revision ${revision}`);
    return { ...done, first: txn.asks ? firstAt(world, txn.name, revision) : undefined };
  }
  if (txn.is === "transfer") {
    handOver(world, txn, revision);
    return { ...done, first: txn.asks ? firstAt(world, txn.name, revision) : undefined };
  }
  const { name, key, value, lease } = txn;
  if (txn.is === "downgrade" && livingKey(world, key) && keeps(world, "downgraded-key-stays")) {
    world.keys = world.keys.map((each) =>
      each.deleted === 0 && (each.key === key || each.delays === key)
        ? { ...each, downgraded: revision, modified: revision }
        : each,
    );
    tell(world, `etcd puts ${key} again at revision ${revision}: its writer is a reader`);
    return done;
  }
  if (txn.is === "take over") {
    world.keys = world.keys.map(({ downgraded, ...each }) =>
      each.deleted === 0 && each.key === key
        ? { ...each, modified: revision }
        : { ...each, ...(downgraded !== undefined && { downgraded }) },
    );
    tell(world, `etcd puts ${key} again at revision ${revision}`);
    const place = { key, value, revision: txn.created, unanswered: 0, turn: 1 };
    return { ...done, position: positionAt(world, name, place, revision) };
  }
  if (txn.is === "downgrade") {
    deleteKeys(world, (each) => each.key === key || each.delays === key, "its owner", revision);
    const again: Key = { name, key, value, lease, created: revision, deleted: 0, deletedBy: "nobody" };
    world.keys = [...world.keys, { ...again, downgraded: revision }];
    tell(world, `etcd deletes ${key} and puts it at revision ${revision}`);
    return done;
  }
  const put: Key = { name, key, value, lease, created: revision, deleted: 0, deletedBy: "nobody" };
  world.keys = [...world.keys, ...withDelay(world, put)];
  tell(world, `etcd puts ${key} at revision ${revision}`);
  const place = { key, value, revision, unanswered: 0, turn: 1 };
  return { ...done, position: txn.asks ? positionAt(world, name, place, revision) : undefined };
}

export const delayKeyOf = (key: string): string => `${key}'`;

/** A new key, with its delay key if its session has a delay. */
function withDelay(world: World, put: Key): readonly Key[] {
  const session = world.sessions.find(({ lease }) => lease === put.lease);
  if (!session?.delayLease || !keeps(world, "delay-key-with-every-join")) return [put];
  const delay: Key = { ...put, key: delayKeyOf(put.key), lease: session.delayLease, delays: put.key };
  return world.scenario.sessions[session.id]?.delays === "entry first" ? [put, delay] : [delay, put];
}

/** The oldest place: of two keys of one create revision, its own one. */
function firstAt(world: World, name: string, revision: number): Key | undefined {
  const [first, second] = queueAt(world, name, revision);
  return first?.delays !== undefined && first.delays === second?.key && first.created === second.created
    ? second
    : first;
}

function otherwise(world: World, txn: Txn): Answer {
  const refused = { ...REFUSED, leaseGone: false, revision: world.revision };
  if (txn.is === "leave") {
    tell(world, `etcd finds nothing to delete: ${txn.key} is not there, or another place's`);
    return { ...refused, first: txn.asks ? firstAt(world, txn.name, world.revision) : undefined };
  }
  if (txn.is === "transfer") {
    tell(world, `etcd hands nothing over: one of the keys is not there`);
    const first = txn.asks ? firstAt(world, txn.name, world.revision) : undefined;
    return { ...refused, first, queue: queueAt(world, txn.name) };
  }
  const own = livingKey(world, txn.key);
  const first = txn.is === "try" && txn.asks ? firstAt(world, txn.name, world.revision) : undefined;
  if (txn.is === "downgrade") tell(world, `etcd finds no ${txn.key} to put again`);
  else tell(world, own ? `etcd finds ${txn.key} there already` : "etcd puts nothing: the queue is not empty");
  return { ...refused, own, first };
}

/** Deletes the living keys for which `which` is true, all in one revision. */
export function deleteKeys(
  world: World,
  which: (key: Key) => boolean,
  deletedBy: Key["deletedBy"],
  revision = world.revision + 1,
): void {
  world.keys = world.keys.map((key) =>
    key.deleted === 0 && which(key) ? { ...key, deleted: revision, deletedBy } : key,
  );
}
