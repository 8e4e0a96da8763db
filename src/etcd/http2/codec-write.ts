// Encodes the requests of the port in protobuf, each as one buffer with its gRPC prefix, and no other messages of etcd. What
// etcd reads in a request is the same as with `etcd/etcd3/codec.ts`. Encoding is synchronous, so all requests share one `Writer`.
// A request that was returned is never written again.
import type { Compare, Operation, Range, TimeToLiveOptions, Txn, WatchRequest } from "../port.js";
import {
  AUTHENTICATE_REQUEST,
  COMPARE,
  COMPARE_RESULT,
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

/** The flag "not compressed" and a length of four bytes precede each message (PROTOCOL-HTTP2.md, "Length-Prefixed-Message"). */
const PREFIX = 5;
/** Room for about fifty requests. One that is kept by its owner keeps this much memory. */
const SLAB = 16_384;
const MAX_VARINT = 10;
/** Shorter strings are written faster by a loop than by a call into Node.js. */
const SHORT = 16;

/** Splits 64-bit integers into halves. */
const halves = new DataView(new ArrayBuffer(8));

/**
 * Writes one message after the other as a gRPC message: prefix and protobuf (protobuf encoding page). Each message starts
 * with `start()` and ends with `finish()`; what is written before is lost if an exception comes between the two.
 */
export class Writer {
  /** Messages are written one behind the other, and never again once they are finished: none needs a copy. */
  #slab = Buffer.allocUnsafeSlow(SLAB);
  /** Where the present message starts. */
  #start = 0;
  #at = 0;

  start(): void {
    this.#at = this.#start;
    this.#reserve(PREFIX);
    this.#at += PREFIX;
  }

  /** The prefix and the message. */
  finish(): Buffer {
    const message = this.#slab.subarray(this.#start, this.#at);
    message[0] = 0;
    message.writeUInt32BE(message.length - PREFIX, 1);
    this.#start = this.#at;
    return message;
  }

  /** A field of type int64, bool or enum. Negative values take ten bytes, as their two's complement. */
  integer(field: number, value: bigint | number): void {
    this.#reserve(MAX_VARINT);
    this.#varint(field, 0);
    this.element(value);
  }

  /** An integer without its field: an element of a packed list. */
  element(value: bigint | number): void {
    this.#reserve(MAX_VARINT);
    if (typeof value === "number") this.#varint(value >>> 0, Math.floor(value / 2 ** 32) >>> 0);
    else {
      halves.setBigInt64(0, value);
      this.#varint(halves.getUint32(4), halves.getUint32(0));
    }
  }

  /** A field of type bytes or string. */
  bytes(field: number, value: string | Buffer): void {
    const start = this.open(field);
    if (typeof value === "string") this.#text(value);
    else {
      this.#reserve(value.length);
      this.#slab.set(value, this.#at);
      this.#at += value.length;
    }
    this.close(start);
  }

  /** Begins a field with a length, such as a message. Returns where its content starts, for `close()`. */
  open(field: number): number {
    this.#reserve(MAX_VARINT);
    this.#varint(field, 0);
    return ++this.#at - this.#start;
  }

  /** Ends the field. `open()` has left one byte for the length: content of 128 bytes or more is moved. */
  close(opened: number): void {
    this.#reserve(MAX_VARINT);
    const start = this.#start + opened;
    const length = this.#at - start;
    if (length < 0x80) {
      this.#slab[start - 1] = length;
      return;
    }
    const more = varintSize(length) - 1;
    this.#slab.copyWithin(start + more, start, this.#at);
    this.#at = start - 1;
    this.#varint(length, 0);
    this.#at += length;
  }

  #text(text: string): void {
    // UTF-8 has at most three bytes for each UTF-16 unit.
    this.#reserve(text.length * 3);
    if (text.length > SHORT || !this.#ascii(text)) this.#at += this.#slab.write(text, this.#at);
  }

  /** False, and nothing is written, if there are other characters in it. */
  #ascii(text: string): boolean {
    const slab = this.#slab;
    const at = this.#at;
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i);
      if (unit > 0x7f) return false;
      slab[at + i] = unit;
    }
    this.#at = at + text.length;
    return true;
  }

  #varint(low: number, high: number): void {
    const slab = this.#slab;
    let at = this.#at;
    for (; high > 0; high >>>= 7) {
      slab[at++] = (low & 0x7f) | 0x80;
      low = ((low >>> 7) | (high << 25)) >>> 0;
    }
    for (; low > 0x7f; low >>>= 7) slab[at++] = (low & 0x7f) | 0x80;
    slab[at++] = low;
    this.#at = at;
  }

  /** Makes room behind what is written. A new slab begins with the present message. */
  #reserve(bytes: number): void {
    if (this.#at + bytes <= this.#slab.length) return;
    const written = this.#at - this.#start;
    const slab = Buffer.allocUnsafeSlow(Math.max(SLAB, 2 * (written + bytes)));
    this.#slab.copy(slab, 0, this.#start, this.#at);
    this.#slab = slab;
    this.#start = 0;
    this.#at = written;
  }
}

function varintSize(length: number): number {
  let size = 1;
  for (let rest = length; rest > 0x7f; rest >>>= 7) size++;
  return size;
}

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

/** The default of the result that is compared for is "Equal". */
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
    case "nothing since":
      writer.integer(COMPARE.result, COMPARE_RESULT.Less);
      writeTarget(COMPARE_TARGET.Create, compare.key);
      writer.integer(COMPARE.create_revision, compare.revision + 1n);
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
