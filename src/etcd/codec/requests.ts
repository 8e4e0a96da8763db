import type { Compare, Operation, Range, TimeToLiveOptions, Txn, WatchRequest } from "../port.js";
import {
  AUTHENTICATE_REQUEST,
  COMPARE,
  COMPARE_TARGET,
  DELETE_RANGE_REQUEST,
  FILTER,
  LEASE_GRANT_REQUEST,
  LEASE_KEEP_ALIVE_REQUEST,
  LEASE_REVOKE_REQUEST,
  LEASE_TIME_TO_LIVE_REQUEST,
  PUT_REQUEST,
  RANGE_REQUEST,
  REQUEST_OP,
  SORT_ORDER,
  SORT_TARGET_CREATE,
  TXN_REQUEST,
  WATCH_CANCEL_REQUEST,
  WATCH_CREATE_REQUEST,
  WATCH_REQUEST,
} from "./fields.js";
import { Writer } from "./writer.js";

/**
 * Encodes the port's requests, each with its gRPC prefix. What the port does not set is omitted: its default in proto3 is
 * what is meant. No function here calls another exported one, so one writer is enough.
 */
const writer = new Writer();

/** A single transaction is sent as it is, several inside one that compares nothing. */
export function encodeTxns(txns: readonly Txn[]): Buffer {
  writer.start();
  const [only] = txns;
  if (only && txns.length === 1) writeTxn(only);
  else for (const txn of txns) writeNestedTxn(txn);
  return writer.finish();
}

export function encodeRange(range: Range): Buffer {
  writer.start();
  writeRange(range);
  return writer.finish();
}

export function encodeGrant(leaseId: bigint, ttlSeconds: number): Buffer {
  writer.start();
  writer.integer(LEASE_GRANT_REQUEST.TTL, ttlSeconds);
  writer.integer(LEASE_GRANT_REQUEST.ID, leaseId);
  return writer.finish();
}

export function encodeRevoke(leaseId: bigint): Buffer {
  writer.start();
  writer.integer(LEASE_REVOKE_REQUEST.ID, leaseId);
  return writer.finish();
}

/** Requests the keys of the lease too, unless `withoutKeys`. */
export function encodeTimeToLive(
  leaseId: bigint,
  { withoutKeys }: Pick<TimeToLiveOptions, "withoutKeys"> = {},
): Buffer {
  writer.start();
  writer.integer(LEASE_TIME_TO_LIVE_REQUEST.ID, leaseId);
  if (!withoutKeys) writer.integer(LEASE_TIME_TO_LIVE_REQUEST.keys, 1);
  return writer.finish();
}

export function encodeAuthenticate(name: string, password: string): Buffer {
  writer.start();
  writer.bytes(AUTHENTICATE_REQUEST.name, name);
  writer.bytes(AUTHENTICATE_REQUEST.password, password);
  return writer.finish();
}

export function encodeKeepalive(leaseId: bigint): Buffer {
  writer.start();
  writer.integer(LEASE_KEEP_ALIVE_REQUEST.ID, leaseId);
  return writer.finish();
}

export function encodeWatchCreate({ watchId, key, end, startRevision, events }: WatchRequest): Buffer {
  writer.start();
  const create = writer.open(WATCH_REQUEST.create_request);
  writer.bytes(WATCH_CREATE_REQUEST.key, key);
  if (end !== undefined) writer.bytes(WATCH_CREATE_REQUEST.range_end, end);
  writer.integer(WATCH_CREATE_REQUEST.start_revision, startRevision);
  if (events !== "ALL") {
    const filters = writer.open(WATCH_CREATE_REQUEST.filters);
    writer.element(events === "DELETE" ? FILTER.Noput : FILTER.Nodelete);
    writer.close(filters);
  }
  writer.integer(WATCH_CREATE_REQUEST.watch_id, watchId);
  writer.close(create);
  return writer.finish();
}

export function encodeWatchCancel(watchId: number): Buffer {
  writer.start();
  const cancel = writer.open(WATCH_REQUEST.cancel_request);
  writer.integer(WATCH_CANCEL_REQUEST.watch_id, watchId);
  writer.close(cancel);
  return writer.finish();
}

export function encodeWatchProgress(): Buffer {
  writer.start();
  writer.close(writer.open(WATCH_REQUEST.progress_request));
  return writer.finish();
}

function writeTxn(txn: Txn): void {
  for (const compare of txn.compare) writeCompare(compare);
  for (const operation of txn.success) writeOperation(TXN_REQUEST.success, operation);
  for (const operation of txn.failure) writeOperation(TXN_REQUEST.failure, operation);
}

function writeNestedTxn(txn: Txn): void {
  const operation = writer.open(TXN_REQUEST.success);
  const start = writer.open(REQUEST_OP.request_txn);
  writeTxn(txn);
  writer.close(start);
  writer.close(operation);
}

/** The result that is compared for is the default, "Equal". */
function writeCompare(compare: Compare): void {
  const start = writer.open(TXN_REQUEST.compare);
  switch (compare.kind) {
    case "created at":
      writeTarget(COMPARE_TARGET.Create, compare.key);
      writer.integer(COMPARE.create_revision, compare.revision);
      break;
    case "modified at":
      writeTarget(COMPARE_TARGET.Mod, compare.key);
      writer.integer(COMPARE.mod_revision, compare.revision);
      break;
    case "nothing in":
      writeTarget(COMPARE_TARGET.Create, compare.key);
      // 0 is written although it is the default: as a member of a oneof it counts as absent otherwise.
      writer.integer(COMPARE.create_revision, 0);
      writer.bytes(COMPARE.range_end, compare.end);
      break;
    case "value is":
      writeTarget(COMPARE_TARGET.Value, compare.key);
      writer.bytes(COMPARE.value, compare.value);
  }
  writer.close(start);
}

function writeTarget(target: number, key: string | Buffer): void {
  writer.integer(COMPARE.target, target);
  writer.bytes(COMPARE.key, key);
}

function writeOperation(branch: number, operation: Operation): void {
  const start = writer.open(branch);
  const request = writer.open(requestOf(operation));
  switch (operation.kind) {
    case "put":
      writer.bytes(PUT_REQUEST.key, operation.key);
      writer.bytes(PUT_REQUEST.value, operation.value);
      writer.integer(PUT_REQUEST.lease, operation.leaseId);
      break;
    case "delete":
      writer.bytes(DELETE_RANGE_REQUEST.key, operation.key);
      break;
    case "range":
      writeRange(operation);
  }
  writer.close(request);
  writer.close(start);
}

function requestOf({ kind }: Operation): number {
  if (kind === "put") return REQUEST_OP.request_put;
  return kind === "delete" ? REQUEST_OP.request_delete_range : REQUEST_OP.request_range;
}

function writeRange(range: Range): void {
  writer.bytes(RANGE_REQUEST.key, range.key);
  if (range.end !== undefined) writer.bytes(RANGE_REQUEST.range_end, range.end);
  if (range.limit !== undefined) writer.integer(RANGE_REQUEST.limit, range.limit);
  if (range.revision !== undefined) writer.integer(RANGE_REQUEST.revision, range.revision);
  if (range.order !== undefined) {
    const order = range.order === "oldest first" ? SORT_ORDER.Ascend : SORT_ORDER.Descend;
    writer.integer(RANGE_REQUEST.sort_order, order);
    writer.integer(RANGE_REQUEST.sort_target, SORT_TARGET_CREATE);
  }
  if (range.serializable) writer.integer(RANGE_REQUEST.serializable, 1);
  if (range.keysOnly) writer.integer(RANGE_REQUEST.keys_only, 1);
  if (range.maxCreateRevision !== undefined)
    writer.integer(RANGE_REQUEST.max_create_revision, range.maxCreateRevision);
}
