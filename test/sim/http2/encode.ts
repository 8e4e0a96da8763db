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
} from "../../../src/etcd/http2/fields.js";
import { Writer } from "../../../src/etcd/http2/codec-write.js";
import type {
  Header,
  KeyValue,
  LeaseAnswer,
  RangeAnswer,
  TxnAnswer,
  WatchAnswer,
} from "../../../src/etcd/port.js";

/** What the member answers, with the gRPC prefix: the other side of `src/etcd/http2/codec-read.ts`. */

const writer = new Writer();

/** `response_put`, which stands here for each operation that is not a range: the client reads nothing of it. */
const NO_RANGE = RESPONSE_OP.response_range + 8;
const COMPACT_REVISION = 1;

export function encodeTxns(answers: readonly TxnAnswer[]): Buffer {
  writer.start();
  writeHeader(answers[0]!.header);
  if (answers.length === 1) writeTxn(answers[0]!);
  else for (const answer of answers) writeNestedTxn(answer);
  return writer.finish();
}

export function encodeRange(answer: RangeAnswer): Buffer {
  writer.start();
  writeHeader(answer.header);
  writeRange(answer);
  return writer.finish();
}

/** To a grant, a keepalive, or a question for the time to live. */
export function encodeLease(answer: LeaseAnswer & { readonly keys?: readonly Buffer[] }): Buffer {
  writer.start();
  writeHeader(answer.header);
  writer.integer(LEASE_RESPONSE.ID, answer.leaseId);
  writer.integer(LEASE_RESPONSE.TTL, answer.ttlSeconds);
  for (const key of answer.keys ?? []) writer.bytes(LEASE_RESPONSE.keys, key);
  return writer.finish();
}

export function encodeHeaderOnly({ header }: { readonly header: Header }): Buffer {
  writer.start();
  writeHeader(header);
  return writer.finish();
}

export function encodeToken({ token }: { readonly token: string }): Buffer {
  writer.start();
  writer.bytes(AUTHENTICATE_RESPONSE.token, token);
  return writer.finish();
}

export function encodeWatch(answer: WatchAnswer): Buffer {
  const { header, watchId, created, cancelled, cancelReason, compacted, events } = answer;
  writer.start();
  writeHeader(header);
  writer.integer(WATCH_RESPONSE.watch_id, watchId);
  if (created) writer.integer(WATCH_RESPONSE.created, 1);
  if (cancelled) writer.integer(WATCH_RESPONSE.canceled, 1);
  if (compacted) writer.integer(WATCH_RESPONSE.compact_revision, COMPACT_REVISION);
  if (cancelReason !== "") writer.bytes(WATCH_RESPONSE.cancel_reason, cancelReason);
  for (const { kind, kv } of events) {
    const event = writer.open(WATCH_RESPONSE.events);
    if (kind === "DELETE") writer.integer(EVENT.type, EVENT_DELETE);
    writeKeyValue(EVENT.kv, kv);
    writer.close(event);
  }
  return writer.finish();
}

function writeHeader({ clusterId, memberId, revision, raftTerm }: Header): void {
  const header = writer.open(RESPONSE_HEADER);
  writer.integer(HEADER.cluster_id, BigInt(clusterId));
  writer.integer(HEADER.member_id, BigInt(memberId));
  writer.integer(HEADER.revision, revision);
  writer.integer(HEADER.raft_term, raftTerm);
  writer.close(header);
}

function writeTxn({ succeeded, ranges }: TxnAnswer): void {
  if (succeeded) writer.integer(TXN_RESPONSE.succeeded, 1);
  for (const range of ranges) {
    const response = writer.open(TXN_RESPONSE.responses);
    const operation = writer.open(range ? RESPONSE_OP.response_range : NO_RANGE);
    if (range) writeRange(range);
    writer.close(operation);
    writer.close(response);
  }
}

function writeNestedTxn(answer: TxnAnswer): void {
  const response = writer.open(TXN_RESPONSE.responses);
  const txn = writer.open(RESPONSE_OP.response_txn);
  writeTxn(answer);
  writer.close(txn);
  writer.close(response);
}

function writeRange({ kvs, more, count }: Omit<RangeAnswer, "header">): void {
  for (const kv of kvs) writeKeyValue(RANGE_RESPONSE.kvs, kv);
  if (more) writer.integer(RANGE_RESPONSE.more, 1);
  writer.integer(RANGE_RESPONSE.count, count);
}

function writeKeyValue(field: number, kv: KeyValue): void {
  const pair = writer.open(field);
  writer.bytes(KEY_VALUE.key, kv.key);
  writer.integer(KEY_VALUE.create_revision, kv.createRevision);
  writer.integer(KEY_VALUE.mod_revision, kv.modRevision);
  writer.bytes(KEY_VALUE.value, kv.value);
  writer.integer(KEY_VALUE.lease, kv.leaseId);
  writer.close(pair);
}
