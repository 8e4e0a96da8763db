import { printable } from "../../printable.js";
import type { FindingJson } from "../command-line/json-types.js";

/** `skip`: it could not be checked. */
export type Mark = FindingJson["mark"];

/** What was measured. */
export type Measured = NonNullable<FindingJson["measured"]>;

/** The outcome of one check. */
export interface Finding {
  readonly check: string;
  readonly mark: Mark;
  /** One line that is safe to print: texts of servers are excerpts. */
  readonly detail: string;
  /** What to do, one line. */
  readonly cure?: string;
  readonly measured?: Measured;
}

export const ok = (check: string, detail: string, measured?: Measured): Finding => ({
  ...{ check, mark: "ok", detail },
  ...(measured && { measured: rounded(measured) }),
});

/** To a tenth: clocks have more digits than they know. */
export const rounded = (measured: Measured): Measured =>
  Object.fromEntries(
    Object.entries(measured).map(([name, value]) => [
      name,
      typeof value === "number" ? Math.round(value * 10) / 10 : value,
    ]),
  );

export const warn = (check: string, detail: string, cure: string): Finding => ({
  ...{ check, mark: "warn", detail, cure },
});

export const fail = (check: string, detail: string, cure: string): Finding => ({
  ...{ check, mark: "fail", detail, cure },
});

export const skip = (check: string, detail: string): Finding => ({ check, mark: "skip", detail });

/** What a server has sent, short and without control characters. */
export const excerpt = (text: string, length = 80): string => printable(text.trim(), length);
