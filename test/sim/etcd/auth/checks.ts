import type { Operation, Txn } from "../../../../src/etcd/port.js";
import { intervalOf, type Interval } from "../bytes.js";
import type { Leases } from "../leases.js";
import { isReadonly } from "../txn.js";
import type { Refusal, UnaryRequest } from "../types.js";
import type { AuthStore } from "./auth-store.js";
import type { AuthQuirks } from "./quirks.js";
import { USER_EMPTY } from "./refusals.js";
import type { AuthInfo } from "./tokens.js";

/** Which permissions a request needs (etcdserver/apply_auth.go, etcdserver/v3_server.go). */

interface Context {
  readonly auth: AuthStore;
  readonly leases: Leases;
  readonly quirks: AuthQuirks;
}

/** Reads, which do not go through raft. */
export const isReadonlyRequest = (request: UnaryRequest): boolean =>
  request.kind === "txns" ? isReadonly(request.txns) : request.kind === "range";

export function checkRequest(context: Context, request: UnaryRequest, info: AuthInfo): Refusal | undefined {
  switch (request.kind) {
    case "range":
      return context.auth.check(info, "read", intervalOf(request.range.key, request.range.end));
    case "txns":
      return checkTxns(context, request.txns, info);
    case "revoke":
      return revokeRights(context, request.leaseId, info);
    case "timeToLive":
      return request.withoutKeys ? undefined : readRights(context, request.leaseId, info);
    case "grant":
    case "compact":
    case "authenticate":
      return undefined;
  }
}

function checkTxns(context: Context, txns: readonly Txn[], info: AuthInfo): Refusal | undefined {
  if (txns.length > 1 && context.quirks.nestedTxnsUnchecked) return undefined;
  for (const txn of txns) {
    const refusal = checkTxn(context, txn, info);
    if (refusal) return refusal;
  }
  return undefined;
}

/** Both branches, whichever is taken. */
function checkTxn(context: Context, { compare, success, failure }: Txn, info: AuthInfo): Refusal | undefined {
  for (const each of compare) {
    const end = each.kind === "nothing in" ? each.end : undefined;
    const refusal = context.auth.check(info, "read", intervalOf(each.key, end));
    if (refusal) return refusal;
  }
  for (const operation of [...success, ...failure]) {
    const refusal = checkOperation(context, operation, info);
    if (refusal) return refusal;
  }
  return undefined;
}

function checkOperation(context: Context, operation: Operation, info: AuthInfo): Refusal | undefined {
  const { auth, quirks } = context;
  if (operation.kind === "range") return auth.check(info, "read", intervalOf(operation.key, operation.end));
  const refusal = auth.check(info, "write", intervalOf(operation.key, undefined));
  if (refusal || operation.kind === "delete" || quirks.leasesOfPutsUnchecked) return refusal;
  return writeRights(context, operation.leaseId, info);
}

/** The right to write each key of a lease. */
export function writeRights(context: Context, leaseId: bigint, info: AuthInfo): Refusal | undefined {
  if (context.auth.users.isRoot(info.username)) return undefined;
  return everyKey(context, leaseId, (key) => context.auth.check(info, "write", key));
}

function revokeRights(context: Context, leaseId: bigint, info: AuthInfo): Refusal | undefined {
  if (context.quirks.rootRevokesLeases) return writeRights(context, leaseId, info);
  return everyKey(context, leaseId, (key) => context.auth.check(info, "write", key));
}

/** The right to read each key of a lease. */
function readRights(context: Context, leaseId: bigint, info: AuthInfo): Refusal | undefined {
  const { auth, quirks } = context;
  if (!auth.enabled || quirks.everybodyReadsLeases) return undefined;
  if (info.revision === 0) return USER_EMPTY;
  if (quirks.rootReadsLeases && auth.users.isRoot(info.username)) return undefined;
  return everyKey(context, leaseId, (key) => auth.check(info, "read", key));
}

function everyKey(
  { leases }: Context,
  leaseId: bigint,
  check: (key: Interval) => Refusal | undefined,
): Refusal | undefined {
  for (const key of leases.keysOf(leaseId)) {
    const refusal = check({ key, end: undefined });
    if (refusal) return refusal;
  }
  return undefined;
}
