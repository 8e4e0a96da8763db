import type { Outcome, Program } from "./programs/program.js";
import type { Transcript } from "./running/run.js";
import { textOfStep } from "./programs/text.js";

export interface Difference {
  readonly outcome: Outcome;
  readonly left: string;
  readonly right: string;
}

/** How far apart the answers for the rest of a lease's time may be: whole seconds, and the time between the two questions. */
const SECONDS = 2;

/** The first difference, in the order of the program; the events of watches come last. */
export function compare(left: Transcript, right: Transcript): Difference | undefined {
  const count = Math.max(left.outcomes.length, right.outcomes.length);
  for (let n = 0; n < count; n++) {
    const [one, other] = [left.outcomes[n], right.outcomes[n]];
    if (!one || !other || !equal(one, other))
      return { outcome: (one ?? other)!, left: textOf(one), right: textOf(other) };
  }
  return undefined;
}

const textOf = (outcome: Outcome | undefined): string =>
  outcome ? outcome.text + (outcome.seconds === undefined ? "" : ` ttl=${outcome.seconds}`) : "nothing";

function equal(one: Outcome, other: Outcome): boolean {
  if (one.step !== other.step || one.text !== other.text) return false;
  const seconds = (one.seconds ?? 0) - (other.seconds ?? 0);
  return Math.abs(seconds) <= SECONDS;
}

/** Only the lines in which two texts differ. */
function differing(text: string, other: string): string {
  const others = new Set(other.split("\n"));
  const lines = text.split("\n").filter((line) => !others.has(line));
  return lines.length === 0 ? text : lines.join("\n      ");
}

/** The program up to the difference, and both answers. */
export function report(program: Program, difference: Difference, names: readonly [string, string]): string {
  const { outcome, left, right } = difference;
  const lines = program.map(
    (step, index) => `${index === outcome.step ? "=>" : "  "} ${index}. ${textOfStep(step)}`,
  );
  return [
    ...lines,
    `   ${names[0]}: ${differing(left, right)}`,
    `   ${names[1]}: ${differing(right, left)}`,
  ].join("\n");
}
