import type { KeyValue, Range } from "../etcd/port.js";
import { sessionRange, prefixEnd, prefixOf } from "../keys.js";
import {
  EntryBelow,
  GRANTED,
  queueRange,
  type Behind,
  type EntryView,
  type LockMode,
  type NewEntry,
  type RangeResult,
} from "./lock-mode.js";

/** All entries of the queue but the readers': the keys before the readers' folder, and the keys behind it. */
function otherRanges(name: string): readonly { readonly key: string; readonly end: string }[] {
  const { key, end } = queueRange(name);
  const readers = prefixOf(`${name}/read`);
  return [
    { key, end: readers },
    { key: prefixEnd(readers), end },
  ];
}

const nearest = (entry: NewEntry): readonly Range[] =>
  otherRanges(entry.name).map((range) => ({ ...range, order: "newest first", limit: 1 }));

/** The later of the two entries, if there is any. `others` is the number of all of them. */
function behind(results: readonly RangeResult[], others: number): Behind | undefined {
  const last = results.map(({ kvs }) => kvs[0]).filter((kv): kv is KeyValue => kv !== undefined);
  const [first, ...rest] = last;
  if (!first) return undefined;
  const below = rest.reduce((a, b) => (a.createRevision > b.createRevision ? a : b), first);
  return { state: "waiting", predecessor: new EntryBelow(below, others === 1), ahead: others };
}

const isReader = ({ mode }: EntryView): boolean => mode === reader;

/**
 * Shares the name with other readers, and waits for the nearest earlier entry that is not a reader. That includes a writer
 * that is still waiting, so that a flow of readers cannot starve it.
 */
export const reader: LockMode = {
  folder: "/read",
  shared: true,
  announcesGrant: false,
  trying: {
    // None of the ranges contains its own key: an attempt whose answer was lost may have put it.
    when: ({ name, key }) => [
      { kind: "created at", key, revision: 0n },
      ...otherRanges(name).map((range) => ({ kind: "nothing in", ...range }) as const),
    ],
  },
  // Two readers whose joins found the same entry before them have no other entry between them: they are granted together.
  follows: (entry, earlier) =>
    earlier.findLast((other) => !isReader(other)) ??
    earlier.find(
      (other) => !other.held && other.joinedBehind === entry.joinedBehind && entry.joinedBehind !== undefined,
    ),
  // It followed another reader: a reader waits for the end of any other entry that it follows.
  grantedTogether: true,
  surelyFollows: () => false,
  readsToJoin: nearest,
  joined: (_, results) =>
    behind(
      results,
      results.reduce((sum, { count }) => sum + count, 0),
    ) ?? GRANTED,
  reads: (entry) => [
    { key: entry.key },
    ...nearest(entry).map((range) => ({ ...range, maxCreateRevision: entry.revision - 1n })),
  ],
  positionOf: (entry, [own, ...others]) => {
    const mine = own?.kvs[0];
    if (!mine || !entry.is(mine)) return "gone";
    const seen = others.reduce((sum, { kvs, more }) => sum + kvs.length + (more ? 1 : 0), 0);
    return behind(others, seen) ?? "first";
  },
  // Reads our own readers, too: an entry that holds by this answer must be in it.
  readsForFirst: ({ name, directory, lease }) => [
    sessionRange(directory, lease.leaseId),
    ...otherRanges(name).map((range) => ({ ...range, order: "oldest first", limit: 1 }) as const),
  ],
  isFirst: (entry, [ours, ...others]) =>
    (ours?.kvs.some((kv) => entry.is(kv)) ?? false) &&
    others.every(({ kvs: [oldest] }) => oldest === undefined || oldest.createRevision > entry.revision),
};
