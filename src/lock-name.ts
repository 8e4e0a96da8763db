import { checkName, rangeError, typeError } from "./base/options/check.js";

/** Stands for an empty value. No escape begins in this way: "m" is no hexadecimal digit. */
const EMPTY = "%empty";
/** The readers and writers of an RwLock have their keys in folders of these names. */
const FOLDERS: ReadonlySet<string> = new Set(["read", "write"]);
/** A longer value makes a name that is too long, whatever its characters are: escaping never shortens. */
const MAX_VALUE = 1025;

/**
 * A template tag for names that contain data of users: ``new Mutex(cluster, lockName`orders/${id}`)``. The text of the template
 * stays as it is. The values are escaped, so that two different lists of values never give one name, and no value adds a "/".
 * A value keeps the characters `A-Z a-z 0-9 - _ . ! ~ * ' ( )`. Of every other character, each byte of its UTF-8 form becomes
 * `%XX`, as by `encodeURIComponent`; of a lone surrogate, each of the three bytes that WTF-8 gives it. Of a value that another one
 * follows, the character is escaped too with which the text between them begins. An empty value becomes `%empty`. The values
 * `read` and `write` become `%72ead` and `%77rite`, because an RwLock has folders of these names. A number or bigint is written as
 * `String` writes it, so `17`, `17n` and `"17"` give the same name.
 * @throws {TypeError} if a value is not a string, number or bigint, or if the function is not called as a template tag.
 * @throws {RangeError} if a number is NaN or infinite, if the text of the template contains "%", if there is no text between two
 * values, or if the result is not 1..1024 bytes of well-formed Unicode without "/" at its ends and without "//".
 */
export function lockName(
  strings: TemplateStringsArray,
  ...values: readonly (string | number | bigint)[]
): string {
  const texts = checkTexts(strings, values.length);
  const name = texts.reduce((start, text, n) => {
    const end = n < values.length ? text[0] : undefined;
    return `${start}${escaped(textOf(values[n - 1], n), end)}${text}`;
  });
  return checkName(name, "the result of lockName");
}

/** The text before, between and after the values. */
function checkTexts(strings: unknown, values: number): readonly string[] {
  if (!Array.isArray(strings) || !Array.isArray((strings as Partial<TemplateStringsArray>).raw))
    throw typeError("lockName", "called as a template tag, as in lockName`orders/${id}`", strings);
  return strings.map((text: unknown, n) => {
    const part = `text ${n + 1} of lockName`;
    // undefined, if it contains an escape sequence that JavaScript does not know, such as "\u".
    if (typeof text !== "string") throw typeError(part, "free of malformed escape sequences", text);
    if (text.includes("%")) throw rangeError(part, 'free of "%", which marks what is escaped', text);
    // Otherwise "ab" and "c" would give the name of "a" and "bc".
    if (text === "" && n > 0 && n < values)
      throw rangeError(part, `a separator between value ${n} and value ${n + 1}`, text);
    return text;
  });
}

/** `n`: counted from 1. */
function textOf(value: unknown, n: number): string {
  const part = `value ${n} of lockName`;
  if (typeof value === "string") return value;
  if (typeof value !== "number" && typeof value !== "bigint")
    throw typeError(part, "a string, a number or a bigint", value);
  if (typeof value === "number" && !Number.isFinite(value)) throw rangeError(part, "a finite number", value);
  return String(value);
}

/** `end`: the character that ends the value in the name, so that the value must not contain it. */
function escaped(value: string, end: string | undefined): string {
  if (value === "") return EMPTY;
  const isFolder = FOLDERS.has(value);
  const escape = (char: string, n: number): string => {
    const usual = escapedCharacter(char);
    return usual === char && (char === end || (isFolder && n === 0)) ? percent(Buffer.from(char)) : usual;
  };
  return Array.from(value.slice(0, MAX_VALUE), escape).join("");
}

function escapedCharacter(char: string): string {
  const code = char.codePointAt(0) ?? 0;
  if (code < 0xd800 || code > 0xdfff) return encodeURIComponent(char);
  return percent([0xe0 | (code >> 12), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f)]);
}

const percent = (bytes: Iterable<number>): string =>
  Array.from(bytes, (byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`).join("");
