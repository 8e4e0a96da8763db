import { FIXED32, FIXED64, LENGTH_DELIMITED, VARINT } from "./fields.js";

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
