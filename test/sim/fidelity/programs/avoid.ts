import type { Program, Step } from "./program.js";

/** What a comparison of two versions may leave out, because the versions are known to differ there. */
export const AVOIDABLE = [
  "keysOnly",
  "negative watches",
  "revisions in txns",
  "future watches",
  "past watches",
  "probes",
  "empty ends",
] as const;
export type Avoidable = (typeof AVOIDABLE)[number];

const RANGE_FIELDS: Partial<Record<Avoidable, string>> = {
  keysOnly: "keysOnly",
  "revisions in txns": "revision",
  "empty ends": "end",
};

function startsAt(step: Step): number | bigint | undefined {
  if (step.kind !== "watch") return undefined;
  const { startRevision } = step.watch;
  return startRevision.at === "exactly" ? startRevision.revision : undefined;
}

/** The same program without it. */
export function without(program: Program, avoided: ReadonlySet<Avoidable>): Program {
  return program
    .filter((step) => !(step.kind === "probe" && avoided.has("probes")))
    .filter((step) => !(step.kind === "watch" && startsAt(step) !== 0n && avoided.has("past watches")))
    .filter((step) => !((startsAt(step) ?? 0) < 0 && avoided.has("negative watches")))
    .map((step) => {
      const fields = Object.entries(RANGE_FIELDS)
        .filter(([name]) => avoided.has(name as Avoidable))
        .map(([, field]) => field)
        .filter((field) => step.kind === "txns" || field !== "revision");
      return fields.length === 0 ? step : (omit(step, new Set(fields)) as Step);
    });
}

function omit(value: unknown, names: ReadonlySet<string>): unknown {
  if (typeof value !== "object" || value === null || Buffer.isBuffer(value)) return value;
  if (Array.isArray(value)) return value.map((item) => omit(item, names));
  if (Object.hasOwn(value, "at")) return value;
  // Compares have revisions too.
  const isOther = "kind" in value && value.kind !== "range" && value.kind !== "txns";
  const isDropped = (name: string, field: unknown): boolean =>
    names.has(name) && !isOther && (name !== "end" || field === "");
  const kept = Object.entries(value).filter(([name, field]) => !isDropped(name, field));
  return Object.fromEntries(kept.map(([name, field]) => [name, omit(field, names)]));
}
