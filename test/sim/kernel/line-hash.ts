/** A hash of lines, 64 bits: two lanes of FNV-1a with different offsets, mixed at the end as Murmur3 does. */
export class LineHash {
  #low = 0x811c_9dc5 | 0;
  #high = 0x9e37_79b9 | 0;

  add(line: string): void {
    this.addPart(line);
    this.endLine();
  }

  /** A part of the present line. */
  addPart(text: string): void {
    let low = this.#low;
    let high = this.#high;
    for (let n = 0; n < text.length; n++) {
      const code = text.charCodeAt(n);
      low = Math.imul(low ^ code, 0x0100_0193);
      high = Math.imul(high ^ code, 0x85eb_ca6b) ^ (high >>> 15);
    }
    this.#low = low;
    this.#high = high;
  }

  endLine(): void {
    this.#low = Math.imul(this.#low ^ 10, 0x0100_0193);
    this.#high = Math.imul(this.#high ^ 10, 0x85eb_ca6b);
  }

  /** 16 hexadecimal digits. */
  get text(): string {
    return hex(this.#low) + hex(this.#high);
  }
}

function hex(lane: number): string {
  let h = Math.imul(lane ^ (lane >>> 16), 0x85eb_ca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2_ae35);
  return ((h ^ (h >>> 16)) >>> 0).toString(16).padStart(8, "0");
}
