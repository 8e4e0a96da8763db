import type { Compare, EventKind, Operation, Range } from "../../../../src/etcd/port.js";

/** A random program: a list of calls of the port `Member`, besides compaction and the passing of time. */

export type Key = string | Buffer;

/** A revision that is known only when the step runs. Programs start at different revisions of a store. */
export type Revision =
  | { readonly at: "exactly"; readonly revision: bigint }
  /** The revision at which the program starts, that of the last answer, or the last one that was compacted. */
  | { readonly at: "start" | "now" | "compacted"; readonly plus: number }
  /** A revision of the key at present; 0 if there is none. */
  | { readonly at: "created" | "modified"; readonly key: Key; readonly plus: number };

export type PlannedRange = Omit<Range, "maxCreateRevision" | "revision"> & {
  readonly maxCreateRevision?: Revision;
  readonly revision?: Revision;
};

export type PlannedCompare =
  | { readonly kind: "created at"; readonly key: Key; readonly revision: Revision }
  | { readonly kind: "modified at"; readonly key: string; readonly revision: Revision }
  | {
      readonly kind: "nothing since";
      readonly key: string;
      readonly end: string;
      readonly revision: Revision;
    }
  | Extract<Compare, { readonly kind: "nothing in" | "value is" }>;

export type PlannedOperation =
  Extract<Operation, { readonly kind: "put" | "delete" }> | ({ readonly kind: "range" } & PlannedRange);

export interface PlannedTxn {
  readonly compare: readonly PlannedCompare[];
  readonly success: readonly PlannedOperation[];
  readonly failure: readonly PlannedOperation[];
}

export interface PlannedWatch {
  readonly watchId: number;
  readonly key: Key;
  readonly end?: Key;
  readonly startRevision: Revision;
  readonly events: EventKind | "ALL";
}

export type Step =
  | { readonly kind: "txns"; readonly txns: readonly PlannedTxn[] }
  | { readonly kind: "range"; readonly range: PlannedRange }
  | { readonly kind: "grant"; readonly leaseId: bigint; readonly ttlSeconds: number }
  | { readonly kind: "revoke"; readonly leaseId: bigint }
  | { readonly kind: "timeToLive"; readonly leaseId: bigint; readonly withoutKeys: boolean }
  | { readonly kind: "renew"; readonly leaseId: bigint }
  | { readonly kind: "watch"; readonly watch: PlannedWatch }
  | { readonly kind: "cancel"; readonly watchId: number }
  | { readonly kind: "probe" }
  | { readonly kind: "compact"; readonly revision: Revision }
  /** At least so long: until no lease is about to expire. */
  | { readonly kind: "elapse"; readonly ms: number };

export type Program = readonly Step[];

/** The answer of one step, or the events of one watch. Two subjects agree if their outcomes do. */
export interface Outcome {
  readonly step: number;
  readonly text: string;
  /** The rest of a lease's time: the subjects' clocks differ. */
  readonly seconds?: number | undefined;
}
