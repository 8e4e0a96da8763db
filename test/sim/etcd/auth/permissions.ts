import { contains, type Interval } from "../bytes.js";

export type Access = "read" | "write";

/** The right of a role to a range of keys. */
export interface Permission {
  readonly type: Access | "readwrite";
  /** An end of "" means everything from the key on. */
  readonly range: Interval;
}

/** A range with an end. */
interface Span {
  readonly key: string;
  readonly end: string;
}

/** The ranges that the roles of a user add up to (auth/range_perm_cache.go). */
export class Permissions {
  readonly #read: readonly Span[];
  readonly #write: readonly Span[];

  constructor(all: readonly Permission[]) {
    this.#read = all.filter(({ type }) => type !== "write").map(spanOf);
    this.#write = all.filter(({ type }) => type !== "read").map(spanOf);
    for (const spans of [this.#read, this.#write] as Span[][]) spans.sort((a, b) => (a.key < b.key ? -1 : 1));
  }

  allows(access: Access, range: Interval): boolean {
    const spans = access === "read" ? this.#read : this.#write;
    if (range.end === undefined) return spans.some((span) => contains(span, range.key));
    return covers(spans, { key: range.key, end: range.end });
  }
}

const spanOf = ({ range: { key, end } }: Permission): Span => ({ key, end: end ?? `${key}\0` });

/** Whether a key lies before an end. */
const isBefore = (key: string, end: string): boolean => end === "" || key < end;
const isEndBefore = (a: string, b: string): boolean => a !== "" && (b === "" || a < b);

/** Ranges that adjoin cover a range together (Contains in pkg/adt/interval_tree.go). `spans` are sorted by key. */
function covers(spans: readonly Span[], { key, end }: Span): boolean {
  let reached: string | undefined;
  for (const span of spans) {
    if (!isBefore(span.key, end) || !isBefore(key, span.end)) continue;
    if (reached === undefined) {
      if (span.key > key) return false;
      reached = span.end;
    } else if (reached !== "" && reached < span.key) break;
    else if (isEndBefore(reached, span.end)) reached = span.end;
  }
  return reached !== undefined && !isEndBefore(reached, end);
}
