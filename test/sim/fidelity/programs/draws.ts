import type { Random } from "../../../lab/runner/random.js";
import type { Key, Revision } from "./program.js";

/** What programs are made of. The sets are small, so that the steps of a program meet at the same keys and leases. */

export const TEXT_KEYS: readonly string[] = ["a/1", "a/2", "a/3", "a/\u00e9", "b/1", "b", "a"];
/** Bytes that are not text: one of them is a part of the other. */
const BYTE_KEYS: readonly Buffer[] = [Buffer.from([0x61, 0x2f, 0xff]), Buffer.from([0x61, 0x2f, 0xff, 0x00])];
export const VALUES: readonly string[] = ["", "v", "w", "long ".repeat(20)];
/** The last one is the largest that is possible. */
export const LEASES: readonly bigint[] = [11n, 12n, 13n, 0x7fff_ffff_ffff_ffffn];

export function weighted<T>(random: Random, choices: readonly (readonly [weight: number, choice: T])[]): T {
  let left = random.next() * choices.reduce((sum, [weight]) => sum + weight, 0);
  for (const [weight, choice] of choices) if ((left -= weight) < 0) return choice;
  return choices[choices.length - 1]![1];
}

/** Puts take only text. Some of the keys above are no text, so that deletes and ranges ask for what is not there. */
export const textKeyOf = (random: Random): string =>
  random.chance(0.005) ? "" : random.pick(random.chance(0.7) ? TEXT_KEYS.slice(0, 4) : TEXT_KEYS);

export const keyOf = (random: Random): Key =>
  random.chance(0.1) ? random.pick(BYTE_KEYS) : textKeyOf(random);

export const leaseOf = (random: Random): bigint =>
  random.pick(random.chance(0.8) ? LEASES.slice(0, 2) : LEASES);

/** A revision that ranges and filters name: mostly one of the program's own. */
export const revisionNear = (random: Random): Revision =>
  weighted<Revision>(random, [
    [4, { at: "now", plus: -random.between(0, 10) }],
    [3, { at: "created", key: keyOf(random), plus: random.between(-1, 1) }],
    [2, { at: "modified", key: keyOf(random), plus: 0 }],
    [1, { at: "compacted", plus: random.between(-1, 1) }],
    [1, { at: "now", plus: random.between(1, 3) }],
    [1, { at: "exactly", revision: random.pick([0n, 0n, -1n, 1n, 0x7fff_ffff_ffff_ffffn]) }],
  ]);
