import { BlockReader } from "./block-reader.js";
import { STATIC_NAMES, STATIC_TABLE } from "./hpack-tables.js";
import { Http2Error } from "./http2-error.js";

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
