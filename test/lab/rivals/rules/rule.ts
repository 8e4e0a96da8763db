import type { Book } from "./book.js";

export interface Violation {
  readonly text: string;
  /** How long, where it has a length. */
  readonly ms?: number;
}
export interface Finding {
  /** How many there were to be judged. */
  readonly checks: number;
  readonly violations: readonly Violation[];
  /** What the subject does not have or promise, so that it cannot break it. */
  readonly lacks?: string;
}
export type Rule = (book: Book) => Finding;

export const toMs = (ns: bigint) => Math.round(Number(ns) / 1e6);
