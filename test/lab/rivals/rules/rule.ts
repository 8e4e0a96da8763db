import type { Book } from "./book.js";

export interface Violation {
  readonly text: string;
  /** The duration of the violation, if it has one. */
  readonly ms?: number;
}
export interface Finding {
  /** How many cases were judged. */
  readonly checks: number;
  readonly violations: readonly Violation[];
  /** What the subject does not have or promise, so that it cannot violate the rule. */
  readonly lacks?: string;
}
export type Rule = (book: Book) => Finding;

export const toMs = (ns: bigint) => Math.round(Number(ns) / 1e6);
