import { troubled, NS_PER_MS, type Book } from "./book.js";

/**
 * The longest time in milliseconds in which the machine did not run a process that was in use. A client that renews in
 * time may be late then: such a run says nothing about the subject.
 */
export function longestStall(book: Book): number {
  const stalls = book.lines.flatMap((line) => {
    if (line.k !== "stall" || !inUse(book, line.p, line.t)) return [];
    const span = { from: line.t - BigInt(line.ms) * NS_PER_MS, to: line.t };
    return troubled(book, line.p, span, ["stops"]) ? [] : [line.ms];
  });
  return Math.max(0, ...stalls);
}

/** A process that is starting is slow, and has nothing to lose yet. */
const inUse = ({ holds }: Book, p: string, at: bigint) =>
  p === STAGE || holds.some(({ p: of, granted }) => of === p && granted < at);

/** The name under which the process that drives the clients writes its lines. */
export const STAGE = "stage";
