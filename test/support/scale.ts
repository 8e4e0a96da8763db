/**
 * Set where the crowds are as large as the figures that the documents promise, as in one part of `.ci/run`. Otherwise the
 * same rules are tested with a small crowd: what a large one adds is minutes.
 */
const LARGE = process.env["LEASEHOLD_CROWDS"] === "large";

/** The size of a crowd: `large` only where large ones are asked for. */
export const crowdOf = (large: number, small: number): number => (LARGE ? large : small);
