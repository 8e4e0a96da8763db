import { printable } from "../../printable.js";
import { width } from "../command-line/io.js";

/** Characters of no width of their own can follow each other without end. */
const UNITS_PER_COLUMN = 4;

/** The text in exactly `columns` columns: escaped, and cut or padded. It comes from other clients. */
export function fit(text: string, columns: number, side: "left" | "right" = "left"): string {
  const cell = cut(text, columns);
  const space = " ".repeat(Math.max(0, columns - width(cell)));
  return side === "left" ? cell + space : space + cell;
}

/** At most so many columns; a longer text ends with "…". */
export function cut(text: string, columns: number): string {
  const maxUnits = columns * UNITS_PER_COLUMN + 2;
  // A variation selector changes the width of the character before it, by a rule of each terminal's own.
  const safe = printable(text, maxUnits)
    .replace(/\p{Variation_Selector}/gu, "")
    .normalize("NFC");
  if (width(safe) <= columns) return safe;
  let kept = "";
  for (const char of safe) {
    if (width(kept + char) > columns - 1) break;
    kept += char;
  }
  return columns > 0 ? `${kept}…` : "";
}
