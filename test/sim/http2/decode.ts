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
  TXN_REQUEST,
  WATCH_CANCEL_REQUEST,
  WATCH_CREATE_REQUEST,
  WATCH_REQUEST,
} from "../../../src/etcd/http2/fields.js";
import { Reader } from "../../../src/etcd/http2/codec-read.js";
import type { Compare, Operation, Range, Txn, WatchRequest } from "../../../src/etcd/port.js";
import type { UnaryRequest, WatchCommand } from "../../../src/testing/memory/protocol.js";

/** What the client sends, as the member reads it: the other side of `src/etcd/http2/codec-write.ts`. */

/** The last values of the fields of a message, read by the functions for them. */
function readFields(reader: Reader, fields: Readonly<Record<number, () => void>>): void {
  while (reader.next()) {
    const read = fields[reader.field];
    if (read) read();
    else reader.skip({});
  }
}

function inside<Result>(reader: Reader, read: () => Result): Result {
  const outer = reader.enter();
  const result = read();
  reader.leave(outer);
  return result;
}

/** Several transactions are nested in one that compares nothing. */
export function decodeTxns(body: Buffer): readonly Txn[] {
  const nested: Txn[] = [];
  const txn = readTxn(new Reader(body), nested);
  return nested.length > 0 ? nested : [txn];
}

function readTxn(reader: Reader, nested: Txn[]): Txn {
  const compare: Compare[] = [];
  const success: Operation[] = [];
  const failure: Operation[] = [];
  readFields(reader, {
    [TXN_REQUEST.compare]: () => compare.push(inside(reader, () => readCompare(reader))),
    [TXN_REQUEST.success]: () => inside(reader, () => readOperation(reader, { into: success, nested })),
    [TXN_REQUEST.failure]: () => inside(reader, () => readOperation(reader, { into: failure, nested })),
  });
  return { queues: [], compare, success, failure };
}

function readCompare(reader: Reader): Compare {
  let target = 0;
  let key: Buffer = Buffer.alloc(0);
  let end: string | undefined;
  let revision = 0n;
  let value = "";
  let isLess = false;
  readFields(reader, {
    [COMPARE.target]: () => (target = reader.number()),
    [COMPARE.key]: () => (key = reader.bytes()),
    [COMPARE.range_end]: () => (end = reader.text()),
    [COMPARE.result]: () => (isLess = reader.number() === COMPARE_RESULT.Less),
    [COMPARE.create_revision]: () => (revision = reader.int64()),
    [COMPARE.mod_revision]: () => (revision = reader.int64()),
    [COMPARE.value]: () => (value = reader.text()),
  });
  const name = key.toString();
  if (target === COMPARE_TARGET.Value) return { kind: "value is", key: name, value };
  if (target === COMPARE_TARGET.Mod) return { kind: "modified at", key: name, revision };
  if (isLess) return { kind: "nothing since", key: name, end: end ?? "", revision: revision - 1n };
  return end === undefined ? { kind: "created at", key, revision } : { kind: "nothing in", key: name, end };
}

interface Operations {
  readonly into: Operation[];
  readonly nested: Txn[];
}

function readOperation(reader: Reader, { into, nested }: Operations): void {
  readFields(reader, {
    [REQUEST_OP.request_range]: () =>
      into.push({ kind: "range", ...inside(reader, () => readRange(reader)) }),
    [REQUEST_OP.request_put]: () => into.push(inside(reader, () => readPut(reader))),
    [REQUEST_OP.request_delete_range]: () => into.push(inside(reader, () => readDelete(reader))),
    [REQUEST_OP.request_txn]: () => nested.push(inside(reader, () => readTxn(reader, []))),
  });
}

function readPut(reader: Reader): Operation {
  let [key, value, leaseId] = ["", "", 0n];
  readFields(reader, {
    [PUT_REQUEST.key]: () => (key = reader.text()),
    [PUT_REQUEST.value]: () => (value = reader.text()),
    [PUT_REQUEST.lease]: () => (leaseId = reader.int64()),
  });
  return { kind: "put", key, value, leaseId };
}

function readDelete(reader: Reader): Operation {
  let key: Buffer = Buffer.alloc(0);
  readFields(reader, { [DELETE_RANGE_REQUEST.key]: () => (key = reader.bytes()) });
  return { kind: "delete", key };
}

export const decodeRange = (body: Buffer): Range => readRange(new Reader(body));

function readRange(reader: Reader): Range {
  const range: { -readonly [Name in keyof Range]: Range[Name] } = { key: "" };
  readFields(reader, {
    [RANGE_REQUEST.key]: () => (range.key = reader.bytes()),
    [RANGE_REQUEST.range_end]: () => (range.end = reader.bytes()),
    [RANGE_REQUEST.limit]: () => (range.limit = reader.number()),
    [RANGE_REQUEST.revision]: () => (range.revision = reader.int64()),
    // It sorts by create revision only.
    [RANGE_REQUEST.sort_order]: () =>
      (range.order = reader.number() === SORT_ORDER.Ascend ? "oldest first" : "newest first"),
    [RANGE_REQUEST.serializable]: () => (range.serializable = reader.bool()),
    [RANGE_REQUEST.keys_only]: () => (range.keysOnly = reader.bool()),
    [RANGE_REQUEST.max_create_revision]: () => (range.maxCreateRevision = reader.int64()),
  });
  return range;
}

/** @param kind of the unary calls that are neither a transaction nor a range */
export function decodeUnary(
  kind: "grant" | "revoke" | "timeToLive" | "authenticate",
  body: Buffer,
): UnaryRequest {
  const reader = new Reader(body);
  let [leaseId, ttlSeconds, withoutKeys, username, password] = [0n, 0, true, "", ""];
  switch (kind) {
    case "grant":
      readFields(reader, {
        [LEASE_GRANT_REQUEST.TTL]: () => (ttlSeconds = reader.number()),
        [LEASE_GRANT_REQUEST.ID]: () => (leaseId = reader.int64()),
      });
      return { kind, leaseId, ttlSeconds };
    case "revoke":
      readFields(reader, { [LEASE_REVOKE_REQUEST.ID]: () => (leaseId = reader.int64()) });
      return { kind, leaseId };
    case "timeToLive":
      readFields(reader, {
        [LEASE_TIME_TO_LIVE_REQUEST.ID]: () => (leaseId = reader.int64()),
        [LEASE_TIME_TO_LIVE_REQUEST.keys]: () => (withoutKeys = !reader.bool()),
      });
      return { kind, leaseId, withoutKeys };
    case "authenticate":
      readFields(reader, {
        [AUTHENTICATE_REQUEST.name]: () => (username = reader.text()),
        [AUTHENTICATE_REQUEST.password]: () => (password = reader.text()),
      });
      return { kind, username, password };
  }
}

export function decodeKeepalive(body: Buffer): bigint {
  const reader = new Reader(body);
  let leaseId = 0n;
  readFields(reader, { [LEASE_KEEP_ALIVE_REQUEST.ID]: () => (leaseId = reader.int64()) });
  return leaseId;
}

export function decodeWatch(body: Buffer): WatchCommand {
  const reader = new Reader(body);
  let command: WatchCommand = { probe: true };
  readFields(reader, {
    [WATCH_REQUEST.create_request]: () => (command = { create: inside(reader, () => readCreate(reader)) }),
    [WATCH_REQUEST.cancel_request]: () => (command = { cancel: inside(reader, () => readCancel(reader)) }),
  });
  return command;
}

function readCreate(reader: Reader): WatchRequest {
  const create: { -readonly [Name in keyof WatchRequest]: WatchRequest[Name] } = {
    ...{ watchId: 0, key: "", startRevision: 0n, events: "ALL" },
  };
  readFields(reader, {
    [WATCH_CREATE_REQUEST.key]: () => (create.key = reader.bytes()),
    [WATCH_CREATE_REQUEST.range_end]: () => (create.end = reader.bytes()),
    [WATCH_CREATE_REQUEST.start_revision]: () => (create.startRevision = reader.int64()),
    // A packed list with one element.
    [WATCH_CREATE_REQUEST.filters]: () =>
      (create.events = reader.bytes()[0] === FILTER.Noput ? "DELETE" : "PUT"),
    [WATCH_CREATE_REQUEST.watch_id]: () => (create.watchId = reader.number()),
  });
  return create;
}

function readCancel(reader: Reader): number {
  let watchId = 0;
  readFields(reader, { [WATCH_CANCEL_REQUEST.watch_id]: () => (watchId = reader.number()) });
  return watchId;
}
