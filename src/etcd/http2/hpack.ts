// Header blocks (RFC 7541). A block stands alone, as neither side has a dynamic table: we announce one of size 0, and our first
// block says that we use none of the peer's. That is why `HeaderDecoder` may return the result of an equal block. A header with
// a secret is a literal that is never indexed, and no error shows its value.
import { Http2Error } from "./frames.js";

/**
 * The static table (RFC 7541 appendix A): the header with index n is at n - 1. The headers with one name are next to each
 * other.
 */
export const STATIC_TABLE: readonly (readonly [name: string, value: string])[] = [
  [":authority", ""],
  [":method", "GET"],
  [":method", "POST"],
  [":path", "/"],
  [":path", "/index.html"],
  [":scheme", "http"],
  [":scheme", "https"],
  [":status", "200"],
  [":status", "204"],
  [":status", "206"],
  [":status", "304"],
  [":status", "400"],
  [":status", "404"],
  [":status", "500"],
  ["accept-charset", ""],
  ["accept-encoding", "gzip, deflate"],
  ["accept-language", ""],
  ["accept-ranges", ""],
  ["accept", ""],
  ["access-control-allow-origin", ""],
  ["age", ""],
  ["allow", ""],
  ["authorization", ""],
  ["cache-control", ""],
  ["content-disposition", ""],
  ["content-encoding", ""],
  ["content-language", ""],
  ["content-length", ""],
  ["content-location", ""],
  ["content-range", ""],
  ["content-type", ""],
  ["cookie", ""],
  ["date", ""],
  ["etag", ""],
  ["expect", ""],
  ["expires", ""],
  ["from", ""],
  ["host", ""],
  ["if-match", ""],
  ["if-modified-since", ""],
  ["if-none-match", ""],
  ["if-range", ""],
  ["if-unmodified-since", ""],
  ["last-modified", ""],
  ["link", ""],
  ["location", ""],
  ["max-forwards", ""],
  ["proxy-authenticate", ""],
  ["proxy-authorization", ""],
  ["range", ""],
  ["referer", ""],
  ["refresh", ""],
  ["retry-after", ""],
  ["server", ""],
  ["set-cookie", ""],
  ["strict-transport-security", ""],
  ["transfer-encoding", ""],
  ["user-agent", ""],
  ["vary", ""],
  ["via", ""],
  ["www-authenticate", ""],
];

/** The index of the first header with that name in the static table. */
const STATIC_NAMES: ReadonlyMap<string, number> = new Map(
  STATIC_TABLE.map(([name], at) => [name, at + 1] as const).reverse(),
);

/**
 * The length in bits of the Huffman code of each byte and, last, of EOS (RFC 7541 appendix B). The lengths determine the
 * codes: codes of one length are consecutive numbers in the order of their symbols, and a longer code is greater.
 */
const HUFFMAN_LENGTHS: readonly number[] = [
  13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28,
  28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7,
  8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19,
  13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13,
  28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21,
  22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23,
  22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
  19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25,
  25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/**
 * Decodes the Huffman code of RFC 7541 section 5.2 four bits at a time. A state is an inner node of the code tree: the bits
 * since the last symbol. No code is shorter than five bits, so that four bits complete at most one symbol.
 */

const EOS = 256;
const SHORTEST_CODE = 5;
const LONGEST_CODE = 30;
/** A full binary tree with 257 leaves. */
const INNER_NODES = 256;
const ROOT = 0;
const MOST_PADDING_BITS = 7;

/** A transition is the next state in the lower 8 bits, a symbol in the next 8, and whether there is a symbol. */
const HAS_SYMBOL = 1 << 16;
const INVALID = -1;

interface Decoder {
  /** The children of node n at 2n and 2n + 1: another node, or the complement of a symbol. */
  readonly tree: Int16Array;
  /**
   * The transition of each state, 16 to a state: one for each value of the next four bits. 0: not computed yet, as most are
   * never used. Computed at the start, they would occupy V8's optimizing compiler, whose code takes 4 MiB of memory.
   */
  readonly transitions: Int32Array;
  /** The states in which a string may end: after no bit, or after the first bits of EOS. */
  readonly ends: ReadonlySet<number>;
}

let decoder: Decoder | undefined;

/** Decodes the bytes of a block from `start` to `end` into a string with one character, up to U+00FF, for each byte. */
function decodeHuffman(block: Buffer, start: number, end: number): string {
  decoder ??= newDecoder();
  const { tree, transitions, ends } = decoder;
  const decoded = Buffer.allocUnsafe(Math.floor(((end - start) * 8) / SHORTEST_CODE));
  let length = 0;
  let state = ROOT;
  for (let at = 2 * start; at < 2 * end; at++) {
    const byte = block[at >>> 1]!;
    const slot = 16 * state + (at & 1 ? byte & 0xf : byte >>> 4);
    const transition = (transitions[slot] ||= transitionOf(tree, state, slot & 0xf));
    if (transition === INVALID) throw new Http2Error("COMPRESSION_ERROR", "a Huffman string contains EOS");
    if (transition & HAS_SYMBOL) decoded[length++] = transition >>> 8;
    state = transition & 0xff;
  }
  if (ends.has(state)) return decoded.toString("latin1", 0, length);
  throw new Http2Error("COMPRESSION_ERROR", "a Huffman string ends with bad padding");
}

function newDecoder(): Decoder {
  const tree = codeTree();
  const ends = new Set([ROOT]);
  for (let bits = 1, node = ROOT; bits <= MOST_PADDING_BITS; bits++) {
    node = tree[2 * node + 1]!;
    ends.add(node);
  }
  return { tree, transitions: new Int32Array(INNER_NODES * 16), ends };
}

/** The code is canonical: at each depth of the tree, the symbols are to the left of the nodes, in their own order. */
function codeTree(): Int16Array {
  const tree = new Int16Array(2 * INNER_NODES);
  const symbols = symbolsByLength();
  let nodes = 1;
  let slots = [2 * ROOT, 2 * ROOT + 1];
  for (const atDepth of symbols) {
    const deeper: number[] = [];
    slots.forEach((slot, at) => {
      const symbol = atDepth[at];
      tree[slot] = symbol === undefined ? nodes : ~symbol;
      if (symbol === undefined) deeper.push(2 * nodes, 2 * nodes++ + 1);
    });
    slots = deeper;
  }
  return tree;
}

/** The symbols whose codes have 1 bit, 2 bits and so on. */
function symbolsByLength(): readonly (readonly number[])[] {
  const byLength = Array.from({ length: LONGEST_CODE }, (): number[] => []);
  HUFFMAN_LENGTHS.forEach((length, symbol) => byLength[length - 1]?.push(symbol));
  return byLength;
}

function transitionOf(tree: Int16Array, state: number, bits: number): number {
  let node = state;
  let symbol = 0;
  for (let bit = 3; bit >= 0; bit--) {
    const child = tree[2 * node + ((bits >>> bit) & 1)]!;
    if (child === ~EOS) return INVALID;
    if (child < 0) symbol = HAS_SYMBOL | (~child << 8);
    node = child < 0 ? ROOT : child;
  }
  return symbol | node;
}

/** After the prefix: enough for 2^28. RFC 7541 section 5.1 demands a limit. */
const MOST_INTEGER_BYTES = 4;
const HUFFMAN = 0x80;

/** Reads the integers and strings of a header block (RFC 7541 section 5). */
class BlockReader {
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

/**
 * Header compression (RFC 7541) without a dynamic table: the encoder adds nothing to that of the peer, and the peer may not
 * use ours, because the connection announces SETTINGS_HEADER_TABLE_SIZE 0 before its first request. So each block stands
 * alone.
 */

/** Headers with a secret. They are sent as literals that no intermediary may index (RFC 7541 section 7.1.3). */
const SENSITIVE = new Set(["authorization", "token"]);
/** RFC 9113 section 8.2.1. */
const NAME = /^:?[!#-&'*+.^-`|~0-9a-z-]+$/;
/** Metadata of gRPC is ASCII. A line end would start another header behind a proxy that translates to HTTP/1. */
const VALUE = /^[ -~]*$/;

// The patterns in the first byte of a representation (RFC 7541 section 6).
const INDEXED = 0x80;
const WITH_INDEXING = 0x40;
const SIZE_UPDATE = 0x20;
const NEVER_INDEXED = 0x10;
const WITHOUT_INDEXING = 0x00;

/** What a header counts for beside its name and its value (RFC 9113 section 6.5.2). */
const HEADER_OVERHEAD = 32;
/** What an integer may need: its prefix and four bytes more. */
const INTEGER_BYTES = 5;

const MOST_CACHED = 16;
const LARGEST_CACHED = 128;

/**
 * Begins the first header block of a connection: the dynamic table has size 0 from here on. A peer that lowers its limit demands
 * an update in the next block, unless the table is small enough already (RFC 7541 section 4.2, RFC 9113 section 4.3.1).
 */
export const NO_TABLE = Buffer.of(SIZE_UPDATE);

/** The size of a header list, as SETTINGS_MAX_HEADER_LIST_SIZE limits it. */
export const listBytesOf = (headers: readonly (readonly [name: string, value: string])[]): number =>
  headers.reduce((sum, [name, value]) => sum + name.length + value.length + HEADER_OVERHEAD, 0);

/** Encodes names in lower case and ASCII values, in that order, without Huffman code. */
export function encodeHeaders(headers: readonly (readonly [name: string, value: string])[]): Buffer {
  const size = headers.reduce(
    (sum, [name, value]) => sum + name.length + value.length + 3 * INTEGER_BYTES,
    0,
  );
  const block = Buffer.allocUnsafe(size);
  let at = 0;
  for (const [name, value] of headers) at = writeHeader(block, at, { name, value });
  return block.subarray(0, at);
}

interface Header {
  readonly name: string;
  readonly value: string;
}

function writeHeader(block: Buffer, start: number, { name, value }: Header): number {
  // The value may be a secret: the message does not show it.
  if (!NAME.test(name) || !VALUE.test(value))
    throw new TypeError(`the header ${JSON.stringify(name)} cannot be sent`);
  const isSensitive = SENSITIVE.has(name);
  const pairIndex = isSensitive ? undefined : indexOf(name, value);
  if (pairIndex !== undefined)
    return writeInteger(block, start, { pattern: INDEXED, bits: 7, value: pairIndex });
  const nameIndex = STATIC_NAMES.get(name) ?? 0;
  const pattern = isSensitive ? NEVER_INDEXED : WITHOUT_INDEXING;
  let at = writeInteger(block, start, { pattern, bits: 4, value: nameIndex });
  if (nameIndex === 0) at = writeText(block, at, name);
  return writeText(block, at, value);
}

/** The index in the static table of a header with that name and that value. */
function indexOf(name: string, value: string): number | undefined {
  for (let index = STATIC_NAMES.get(name) ?? Infinity; index <= STATIC_TABLE.length; index++) {
    const [ofName, ofValue] = STATIC_TABLE[index - 1]!;
    if (ofName !== name) return undefined;
    if (ofValue === value) return index;
  }
  return undefined;
}

function writeText(block: Buffer, start: number, text: string): number {
  const at = writeInteger(block, start, { pattern: 0, bits: 7, value: text.length });
  return at + block.write(text, at, "latin1");
}

interface PrefixedInteger {
  readonly pattern: number;
  readonly bits: number;
  readonly value: number;
}

/** RFC 7541 section 5.1. */
function writeInteger(block: Buffer, start: number, { pattern, bits, value }: PrefixedInteger): number {
  const most = (1 << bits) - 1;
  block[start] = pattern | Math.min(value, most);
  if (value < most) return start + 1;
  let at = start + 1;
  let rest = value - most;
  for (; rest >= 0x80; rest >>>= 7) block[at++] = (rest & 0x7f) | 0x80;
  block[at++] = rest;
  return at;
}

/** Decodes header blocks whose encoder has no dynamic table: any use of it is a COMPRESSION_ERROR. */
export class HeaderDecoder {
  /** Small blocks by their bytes: etcd answers every call with the same headers and the same trailers. */
  readonly #cache = new Map<string, ReadonlyMap<string, string>>();

  /** @param maxListBytes the greatest header list: our SETTINGS_MAX_HEADER_LIST_SIZE */
  constructor(private readonly maxListBytes: number) {}

  /** The headers of a whole block. The values of a repeated header are joined. Equal blocks may share one map. */
  decode(block: Buffer): ReadonlyMap<string, string> {
    if (block.length > LARGEST_CACHED) return this.#decode(block);
    const key = block.toString("latin1");
    const known = this.#cache.get(key);
    if (known) return known;
    const headers = this.#decode(block);
    if (this.#cache.size === MOST_CACHED) this.#cache.clear();
    this.#cache.set(key, headers);
    return headers;
  }

  #decode(block: Buffer): ReadonlyMap<string, string> {
    const headers = new Map<string, string>();
    const reader = new BlockReader(block);
    readSizeUpdates(reader);
    let bytes = 0;
    while (!reader.atEnd) {
      const [name, value] = readHeader(reader);
      bytes += name.length + value.length + HEADER_OVERHEAD;
      if (bytes > this.maxListBytes) {
        throw new Http2Error(
          "ENHANCE_YOUR_CALM",
          `the peer sent more than ${this.maxListBytes} bytes of headers`,
        );
      }
      const before = headers.get(name);
      headers.set(name, before === undefined ? value : `${before}, ${value}`);
    }
    return headers;
  }
}

/** A block may start with updates of the size of the dynamic table, which stays 0 (RFC 7541 sections 4.2 and 6.3). */
function readSizeUpdates(reader: BlockReader): void {
  while (!reader.atEnd && isSizeUpdate(reader.peek())) {
    if (reader.integer(5) !== 0) {
      throw new Http2Error("COMPRESSION_ERROR", "the peer uses a dynamic table, which it may not");
    }
  }
}

const isSizeUpdate = (byte: number) => byte >= SIZE_UPDATE && byte < WITH_INDEXING;

function readHeader(reader: BlockReader): readonly [name: string, value: string] {
  const byte = reader.peek();
  if (byte >= INDEXED) return staticHeader(reader.integer(7));
  if (isSizeUpdate(byte)) {
    throw new Http2Error("COMPRESSION_ERROR", "a table size update is not at the start of its block");
  }
  // A header to be indexed is one like others: a table of size 0 evicts it at once (RFC 7541 section 4.4).
  const nameIndex = reader.integer(byte >= WITH_INDEXING ? 6 : 4);
  const name = nameIndex === 0 ? reader.text() : staticHeader(nameIndex)[0];
  return [name, reader.text()];
}

function staticHeader(index: number): readonly [name: string, value: string] {
  const header = STATIC_TABLE[index - 1];
  if (header) return header;
  throw new Http2Error("COMPRESSION_ERROR", `the static table has no header with index ${index}`);
}
