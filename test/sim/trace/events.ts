import type { Change } from "../../../src/testing/memory/store.js";
import type {
  Range,
  RangeAnswer,
  Txn,
  TxnAnswer,
  WatchAnswer,
  WatchRequest,
} from "../../../src/etcd/port.js";
import type { Step } from "../../lab/runner/history.js";

/** One process: its cluster is one call of `createCluster`. */
interface OfProcess {
  readonly process: number;
  /** By its monotonic clock. */
  readonly at?: number;
}
interface OfCall extends OfProcess {
  /** Unique in a run. */
  readonly call: number;
}
interface OfStream extends OfProcess {
  readonly stream: number;
}

/** Why a call has no answer. */
export interface Failure {
  /** It may have been executed, or may yet be. */
  readonly inDoubt: boolean;
  readonly leaseGone: boolean;
}

/**
 * What a run shows of its protocol, in the order in which it happened: what each client hands to its connection and gets from
 * it, what etcd changes, and the lab's history.
 */
export type TraceEvent =
  | ({ readonly is: "txns"; readonly txns: readonly Txn[] } & OfCall)
  | ({ readonly is: "txns answered"; readonly answers: readonly TxnAnswer[] } & OfCall)
  | ({ readonly is: "range"; readonly range: Range } & OfCall)
  | ({ readonly is: "range answered"; readonly answer: RangeAnswer } & OfCall)
  | ({ readonly is: "failed"; readonly why: Failure } & OfCall)
  | ({ readonly is: "revoke"; readonly leaseId: bigint } & OfProcess)
  | ({ readonly is: "watch"; readonly request: WatchRequest } & OfStream)
  | ({ readonly is: "unwatch"; readonly watchId: number } & OfStream)
  | ({ readonly is: "watch answered"; readonly answer: WatchAnswer } & OfStream)
  | ({ readonly is: "stream over" } & OfStream)
  | { readonly is: "change"; readonly change: Change }
  | { readonly is: "step"; readonly step: Step };

export type EventOf<Is extends TraceEvent["is"]> = Extract<TraceEvent, { is: Is }>;

/** What a client sends on a stream of watches, and gets from it. */
export type StreamEvent = Extract<TraceEvent, OfStream>;

/** The revisions at which an administrator has deleted keys. */
export const revisionsByHand = (events: readonly TraceEvent[]): ReadonlySet<bigint> =>
  new Set(
    events.flatMap((event) =>
      event.is === "step" && event.step.k === "nemesis" ? (event.step.took ?? []) : [],
    ),
  );
