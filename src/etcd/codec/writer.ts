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
