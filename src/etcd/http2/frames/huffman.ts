import { HUFFMAN_LENGTHS } from "./hpack-tables.js";
import { Http2Error } from "./http2-error.js";

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
export function decodeHuffman(block: Buffer, start: number, end: number): string {
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
