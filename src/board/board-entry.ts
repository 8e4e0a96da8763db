import type { Judged } from "../inspect/holders.js";
import { entryIn, type InspectedKey, type QueueKind, type ValueFacts } from "../inspect/entry.js";
import { contenderAt } from "../inspect/state.js";

/** A key in a queue. Its size is bounded, whatever other clients have written. */
export interface BoardEntry {
  /** The complete key, with U+FFFD in the place of bytes that are no text. */
  readonly key: string;
  readonly createRevision: bigint;
  /** 0n: no lease. */
  readonly leaseId: bigint;
  /** `undefined` for entries made by other clients (Go, etcdctl). */
  readonly owner: string | undefined;
  /** When it joined the queue, by the clock of its client. */
  readonly since: Date | undefined;
  /** Monotonic milliseconds at which the board saw that it had become a holder; undefined if it held before the board began. */
  readonly grantedAt: number | undefined;
}

/** What is kept of a key, wherever it counts. */
export interface BoardKey extends Pick<InspectedKey, "key" | "createRevision" | "modRevision"> {
  /** The name that it belongs to directly, if that starts with the prefix. */
  readonly name: string | undefined;
  readonly value: ValueFacts;
}

/** A key as one queue sees it: its own, or that of a name above its own. */
export interface PlacedEntry extends BoardEntry, Judged {
  grantedAt: number | undefined;
  readonly facts: Judged["facts"] & { readonly kind: QueueKind };
}

/** `prefix`: of the cluster. */
export function placedIn(name: string, key: BoardKey, prefix: string): PlacedEntry {
  const inspected = entryIn(name, key, key.value);
  const now = { prefix, state: "waiting", ttlRemainingMs: undefined } as const;
  const { key: text, revision, leaseId, owner, since } = contenderAt(name, inspected, now);
  const { place, facts } = inspected;
  return {
    ...{ key: text, createRevision: revision, leaseId, owner, since },
    ...{ grantedAt: undefined, place, facts: { permits: facts.permits, kind: facts.kind } },
  };
}
