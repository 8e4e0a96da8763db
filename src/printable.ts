/** More of a text that somebody else wrote says nothing more about an error. */
const MAX_LENGTH = 200;
/**
 * Control and format characters (bidirectional overrides among them), separators of lines and paragraphs, and surrogates
 * without their other half: what ends a line, colors a terminal, or changes the order of what stands beside it.
 */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

const escape = (char: string): string => {
  const digits = (char.codePointAt(0) ?? 0).toString(16);
  return digits.length > 4 ? `\\u{${digits}}` : `\\u${digits.padStart(4, "0")}`;
};

/**
 * A text as one line of a log may show it: unsafe characters are escaped as in JavaScript, and what is longer than
 * `maxLength` ends with "…". A text without unsafe characters that is short enough stays as it is, so applying this twice
 * changes nothing.
 */
export function printable(text: string, maxLength = MAX_LENGTH): string {
  // Escaping never shortens: what is behind this is cut off in any case.
  const escaped = text.slice(0, maxLength + 2).replace(UNSAFE, escape);
  return escaped.length > maxLength ? cut(escaped, maxLength) : escaped;
}

/** Between two characters, not within one. */
function cut(text: string, maxLength: number): string {
  const last = text.codePointAt(maxLength - 2) ?? 0;
  return `${text.slice(0, last > 0xffff ? maxLength - 2 : maxLength - 1)}…`;
}
