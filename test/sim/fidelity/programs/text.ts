import type { Key, PlannedRange, Revision, Step } from "./program.js";

/** Steps as a reader sees them, one line each. */

export const textOfKey = (key: Key): string =>
  typeof key === "string" ? JSON.stringify(key) : `hex:${key.toString("hex")}`;

function textOfRevision(revision: Revision): string {
  if (revision.at === "exactly") return String(revision.revision);
  const plus = revision.plus === 0 ? "" : revision.plus > 0 ? `+${revision.plus}` : String(revision.plus);
  return "key" in revision ? `${revision.at}(${textOfKey(revision.key)})${plus}` : `${revision.at}${plus}`;
}

function textOfRange({ key, end, ...rest }: PlannedRange): string {
  const parts = Object.entries(rest)
    .filter(([name, value]) => name !== "kind" && value !== undefined)
    .map(([name, value]) => `${name}=${typeof value === "object" ? textOfRevision(value) : String(value)}`);
  return [textOfKey(key), ...(end === undefined ? [] : [`end=${textOfKey(end)}`]), ...parts].join(" ");
}

/** The fields of anything, with keys and revisions in short. */
function fields(value: object): string {
  return Object.entries(value)
    .filter(([name]) => name !== "kind")
    .map(([name, field]) => `${name}=${textOfField(field)}`)
    .join(" ");
}

function textOfField(field: unknown): string {
  if (Buffer.isBuffer(field)) return textOfKey(field);
  if (typeof field === "object" && field !== null) return textOfRevision(field as Revision);
  return typeof field === "string" ? JSON.stringify(field) : String(field);
}

const list = (items: readonly { readonly kind: string }[]): string =>
  items
    .map((item) =>
      item.kind === "range" ? `range ${textOfRange(item as never)}` : `${item.kind} ${fields(item)}`,
    )
    .join("; ");

export function textOfStep(step: Step): string {
  switch (step.kind) {
    case "txns":
      return `txn ${step.txns
        .map((txn) => `if (${list(txn.compare)}) { ${list(txn.success)} } else { ${list(txn.failure)} }`)
        .join(" AND ")}`;
    case "range":
      return `range ${textOfRange(step.range)}`;
    case "watch":
      return `watch ${fields(step.watch)}`;
    case "grant":
    case "revoke":
    case "timeToLive":
    case "renew":
    case "cancel":
    case "probe":
    case "compact":
    case "elapse":
      return `${step.kind} ${fields(step)}`.trim();
  }
}
