import type { SimVersion } from "./types.js";

/** Where the releases differ, as far as the port `Member` can see it. */
export interface Quirks {
  /** A keys-only range leaves out the leases: it is answered from the index (3.7: storage/mvcc/kvstore_txn.go, FastKeysOnly). */
  readonly keysOnlyWithoutLeases: boolean;
  /** The leases of all puts of a transaction are checked before the revisions of its ranges (3.4 and 3.5: checkRequests in apply.go). */
  readonly putsCheckedFirst: boolean;
  /**
   * A compaction keeps the deletions at its own revision, so that a watch from there gets them (storage/mvcc/key_index.go). Not
   * 3.4.23 (measured; 3.5.16 does).
   */
  readonly compactionKeepsDeletions: boolean;
  /**
   * Start revision 0 becomes "the present revision + 1" before the watch is registered: a write in between makes the watch a
   * late one (3.4 and 3.5: api/v3rpc/watch.go). The `created` answer has the revision that was read.
   */
  readonly startRevisionReadFirst: boolean;
  /** A progress request is answered on every stream (3.4), or only if all watches of the stream are synced and there is one. */
  readonly progressAlways: boolean;
  /** Nor is it answered if a watch starts at a revision that has not come (3.6 and 3.7: progressIfSync; not 3.5.16, measured). */
  readonly progressNeedsStart: boolean;
  /** A watch from a negative revision is not created, but cancelled as a compacted one (3.6 and 3.7: api/v3rpc/watch.go). */
  readonly negativeStartRejected: boolean;
  /**
   * An end that is sent but empty means everything from the key on, in reads that do not go through raft: ranges, and
   * transactions of ranges only. Up to 3.6, etcd's protobuf code distinguishes it from no end; raft loses the difference.
   */
  readonly emptyEndIsOpen: boolean;
  /** A member that is cut off asks first whether it would win an election, and so keeps its term (default from 3.5 on). */
  readonly preVote: boolean;
  /** A request for the leader's commit index is repeated each 500 ms (3.5 on: readIndexRetryTime in v3_server.go). */
  readonly readIndexRetried: boolean;
  /** A leader renews a lease only when it has applied what is committed (3.5 on: waitAppliedIndex in v3_server.go). */
  readonly renewalWaitsForApply: boolean;
  /** So it does only if it does not know the lease (3.7: FastLeaseKeepAlive). */
  readonly fastKeepalive: boolean;
  /**
   * A leader that is blocked by its disk renews and revokes leases without knowing that another one leads (before 3.4.31 and
   * 3.5.13: etcd#15247; the releases of the tests are 3.4.23 and 3.5.16).
   */
  readonly staleExLeader: boolean;
}

const QUIRKS: Readonly<Record<SimVersion, Quirks>> = {
  "3.4": {
    keysOnlyWithoutLeases: false,
    putsCheckedFirst: true,
    compactionKeepsDeletions: false,
    startRevisionReadFirst: true,
    progressAlways: true,
    progressNeedsStart: false,
    negativeStartRejected: false,
    emptyEndIsOpen: true,
    preVote: false,
    readIndexRetried: false,
    renewalWaitsForApply: false,
    fastKeepalive: false,
    staleExLeader: true,
  },
  "3.5": {
    keysOnlyWithoutLeases: false,
    putsCheckedFirst: true,
    compactionKeepsDeletions: true,
    startRevisionReadFirst: true,
    progressAlways: false,
    progressNeedsStart: false,
    negativeStartRejected: false,
    emptyEndIsOpen: true,
    preVote: true,
    readIndexRetried: true,
    renewalWaitsForApply: true,
    fastKeepalive: false,
    staleExLeader: false,
  },
  "3.6": {
    keysOnlyWithoutLeases: false,
    putsCheckedFirst: false,
    compactionKeepsDeletions: true,
    startRevisionReadFirst: false,
    progressAlways: false,
    progressNeedsStart: true,
    negativeStartRejected: true,
    emptyEndIsOpen: true,
    preVote: true,
    readIndexRetried: true,
    renewalWaitsForApply: true,
    fastKeepalive: false,
    staleExLeader: false,
  },
  "3.7": {
    keysOnlyWithoutLeases: true,
    putsCheckedFirst: false,
    compactionKeepsDeletions: true,
    startRevisionReadFirst: false,
    progressAlways: false,
    progressNeedsStart: true,
    negativeStartRejected: true,
    emptyEndIsOpen: false,
    preVote: true,
    readIndexRetried: true,
    renewalWaitsForApply: true,
    fastKeepalive: true,
    staleExLeader: false,
  },
};

export const quirksOf = (version: SimVersion): Quirks => QUIRKS[version];
