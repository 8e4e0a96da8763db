import { Http2Error } from "./http2-error.js";
import { decodeHuffman } from "./huffman.js";

/** After the prefix: enough for 2^28. RFC 7541 section 5.1 demands a limit. */
const MOST_INTEGER_BYTES = 4;
const HUFFMAN = 0x80;

/** Reads the integers and strings of a header block (RFC 7541 section 5). */
export class BlockReader {
  #at = 0;

  constructor(private readonly block: Buffer) {}

  get atEnd(): boolean {
    return this.#at === this.block.length;
  }

  /** The next byte, which the next call reads again. */
  peek(): number {
    const byte = this.block[this.#at];
    if (byte === undefined) throw truncated();
    return byte;
  }

  /** The integer whose prefix is that many lower bits of the next byte (section 5.1). */
  integer(prefixBits: number): number {
    const most = (1 << prefixBits) - 1;
    let value = this.peek() & most;
    this.#at++;
    if (value < most) return value;
    for (let n = 0; n < MOST_INTEGER_BYTES; n++) {
      const byte = this.peek();
      this.#at++;
      value += (byte & 0x7f) << (7 * n);
      if (byte < 0x80) return value;
    }
    throw new Http2Error("COMPRESSION_ERROR", "an integer in a header block is too large");
  }

  /** The string that comes next (section 5.2), with one character, up to U+00FF, for each byte. */
  text(): string {
    const isHuffman = this.peek() >= HUFFMAN;
    const length = this.integer(7);
    const start = this.#at;
    const end = start + length;
    if (end > this.block.length) throw truncated();
    this.#at = end;
    return isHuffman ? decodeHuffman(this.block, start, end) : this.block.toString("latin1", start, end);
  }
}

const truncated = () => new Http2Error("COMPRESSION_ERROR", "a header block ends in the middle of a header");
