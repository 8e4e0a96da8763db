import type { SimVersion } from "../types.js";

/** Where the releases differ in authentication and quota, as far as the port `Member` can see it. */
export interface AuthQuirks {
  /**
   * A renewal needs a valid token, with the right to write all keys of the lease (3.6 and 3.7: checkLeaseRenew in
   * etcdserver/v3_server.go).
   */
  readonly keepaliveChecksToken: boolean;
  /**
   * Grants, revocations and requests for the rest of a lease's time need a valid token, whatever the lease has (requireAuthInfo
   * in etcdserver/v3_server.go: 3.6.16 and 3.7.3; not 3.4.23 and 3.5.16, measured).
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

const QUIRKS: Readonly<Record<SimVersion, AuthQuirks>> = {
  "3.4": { ...OLD, everybodyReadsLeases: true, rootRevokesLeases: false, tokensAlwaysChecked: true },
  "3.5": OLD,
  "3.6": NEW,
  "3.7": NEW,
};

export const authQuirksOf = (version: SimVersion): AuthQuirks => QUIRKS[version];
