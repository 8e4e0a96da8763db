import type {
  Header,
  KeyValue,
  LeaseAnswer,
  RangeAnswer,
  TxnAnswer,
  WatchAnswer,
  WatchEvent,
} from "../port.js";
import {
  AUTHENTICATE_RESPONSE,
  EVENT,
  EVENT_DELETE,
  HEADER,
  KEY_VALUE,
  LEASE_RESPONSE,
  RANGE_RESPONSE,
  RESPONSE_HEADER,
  RESPONSE_OP,
  TXN_RESPONSE,
  WATCH_RESPONSE,
} from "./fields.js";
import { Reader } from "./reader.js";

/**
 * Decodes etcd's answers, without their gRPC prefix, into the port's. An answer without what the port needs throws. Of a
 * field that occurs more often than its type allows, the last occurrence counts. Protobuf merges two occurrences of a message
 * instead, but no encoder writes a message in parts.
 */

const NO_KEY = Buffer.alloc(0);

/** Writes IDs in decimal. Most answers repeat the ID of the one before, and divisions of 64-bit integers are slow. */
function decimals(): (id: bigint) => string {
  let last = 0n;
  let text = "0";
  return (id) => {
    if (id !== last) {
      last = id;
      text = id.toString();
    }
    return text;
  };
}

const clusterIds = decimals();
const memberIds = decimals();

/** The answers to `count` transactions. Those inside another have no header of their own: they get the outer one. */
export function decodeTxns(body: Buffer, count: number): readonly TxnAnswer[] {
  const header = headerOf(body);
  const reader = new Reader(body);
  if (count === 1) return [readTxn(reader, header)];
  const answers: TxnAnswer[] = [];
  while (reader.next())
    if (reader.field === TXN_RESPONSE.responses) answers.push(readNestedTxn(reader, header));
    else reader.skip(TXN_RESPONSE);
  if (answers.length !== count) throw new Error("not as many answers as transactions");
  return answers;
}

export function decodeRange(body: Buffer): RangeAnswer {
  const header = headerOf(body);
  const { kvs, more, count } = readRange(new Reader(body));
  return { header, kvs, more, count };
}

/** The answer to a grant or a keepalive. */
export function decodeLease(body: Buffer): LeaseAnswer {
  const { header, leaseId, ttlSeconds } = decodeTimeToLive(body);
  return { header, leaseId, ttlSeconds };
}

export function decodeTimeToLive(body: Buffer): LeaseAnswer & { readonly keys: readonly Buffer[] } {
  const header = headerOf(body);
  const keys: Buffer[] = [];
  let leaseId = 0n;
  let ttlSeconds = 0;
  const reader = new Reader(body);
  while (reader.next())
    if (reader.field === LEASE_RESPONSE.ID) leaseId = reader.int64();
    else if (reader.field === LEASE_RESPONSE.TTL) ttlSeconds = reader.number();
    else if (reader.field === LEASE_RESPONSE.keys) keys.push(reader.bytes());
    else reader.skip(LEASE_RESPONSE);
  return { header, leaseId, ttlSeconds, keys };
}

export function decodeToken(body: Buffer): string {
  let token = "";
  const reader = new Reader(body);
  while (reader.next())
    if (reader.field === AUTHENTICATE_RESPONSE.token) token = reader.text();
    else reader.skip(AUTHENTICATE_RESPONSE);
  return token;
}

export function decodeWatch(body: Buffer): WatchAnswer {
  const header = headerOf(body);
  const events: WatchEvent[] = [];
  let watchId = 0;
  let created = false;
  let cancelled = false;
  let cancelReason = "";
  let compacted = false;
  const reader = new Reader(body);
  while (reader.next())
    if (reader.field === WATCH_RESPONSE.events) events.push(readEvent(reader));
    else if (reader.field === WATCH_RESPONSE.watch_id) watchId = reader.number();
    else if (reader.field === WATCH_RESPONSE.created) created = reader.bool();
    else if (reader.field === WATCH_RESPONSE.canceled) cancelled = reader.bool();
    else if (reader.field === WATCH_RESPONSE.cancel_reason) cancelReason = reader.text();
    // Of the compact revision, the port needs only whether there is one.
    else if (reader.field === WATCH_RESPONSE.compact_revision) compacted = reader.bool();
    else reader.skip(WATCH_RESPONSE);
  return { header, watchId, created, cancelled, cancelReason, compacted, events };
}

/** Read before the other fields, which skip it then: what a transaction contains needs the header too. */
function headerOf(body: Buffer): Header {
  const reader = new Reader(body);
  let header: Header | undefined;
  while (reader.next())
    if (reader.field === RESPONSE_HEADER) header = readHeader(reader);
    else reader.skip({});
  if (!header) throw new Error("an answer without a header");
  return header;
}

function readHeader(reader: Reader): Header {
  let clusterId = "0";
  let memberId = "0";
  let revision = 0n;
  let raftTerm = 0n;
  const outer = reader.enter();
  while (reader.next())
    if (reader.field === HEADER.cluster_id) clusterId = clusterIds(reader.uint64());
    else if (reader.field === HEADER.member_id) memberId = memberIds(reader.uint64());
    else if (reader.field === HEADER.revision) revision = reader.int64();
    else if (reader.field === HEADER.raft_term) raftTerm = reader.uint64();
    else reader.skip(HEADER);
  reader.leave(outer);
  return { clusterId, revision, memberId, raftTerm };
}

/** Reads a TxnResponse to its end. */
function readTxn(reader: Reader, header: Header): TxnAnswer {
  const ranges: (Omit<RangeAnswer, "header"> | undefined)[] = [];
  let succeeded = false;
  while (reader.next())
    if (reader.field === TXN_RESPONSE.succeeded) succeeded = reader.bool();
    else if (reader.field === TXN_RESPONSE.responses) ranges.push(readOperation(reader));
    else reader.skip(TXN_RESPONSE);
  return { header, succeeded, ranges };
}

function readNestedTxn(reader: Reader, header: Header): TxnAnswer {
  let txn: TxnAnswer | undefined;
  const response = reader.enter();
  while (reader.next())
    if (reader.field === RESPONSE_OP.response_txn) {
      const outer = reader.enter();
      txn = readTxn(reader, header);
      reader.leave(outer);
    } else reader.skip(RESPONSE_OP);
  reader.leave(response);
  if (!txn) throw new Error("not the answer to a transaction");
  return txn;
}

/** The answer to one operation of a transaction; `undefined` if that was not a range. */
function readOperation(reader: Reader): Omit<RangeAnswer, "header"> | undefined {
  let range: Omit<RangeAnswer, "header"> | undefined;
  const response = reader.enter();
  while (reader.next())
    if (reader.field === RESPONSE_OP.response_range) {
      const outer = reader.enter();
      range = readRange(reader);
      reader.leave(outer);
    } else reader.skip(RESPONSE_OP);
  reader.leave(response);
  return range;
}

/** Reads a RangeResponse to its end. */
function readRange(reader: Reader): Omit<RangeAnswer, "header"> {
  const kvs: KeyValue[] = [];
  let more = false;
  let count = 0;
  while (reader.next())
    if (reader.field === RANGE_RESPONSE.kvs) kvs.push(readKeyValue(reader));
    else if (reader.field === RANGE_RESPONSE.more) more = reader.bool();
    else if (reader.field === RANGE_RESPONSE.count) count = reader.number();
    else reader.skip(RANGE_RESPONSE);
  return { kvs, more, count };
}

function readKeyValue(reader: Reader): KeyValue {
  let key: Buffer = NO_KEY;
  let value = "";
  let createRevision = 0n;
  let modRevision = 0n;
  let leaseId = 0n;
  const outer = reader.enter();
  while (reader.next())
    if (reader.field === KEY_VALUE.key) key = reader.bytes();
    else if (reader.field === KEY_VALUE.value) value = reader.text();
    else if (reader.field === KEY_VALUE.create_revision) createRevision = reader.int64();
    else if (reader.field === KEY_VALUE.mod_revision) modRevision = reader.int64();
    else if (reader.field === KEY_VALUE.lease) leaseId = reader.int64();
    else reader.skip(KEY_VALUE);
  reader.leave(outer);
  return { key, value, createRevision, modRevision, leaseId };
}

function readEvent(reader: Reader): WatchEvent {
  let kind: WatchEvent["kind"] = "PUT";
  let kv: KeyValue | undefined;
  const outer = reader.enter();
  while (reader.next())
    if (reader.field === EVENT.type) kind = reader.number() === EVENT_DELETE ? "DELETE" : "PUT";
    else if (reader.field === EVENT.kv) kv = readKeyValue(reader);
    else reader.skip(EVENT);
  reader.leave(outer);
  if (!kv) throw new Error("an event without a key");
  return { kind, kv };
}
