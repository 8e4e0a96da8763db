/** 2^-32: maps 32 random bits to [0, 1). */
const SCALE = 1 / 0x1_0000_0000;

/**
 * Pseudo-random numbers (sfc32, Chris Doty-Humphrey, PractRand), seeded by text. Only integer arithmetic: `Math.log` and the like may
 * differ between versions of V8.
 */
export class Random {
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;

  constructor(private readonly seed: string) {
    [this.#a, this.#b, this.#c] = stateOf(seed);
    for (let n = 0; n < 12; n++) this.#bits();
  }

  /** Depends on the seed and the label alone: a draw from one of them changes no other. */
  fork(label: string): Random {
    return new Random(`${this.seed}/${label}`);
  }

  /** In [0, 1), in steps of 2^-32. */
  next(): number {
    return this.#bits() * SCALE;
  }

  /** An integer in [0, below). */
  int(below: number): number {
    return Math.floor(this.next() * below);
  }

  /** In [least, most). */
  between(least: number, most: number): number {
    return least + this.next() * (most - least);
  }

  /** True with probability `p`. Draws once, for 0 and 1 too. */
  chance(p: number): boolean {
    return this.next() < p;
  }

  /** @throws {RangeError} for an empty list. */
  pick<T>(of: readonly T[]): T {
    if (of.length === 0) throw new RangeError("pick() from an empty list");
    return of[this.int(of.length)]!;
  }

  /** 63 bits, never 0. */
  id(): bigint {
    const id = (BigInt(this.#bits() & 0x7fff_ffff) << 32n) | BigInt(this.#bits());
    return id === 0n ? 1n : id;
  }

  /** 32 bits, as an unsigned integer. */
  #bits(): number {
    const sum = (this.#a + this.#b + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + sum) | 0;
    return sum >>> 0;
  }
}

/** Three different 32-bit hashes of the text (FNV-1a with three offsets, and Murmur3's finalizer). */
function stateOf(seed: string): [number, number, number] {
  let [a, b, c] = [0x811c_9dc5 | 0, 0x9e37_79b9 | 0, 0x85eb_ca77 | 0];
  for (let n = 0; n < seed.length; n++) {
    const code = seed.charCodeAt(n);
    a = Math.imul(a ^ code, 0x0100_0193);
    b = Math.imul(b ^ code, 0x0100_0193);
    c = Math.imul(c ^ code, 0x0100_0193);
  }
  return [mixed(a), mixed(b), mixed(c)];
}

function mixed(state: number): number {
  let h = Math.imul(state ^ (state >>> 16), 0x85eb_ca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2_ae35);
  return h ^ (h >>> 16);
}

/** The items in a random order, where etcd has none: it iterates over a Go map, or runs several goroutines. */
export function shuffled<Item>(items: readonly Item[], random: Random): Item[] {
  const result = [...items];
  for (let i = result.length - 1; i > 0; i--) {
    const other = random.int(i + 1);
    [result[i], result[other]] = [result[other]!, result[i]!];
  }
  return result;
}
