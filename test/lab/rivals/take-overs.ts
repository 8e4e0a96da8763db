// When others are granted a lock whose holder is dead, blocked, or does nothing.
import { markdownTable } from "../../support/fixtures/markdown.js";
import type { Played } from "./play.js";
import { bookOf } from "./rules/book.js";
import { toMs } from "./rules/rule.js";
import { TTL_MS } from "./stage.js";
import { duration } from "./table.js";

/** Milliseconds from each fault that was measured to the next grant; undefined: there was none while the fault lasted. */
function takeOversOf({ lines, subject, scenario }: Played): (number | undefined)[] {
  const { troubles, holds } = bookOf(lines, { ttlMs: TTL_MS, queues: subject.queues });
  return troubles
    .filter(({ fault }) => fault === scenario.measured?.fault)
    .map(({ from, to, hits }) => {
      const after = holds.flatMap(({ p, granted }) =>
        granted > from && granted < to && !hits.includes(p) ? [toMs(granted - from)] : [],
      );
      return after.length > 0 ? Math.min(...after) : undefined;
    });
}

/** Markdown: a row for each subject; empty if no scenario was measured. */
export function takeOverTable(played: readonly Played[], subjects: readonly string[]): string {
  const measured = played.filter(({ scenario }) => scenario.measured !== undefined);
  const holders = [...new Set(measured.map(({ scenario }) => scenario.measured?.holder ?? ""))];
  const rows = subjects.map((title) => [
    title,
    ...holders.map((holder) =>
      cellOf(
        measured
          .filter(({ subject, scenario }) => subject.title === title && scenario.measured?.holder === holder)
          .flatMap(takeOversOf),
      ),
    ),
  ]);
  return holders.length === 0 ? "" : markdownTable([["the holder is", ...holders], ...rows]).join("\n");
}

function cellOf(takeOvers: readonly (number | undefined)[]): string {
  const found = takeOvers.filter((ms) => ms !== undefined);
  if (takeOvers.length === 0) return "–";
  if (found.length === 0) return `kept (${takeOvers.length})`;
  const span = `${duration(Math.min(...found))} to ${duration(Math.max(...found))}`;
  return `taken over ${found.length} of ${takeOvers.length}, after ${span}`;
}
