import type { Line } from "./layout.js";

const ESC = "\u001b";
const STYLES: Readonly<Record<NonNullable<Line["style"]>, string>> = {
  bold: `${ESC}[1m`,
  dim: `${ESC}[2m`,
  inverse: `${ESC}[7m`,
  alert: `${ESC}[1;37;41m`,
};

/** The alternate screen, without cursor. A line that is too wide after all is cut, because lines do not wrap. */
export const ENTER_SCREEN = `${ESC}[?1049h${ESC}[?25l${ESC}[?7l${ESC}[2J`;
export const LEAVE_SCREEN = `${ESC}[0m${ESC}[?7h${ESC}[?25h${ESC}[?1049l`;

/** Knows what is on the screen, and writes only the lines that differ. */
export class Painter {
  #lines: readonly string[] = [];

  /** The next picture is written as a whole. */
  clear(): void {
    this.#lines = [];
  }

  /** What to write; empty if nothing has changed. */
  paint(lines: readonly Line[]): string {
    const painted = lines.map(({ text, style }) => (style ? `${STYLES[style]}${text}${ESC}[0m` : text));
    const changes = painted.flatMap((line, n) =>
      // A style would fill the rest of the line where the terminal erases with it.
      line === this.#lines[n] ? [] : `${ESC}[${n + 1};1H${ESC}[0m${line}${ESC}[K`,
    );
    const rest = this.#lines.length === 0 && painted.length > 0 ? `${ESC}[2J` : "";
    this.#lines = painted;
    return changes.length === 0 ? "" : rest + changes.join("");
  }
}
