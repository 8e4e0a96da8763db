import { positionAt, queueAt } from "./etcd.js";
import {
  keeps,
  placeOf,
  sessionOf,
  tell,
  type Caller,
  type Position,
  type Read,
  type Session,
  type World,
} from "./world.js";

/** What a member has applied: a lagging member shows an older state, both in reads and in watches. */
export const seenBy = (world: World, session: Session): number =>
  session.member === "lagging" ? world.lagging : world.revision;

/** etcd answers a read; the answer is then in transit. */
export function answerRead(world: World, caller: Caller, read: Read): Read {
  const revision = read.linearizable ? world.revision : seenBy(world, sessionOf(world, caller));
  tell(world, `etcd answers ${caller.label}'s read as of revision ${revision}`);
  const position = shownTo(caller, positionAt(world, caller.setup.name, placeOf(caller), revision));
  const asks = "demand" in caller.state && caller.state.demand !== undefined;
  const isFollowed = asks && behindAt(world, caller, revision);
  return { ...read, answer: asks ? { ...position, isFollowed } : position };
}

/** Go's client reads the last one before its own only. */
const shownTo = ({ setup }: Caller, { predecessor, ...rest }: Position): Position => ({
  ...rest,
  predecessor: setup.foreign && predecessor ? { ...predecessor, ...LAST_ONLY } : predecessor,
});

const LAST_ONLY = { holder: false, isFar: false, before: undefined };

const behindAt = (world: World, { setup, place }: Caller, revision: number): boolean =>
  queueAt(world, setup.name, revision).some((key) => key.created > (place?.revision ?? 0));

/** An answer that is too old does not count: a quorum is asked instead. */
export function readAgain(world: World, read: Read, answer: Position): Read | undefined {
  if (answer.revision >= read.atLeast || !keeps(world, "old-answers-do-not-count")) return undefined;
  tell(world, "too old to count: it asks a quorum");
  return { ...read, linearizable: true, answer: undefined };
}
