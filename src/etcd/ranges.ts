import {
  type CallOptions,
  type Header,
  type Member,
  type Range,
  type RangeAnswer,
  UnansweredError,
} from "./port.js";

/** Several ranges of one state, in the order of the request. */
export interface RangesAnswer {
  readonly header: Header;
  readonly ranges: readonly Omit<RangeAnswer, "header">[];
}

/** Reads `ranges` in one request. */
export async function readRanges(
  member: Member,
  ranges: readonly Range[],
  options: CallOptions,
): Promise<RangesAnswer> {
  const [only] = ranges;
  if (only && ranges.length === 1) {
    const { header, ...range } = await member.range(only, options);
    return { header, ranges: [range] };
  }
  const success = ranges.map((range) => ({ kind: "range", ...range }) as const);
  const [answer] = await member.txns([{ queues: [], compare: [], success, failure: [] }], options);
  const read = answer?.ranges.filter((range) => range !== undefined);
  if (!answer || read?.length !== ranges.length) throw new UnansweredError("malformed response");
  return { header: answer.header, ranges: read };
}
