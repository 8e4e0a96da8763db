// Renders the verdicts of all runs as a table; pure functions.
import { markdownTable } from "../../support/fixtures/markdown.js";
import type { Finding, Violation } from "./rules/rule.js";
import type { Label } from "./rules/rules.js";

/** The verdict on one subject in one scenario. */
export interface Entry {
  readonly subject: string;
  readonly scenario: string;
  readonly findings: Readonly<Partial<Record<Label, Finding>>>;
}

export const MEANINGS: Readonly<Record<Label, { readonly short: string; readonly long: string }>> = {
  I1: { short: "exclusion", long: "two clients never claim one lock at the same time; how long they did" },
  I3: { short: "tokens", long: "there is a fencing token, and it rises with each grant" },
  I4: {
    short: "stale write",
    long: "no write is accepted from a hold once a later hold has used the resource",
  },
  I5: { short: "lost update", long: "no accepted write covers one that its writer has not read" },
  I6: { short: "order", long: "who asked first is served first, where nothing is broken" },
  I7: {
    short: "progress",
    long: "a free lock finds a new holder in 2 TTL + 5 s while somebody asks for it whom no fault hits, and no acquire ends with an error that nothing hindered",
  },
  I8: { short: "leftovers", long: "no key is left when nobody wants the lock any more, nor after close" },
  I9: {
    short: "loss told",
    long: "who has lost the lock no longer claims it when the next one holds; how late it was told, not counting the time in which the process was stopped",
  },
  I10: { short: "one end", long: "a hold ends once, and no release ends another's hold" },
  I11: { short: "false loss", long: "no loss is told, and no time limit said to be over, for no reason" },
  crash: { short: "crash", long: "the process does not end by itself, and close ends" },
};
export const LABELS = Object.keys(MEANINGS) as readonly Label[];

/**
 * `violated 3, 4.1 s`, `kept, 120`, `no token`: the cell of one subject over all scenarios; undefined = nothing was
 * judged.
 */
export function cell(entries: readonly Entry[], label: Label): string | undefined {
  const findings = entries.flatMap(({ findings: of }) => of[label] ?? []);
  const checks = findings.reduce((sum, it) => sum + it.checks, 0);
  const violations = findings.flatMap((it) => it.violations);
  // What one scenario cannot show, such as a token where no client was granted, another can.
  const lacks = findings.length > 0 && findings.every((it) => it.lacks !== undefined) && findings[0]?.lacks;
  if (lacks) return violations.length > 0 ? `${lacks} (${violations.length} of ${checks})` : lacks;
  if (violations.length > 0) return `**violated** ${violations.length}${worst(violations)}`;
  return checks > 0 ? `kept (${checks})` : undefined;
}

function worst(violations: readonly Violation[]): string {
  const lengths = violations.flatMap(({ ms }) => ms ?? []);
  return lengths.length > 0 ? `, ${duration(Math.max(...lengths))}` : "";
}

export function duration(ms: number): string {
  if (ms < 1) return "under 1 ms";
  return ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`;
}

/** Markdown, with columns of equal width. */
export function tableOf(entries: readonly Entry[], subjects: readonly string[]): string[] {
  const head = [
    "",
    ...LABELS.map((label) => `${MEANINGS[label].short}${/^I/.test(label) ? ` ${label}` : ""}`),
  ];
  const rows = subjects.map((subject) => {
    const mine = entries.filter((entry) => entry.subject === subject);
    return [subject, ...LABELS.map((label) => cell(mine, label) ?? "–")];
  });
  return markdownTable([head, ...rows]);
}

/** What was violated, by scenario: one line per column, each sentence once. */
export function detailsOf(entries: readonly Entry[], subject: string): string[] {
  const mine = entries.filter((entry) => entry.subject === subject);
  return mine.flatMap(({ scenario, findings }) =>
    LABELS.flatMap((label) => {
      const { violations = [], lacks } = findings[label] ?? {};
      if (violations.length === 0 || lacks !== undefined) return [];
      const texts = [...new Set(violations.map(({ text }) => text))].join("; ");
      return [`${scenario}, ${MEANINGS[label].short} ${label}: ${texts}${worst(violations)}`];
    }),
  );
}
