import type { WatchEvent } from "../../../../src/etcd/port.js";
import { contains } from "../bytes.js";
import type { Quirks } from "../quirks.js";
import type { Change, Store } from "../store.js";
import type { Watcher } from "./watcher.js";

/** A late watch gets the events of at most so many revisions at a time (storage/mvcc/watcher_group.go). */
const MOST_REVISIONS = 1000;

/** Events for one watch, in order. */
export interface EventBatch {
  readonly events: readonly WatchEvent[];
  /** The revision of the first event that did not fit. */
  readonly moreFrom?: bigint;
}

/** The events that a late watch gets now (syncWatchers in storage/mvcc/watchable_store.go). */
export function batchFor(watcher: Watcher, store: Store, quirks: Quirks): EventBatch {
  const events: WatchEvent[] = [];
  let revisions = 0;
  for (const change of store.since(watcher.minRevision)) {
    const found = change.events.filter(
      (_, i) => contains(watcher.interval, change.names[i]!) && isThere(change, i, { store, quirks }),
    );
    if (found.length === 0) continue;
    if (++revisions > MOST_REVISIONS) return { events, moreFrom: change.revision };
    events.push(...found);
  }
  return { events };
}

/** Of its own revision, a compaction keeps the last change of each key only. */
function isThere({ revision, events, names }: Change, at: number, given: { store: Store; quirks: Quirks }) {
  if (revision !== given.store.compacted) return true;
  if (names.indexOf(names[at]!, at + 1) !== -1) return false;
  return events[at]!.kind === "PUT" || given.quirks.compactionKeepsDeletions;
}
