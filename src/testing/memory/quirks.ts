import type { SimVersion } from "./protocol.js";

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

/** Where the releases differ in authentication and quota, as far as the port `Member` can see it. */
export interface AuthQuirks {
  /**
   * A renewal needs a valid token, with the right to write all keys of the lease (3.6 and 3.7: checkLeaseRenew in
   * etcdserver/v3_server.go).
   */
  readonly keepaliveChecksToken: boolean;
  /**
   * Grants, revocations and requests for the rest of a lease's time need a valid token, whatever the lease has (requireAuthInfo
   * in etcdserver/v3_server.go: 3.6.16 and 3.7.3; not 3.4.23 and 3.5.16, measured). So do lists of members, leases and alarms, and
   * the status of a member.
   */
  readonly leasesNeedUser: boolean;
  /** Transactions in a transaction are not checked at all (CVE-2026-33343: 3.4.23 and 3.5.16, measured). */
  readonly nestedTxnsUnchecked: boolean;
  /** Nor are the other keys of the lease to which a put in a transaction attaches its key (3.4.23 and 3.5.16, measured). */
  readonly leasesOfPutsUnchecked: boolean;
  /** A watch of everything from a key on needs the right to that key only (GHSA-xg4h-6gfc-h4m8: 3.4.23 and 3.5.16, measured). */
  readonly openWatchesCheckedAsKey: boolean;
  /** Every user can list the keys of a lease (3.4.23, measured). Later versions check the right to read each of them. */
  readonly everybodyReadsLeases: boolean;
  /** A user with the role root can list the keys of a lease without the right to read them (3.6 and 3.7). */
  readonly rootReadsLeases: boolean;
  /**
   * A user with the role root revokes leases whatever keys they have, so that a stale JSON web token of root does too (not
   * 3.4.23, measured).
   */
  readonly rootRevokesLeases: boolean;
  /** A compaction needs the role root (3.6.16 and 3.7.3: api/v3rpc/key.go). Before, it only must not have an invalid token. */
  readonly compactionNeedsRoot: boolean;
  /**
   * No permission is checked for writes while the alarm is on: it replaces the applier that checks them (3.4 and 3.5: Alarm in
   * etcdserver/apply.go; measured).
   */
  readonly alarmSkipsPermissions: boolean;
  /** Puts in nested transactions cost nothing, so that no quota stops them (3.4.23 and 3.5.16, measured). */
  readonly nestedPutsAreFree: boolean;
  /** An invalid token is rejected while authentication is disabled, too (3.4.23, measured). */
  readonly tokensAlwaysChecked: boolean;
}

const OLD: AuthQuirks = {
  keepaliveChecksToken: false,
  leasesNeedUser: false,
  nestedTxnsUnchecked: true,
  leasesOfPutsUnchecked: true,
  openWatchesCheckedAsKey: true,
  everybodyReadsLeases: false,
  rootReadsLeases: false,
  rootRevokesLeases: true,
  compactionNeedsRoot: false,
  alarmSkipsPermissions: true,
  nestedPutsAreFree: true,
  tokensAlwaysChecked: false,
};

const NEW: AuthQuirks = {
  keepaliveChecksToken: true,
  leasesNeedUser: true,
  nestedTxnsUnchecked: false,
  leasesOfPutsUnchecked: false,
  openWatchesCheckedAsKey: false,
  everybodyReadsLeases: false,
  rootReadsLeases: true,
  rootRevokesLeases: true,
  compactionNeedsRoot: true,
  alarmSkipsPermissions: false,
  nestedPutsAreFree: false,
  tokensAlwaysChecked: false,
};

const AUTH_QUIRKS: Readonly<Record<SimVersion, AuthQuirks>> = {
  "3.4": { ...OLD, everybodyReadsLeases: true, rootRevokesLeases: false, tokensAlwaysChecked: true },
  "3.5": OLD,
  "3.6": NEW,
  "3.7": NEW,
};

export const authQuirksOf = (version: SimVersion): AuthQuirks => AUTH_QUIRKS[version];
