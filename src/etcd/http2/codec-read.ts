// Decodes the answers that the port needs, to the same values as `etcd/etcd3/codec.ts`.
// - Unknown fields are skipped: etcd may add some. A known field of a wrong wire type makes the answer unusable.
// - Bytes that are no message throw an Error. A length is checked before anything is allocated for it, and the code, not the
//   bytes, decides how deep messages are nested.
// - An answer keeps no part of the buffer that it was read from.
import type {
  Header,
  KeyValue,
  LeaseAnswer,
  MembersAnswer,
  RangeAnswer,
  TxnAnswer,
  WatchAnswer,
  WatchEvent,
} from "../port.js";
import {
  AUTHENTICATE_RESPONSE,
  EVENT,
  EVENT_DELETE,
  FIXED32,
  FIXED64,
  HEADER,
  KEY_VALUE,
  LEASE_RESPONSE,
  LENGTH_DELIMITED,
  MEMBER,
  MEMBER_LIST_RESPONSE,
  RANGE_RESPONSE,
  RESPONSE_HEADER,
  RESPONSE_OP,
  TXN_RESPONSE,
  VARINT,
  WATCH_RESPONSE,
} from "./fields.js";

const EMPTY = Buffer.alloc(0);
/** A loop copies fewer bytes faster than a call into Node.js. */
const SHORT = 48;

/** Joins the halves of 64-bit integers. */
const halves = new DataView(new ArrayBuffer(8));

/**
 * Reads the fields of a message in the order in which they come (protobuf encoding page):
 * `while (reader.next()) if (reader.field === ...) ...; else reader.skip(RANGE_RESPONSE);`. Throws if the bytes are no message.
 */
export class Reader {
  readonly #body: Buffer;
  #at = 0;
  /** The end of the message that is read: of the body, or of a message in it. */
  #end: number;
  #field = 0;
  /** The halves of the last varint. As signed integers they need no heap numbers. */
  #low = 0;
  #high = 0;

  constructor(body: Buffer) {
    this.#body = body;
    this.#end = body.length;
  }

  /** The field number and wire type of this field, as in fields.ts. */
  get field(): number {
    return this.#field;
  }

  /** Advances to the next field of this message. Returns false at the end of the message. */
  next(): boolean {
    if (this.#at === this.#end) return false;
    this.#varint();
    if (this.#high !== 0 || this.#low >>> 3 === 0) throw new Error("a field with an impossible number");
    this.#field = this.#low;
    return true;
  }

  /** Begins to read the message in this field. Returns what `leave()` needs when `next()` has returned false. */
  enter(): number {
    const outer = this.#end;
    this.#end = this.#endOfField();
    return outer;
  }

  leave(outer: number): void {
    this.#end = outer;
  }

  /**
   * Skips a field that is not one of `known`. Protobuf takes a known field of a wrong wire type for an unknown one; what such
   * an answer leaves out would decide about locks, so it throws.
   */
  skip(known: Readonly<Record<string, number>>): void {
    for (const name in known)
      if (known[name]! >>> 3 === this.#field >>> 3 && known[name] !== this.#field)
        throw new Error(`the field ${name} has a wrong type`);
    this.#pass();
  }

  #pass(): void {
    switch (this.#field & 7) {
      case VARINT:
        return this.#varint();
      case FIXED64:
        return this.#forward(8);
      case LENGTH_DELIMITED:
        this.#at = this.#endOfField();
        return;
      case FIXED32:
        return this.#forward(4);
      default:
        // Groups are deprecated: etcd has none.
        throw new Error("a field with an unknown wire type");
    }
  }

  bool(): boolean {
    this.#varint();
    return this.#low !== 0 || this.#high !== 0;
  }

  int64(): bigint {
    this.#join();
    return halves.getBigInt64(0);
  }

  uint64(): bigint {
    this.#join();
    return halves.getBigUint64(0);
  }

  /** An int64 or an enum as a number, which is rounded above 2^53. */
  number(): number {
    this.#varint();
    return this.#high * 2 ** 32 + (this.#low >>> 0);
  }

  /** A copy: a part of the body would keep the whole of it in memory. */
  bytes(): Buffer {
    const end = this.#endOfField();
    if (end === this.#at) return EMPTY;
    const body = this.#body;
    const from = this.#at;
    const copy = Buffer.allocUnsafe(end - from);
    if (copy.length > SHORT) body.copy(copy, 0, from, end);
    else for (let i = 0; i < copy.length; i++) copy[i] = body[from + i]!;
    this.#at = end;
    return copy;
  }

  /** Invalid UTF-8 is replaced by U+FFFD. */
  text(): string {
    const end = this.#endOfField();
    const text = this.#body.toString("utf8", this.#at, end);
    this.#at = end;
    return text;
  }

  /** Reads the length of this field. Nothing is allocated for it before it is known to fit. */
  #endOfField(): number {
    this.#varint();
    if (this.#high !== 0 || this.#low >>> 0 > this.#end - this.#at) throw truncated();
    return this.#at + this.#low;
  }

  #forward(bytes: number): void {
    if (bytes > this.#end - this.#at) throw truncated();
    this.#at += bytes;
  }

  /** Reads a varint into `halves`. */
  #join(): void {
    this.#varint();
    halves.setInt32(0, this.#high);
    halves.setInt32(4, this.#low);
  }

  /** Ten bytes at most; of the tenth, only the lowest bit fits into 64 bits. Beyond the body, bytes are undefined. */
  #varint(): void {
    const body = this.#body;
    let at = this.#at;
    let byte = body[at++]!;
    let low = byte & 0x7f;
    let high = 0;
    for (let shift = 7; byte > 0x7f && shift < 28; shift += 7) {
      byte = body[at++]!;
      low |= (byte & 0x7f) << shift;
    }
    if (byte > 0x7f) {
      byte = body[at++]!;
      low |= byte << 28;
      high = (byte & 0x7f) >> 4;
    }
    for (let shift = 3; byte > 0x7f && shift < 32; shift += 7) {
      byte = body[at++]!;
      high |= (byte & 0x7f) << shift;
    }
    if (byte > 0x7f) throw new Error("an integer longer than ten bytes");
    if (at > this.#end) throw truncated();
    this.#at = at;
    this.#low = low;
    this.#high = high;
  }
}

const truncated = (): Error => new Error("the message is cut off");

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
  let header: Header | undefined;
  const keys: Buffer[] = [];
  let leaseId = 0n;
  let ttlSeconds = 0;
  const reader = new Reader(body);
  while (reader.next())
    if (reader.field === RESPONSE_HEADER) header = readHeader(reader);
    else if (reader.field === LEASE_RESPONSE.ID) leaseId = reader.int64();
    else if (reader.field === LEASE_RESPONSE.TTL) ttlSeconds = reader.number();
    else if (reader.field === LEASE_RESPONSE.keys) keys.push(reader.bytes());
    else reader.skip(LEASE_RESPONSE);
  return { header: given(header), leaseId, ttlSeconds, keys };
}

export function decodeMembers(body: Buffer): MembersAnswer {
  const header = headerOf(body);
  const members: MembersAnswer["members"][number][] = [];
  const reader = new Reader(body);
  while (reader.next())
    if (reader.field === MEMBER_LIST_RESPONSE.members) members.push(readMember(reader));
    else reader.skip(MEMBER_LIST_RESPONSE);
  return { header, members };
}

function readMember(reader: Reader): MembersAnswer["members"][number] {
  const outer = reader.enter();
  const clientUrls: string[] = [];
  let isLearner = false;
  while (reader.next())
    if (reader.field === MEMBER.clientURLs) clientUrls.push(reader.text());
    else if (reader.field === MEMBER.isLearner) isLearner = reader.bool();
    else reader.skip(MEMBER);
  reader.leave(outer);
  return { clientUrls, isLearner };
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
  let header: Header | undefined;
  const events: WatchEvent[] = [];
  let watchId = 0;
  let created = false;
  let cancelled = false;
  let cancelReason = "";
  let compacted = false;
  const reader = new Reader(body);
  while (reader.next())
    if (reader.field === RESPONSE_HEADER) header = readHeader(reader);
    else if (reader.field === WATCH_RESPONSE.events) events.push(readEvent(reader));
    else if (reader.field === WATCH_RESPONSE.watch_id) watchId = reader.number();
    else if (reader.field === WATCH_RESPONSE.created) created = reader.bool();
    else if (reader.field === WATCH_RESPONSE.canceled) cancelled = reader.bool();
    else if (reader.field === WATCH_RESPONSE.cancel_reason) cancelReason = reader.text();
    // The port needs to know only whether there is a compact revision.
    else if (reader.field === WATCH_RESPONSE.compact_revision) compacted = reader.bool();
    else reader.skip(WATCH_RESPONSE);
  return { header: given(header), watchId, created, cancelled, cancelReason, compacted, events };
}

const given = (header: Header | undefined): Header => {
  if (!header) throw new Error("an answer without a header");
  return header;
};

/** Read before the other fields, which skip it then: what a transaction contains needs the header too. */
function headerOf(body: Buffer): Header {
  const reader = new Reader(body);
  let header: Header | undefined;
  while (reader.next())
    if (reader.field === RESPONSE_HEADER) header = readHeader(reader);
    else reader.skip({});
  return given(header);
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
