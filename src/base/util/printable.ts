/** Beyond this length, a text from another client or a server explains no more about an error. */
const MAX_LENGTH = 200;
/**
 * Control and format characters (including bidirectional overrides), line and paragraph separators, and lone surrogates:
 * characters that can end a line, color a terminal, or reorder the text next to them.
 */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

/** Most texts: for them, this is faster than to search what has to be escaped. */
const PLAIN = /^[ -~]*$/;

const escape = (char: string): string => {
  const digits = (char.codePointAt(0) ?? 0).toString(16);
  return digits.length > 4 ? `\\u{${digits}}` : `\\u${digits.padStart(4, "0")}`;
};

/**
 * Makes a text safe to show on one line of a log: escapes unsafe characters as JavaScript does, and ends a text that is
 * longer than `maxLength` with "…". A short text without unsafe characters does not change, so applying this twice has no
 * further effect.
 */
export function printable(text: string, maxLength = MAX_LENGTH): string {
  // Escaping never shortens a text: everything after this position is cut off in any case.
  const escaped = PLAIN.test(text) ? text : text.slice(0, maxLength + 2).replace(UNSAFE, escape);
  return escaped.length > maxLength ? cut(escaped, maxLength) : escaped;
}

/** Cuts between two characters, never within one. */
function cut(text: string, maxLength: number): string {
  const last = text.codePointAt(maxLength - 2) ?? 0;
  return `${text.slice(0, last > 0xffff ? maxLength - 2 : maxLength - 1)}…`;
}
