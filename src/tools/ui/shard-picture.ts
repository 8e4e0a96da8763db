import type { Past, ShardPicture, ShardSpan } from "./protocol.js";
import { spanFor } from "./span.js";

/** As `shards` has: higher numbers are no shards. */
const MAX_COUNT = 4096;
/** A lane for each shard is still readable. */
const MAX_LANES = 64;
/** The latest holds of each shard: so a message has a few hundred bytes for each lane, and takes some milliseconds. */
const MAX_HOLDS = 12;
/** As many as a viewer can tell apart by color. */
const MAX_MEMBERS = 8;
/** In UTF-16 code units. */
const MAX_NAME = 200;
const SAMPLES = 61;

/** What the picture knows of a member, by the owner of its locks. */
interface Seen {
  shards: number;
  /** The end of its last hold. */
  last: number;
}

/** A hold, and the member that has it. */
interface Owned {
  readonly hold: Past;
  readonly member: number;
}

/**
 * Who has owned which shard of a group over time, from the histories of the queues of its shards. Undefined: the queue is not that of
 * the members of a group, or no shard of the group is known.
 * @param historyOf the holds of a queue, the oldest first @param now milliseconds since 1970
 */
export function shardPicture(
  queue: string,
  historyOf: (name: string) => readonly Past[],
  now: number,
): ShardPicture | undefined {
  const [, group] = /^(.*)\/members$/s.exec(queue) ?? [];
  if (group === undefined) return undefined;
  const all = Array.from({ length: MAX_COUNT }, (_, shard) =>
    historyOf(`${group}/shard/${shard}`).slice(-MAX_HOLDS),
  );
  const count = all.findLastIndex((holds) => holds.length > 0) + 1;
  if (count === 0) return undefined;
  const shards = all.slice(0, count);
  const spanMs = spanOf(shards, now);
  const from = now - spanMs;
  const seen = shards.map((holds) => holds.filter(({ to }) => (to ?? now) >= from));
  const members = membersOf(seen, now);
  const first = members.slice(0, MAX_MEMBERS);
  const rest = members.slice(MAX_MEMBERS);
  const index = new Map(members.map(([name], n) => [name, Math.min(n, MAX_MEMBERS)]));
  const owned = seen.map((holds) =>
    holds.map((hold): Owned => ({ hold, member: index.get(hold.holder) ?? MAX_MEMBERS })),
  );
  const isFew = count <= MAX_LANES;
  return {
    count,
    spanMs,
    moves: shards.flatMap(movesOf).filter((hold) => hold.from >= from).length,
    members: first.map(([name, { shards }]) => ({ name: name.slice(0, MAX_NAME), shards })),
    others: { members: rest.length, shards: rest.reduce((sum, [, { shards }]) => sum + shards, 0) },
    lanes: isFew ? owned.map((holds) => holds.map(laneOf)) : null,
    loads: isFew ? null : loadsOf(owned, { from, spanMs, rows: first.length + Math.min(rest.length, 1) }),
  };
}

const laneOf = ({ member, hold: { from, to } }: Owned): ShardSpan => [member, from, to];

/** The holds of other members than the one before. */
const movesOf = (holds: readonly Past[]): Past[] =>
  holds.filter(({ holder }, n) => n > 0 && holder !== holds[n - 1]?.holder);

/** Shows the latest moves, as many as there are shards; if nothing has moved, since when each has its owner. */
function spanOf(shards: readonly (readonly Past[])[], now: number): number {
  const moves = shards.flatMap(movesOf).map(({ from }) => from);
  const shown = moves.length > 0 ? moves.sort((a, b) => b - a).slice(0, shards.length) : firstOf(shards);
  return Math.max(60_000, spanFor(now - Math.min(now, ...shown)));
}

const firstOf = (shards: readonly (readonly Past[])[]): number[] =>
  shards.flatMap(([first]) => first?.from ?? []);

/** Those that own the most first. */
function membersOf(shards: readonly (readonly Past[])[], now: number): readonly (readonly [string, Seen])[] {
  const members = new Map<string, Seen>();
  for (const { holder, to } of shards.flat()) {
    const member = members.get(holder) ?? { shards: 0, last: 0 };
    members.set(holder, member);
    if (to === null) member.shards++;
    member.last = Math.max(member.last, to ?? now);
  }
  return [...members].sort(
    ([a, one], [b, other]) => other.shards - one.shards || other.last - one.last || (a < b ? -1 : 1),
  );
}

interface Frame {
  readonly from: number;
  readonly spanMs: number;
  /** How many members there are, and one if there are others. */
  readonly rows: number;
}

/** By differences: a hold is two numbers, however long it was. */
function loadsOf(shards: readonly (readonly Owned[])[], { from, spanMs, rows }: Frame): number[][] {
  const loads = Array.from({ length: rows }, () => Array.from({ length: SAMPLES + 1 }, () => 0));
  /** The first moment at this time or after it. */
  const momentOf = (time: number): number => Math.max(0, Math.ceil(((time - from) * (SAMPLES - 1)) / spanMs));
  for (const { member, hold } of shards.flat()) {
    const load = loads[member];
    const [begin, end] = [momentOf(hold.from), hold.to === null ? SAMPLES : momentOf(hold.to)];
    if (!load || begin >= SAMPLES) continue;
    load[begin] = (load[begin] ?? 0) + 1;
    load[Math.min(end, SAMPLES)] = (load[Math.min(end, SAMPLES)] ?? 0) - 1;
  }
  return loads.map((load) => {
    let sum = 0;
    return load.slice(0, SAMPLES).map((each) => (sum += each));
  });
}
