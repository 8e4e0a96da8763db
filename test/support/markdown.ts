/** A table with columns of equal width, as prettier leaves it. */
export function markdownTable(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, n) => Math.max(3, ...rows.map((row) => row[n]?.length ?? 0)));
  const line = (row: readonly string[]) => `| ${row.map((it, n) => it.padEnd(widths[n] ?? 0)).join(" | ")} |`;
  const rule = `| ${widths.map((width) => "-".repeat(width)).join(" | ")} |`;
  const [head = [], ...rest] = rows;
  return [line(head), rule, ...rest.map(line)];
}

/** The text with other lines between `<!-- name -->` and `<!-- /name -->`, which it must have once each. */
export function between(text: string, name: string, lines: readonly string[]): string {
  const [open, close] = [`<!-- ${name} -->`, `<!-- /${name} -->`];
  const [before, rest, ...more] = text.split(open);
  const [, after, ...evenMore] = rest?.split(close) ?? [];
  if (before === undefined || after === undefined || more.length > 0 || evenMore.length > 0)
    throw new RangeError(`Expected one ${open} and one ${close} behind it`);
  return `${before}${open}\n\n${lines.join("\n")}\n\n${close}${after}`;
}
