import { json, type Output } from "../command-line/io.js";
import type { FindingJson, SummaryJson } from "../command-line/json-types.js";
import type { Finding, Mark } from "./finding.js";

/** The findings about one endpoint, or about the cluster. */
export interface Section {
  /** undefined: the cluster. */
  readonly endpoint: string | undefined;
  readonly findings: readonly Finding[];
}

/** Removes texts that no output may contain. */
export type Redact = (text: string) => string;

export const redacting =
  (secrets: ReadonlySet<string>): Redact =>
  (text) =>
    [...secrets].reduce((all, secret) => all.replaceAll(secret, "***"), text);

export const countOf = (sections: readonly Section[], mark: Mark): number =>
  sections.flatMap(({ findings }) => findings).filter((finding) => finding.mark === mark).length;

export function writeText(stdout: Output, sections: readonly Section[], redact: Redact): void {
  for (const { endpoint, findings } of sections) {
    stdout.write(`${endpoint ?? "the cluster"}\n`);
    for (const { mark, check, detail, cure } of findings) {
      stdout.write(`  ${mark.padEnd(4)}  ${check}: ${redact(detail)}\n`);
      if (cure !== undefined) stdout.write(`        to do: ${redact(cure)}\n`);
    }
  }
  stdout.write(`${counts(sections)}\n`);
}

const counts = (sections: readonly Section[]): string => {
  const [failed, warned, skipped] = (["fail", "warn", "skip"] as const).map((mark) =>
    countOf(sections, mark),
  );
  return `${failed} failed, ${warned} ${warned === 1 ? "warning" : "warnings"}, ${skipped} not checked`;
};

/** One object for each finding, and one for all. */
export function writeJson(stdout: Output, sections: readonly Section[], redact: Redact): void {
  for (const { endpoint, findings } of sections)
    for (const { check, mark, detail, cure, measured } of findings)
      stdout.write(
        json({
          ...{ endpoint: endpoint ?? null, check, mark, message: redact(detail) },
          ...(cure !== undefined && { cure: redact(cure) }),
          ...(measured && { measured }),
        } satisfies FindingJson),
      );
  const summary = {
    ok: countOf(sections, "ok"),
    warn: countOf(sections, "warn"),
    fail: countOf(sections, "fail"),
  };
  stdout.write(json({ summary: { ...summary, skip: countOf(sections, "skip") } } satisfies SummaryJson));
}
