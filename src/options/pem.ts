import { secretTypeError } from "./check.js";

const PATH = /^(?:\/|~|\.{1,2}[/\\]|[a-z]:[/\\]|file:)|\.(?:pem|crt|cer|cert|key)$/i;

/**
 * PEM text, as a string or as bytes. A private key may have got into any of the options, so no error shows the value.
 * @throws {TypeError | RangeError}
 */
export function checkPem(option: string, value: unknown): Uint8Array {
  if (typeof value !== "string" && !(value instanceof Uint8Array))
    throw secretTypeError(option, "PEM text: a string, a Buffer or a Uint8Array", value);
  const bytes = typeof value === "string" ? Buffer.from(value) : value;
  const problem = problemOf(Buffer.from(bytes).toString("latin1"));
  if (problem !== undefined) throw new RangeError(`Expected ${option} to be PEM text, got ${problem}`);
  return bytes;
}

function problemOf(text: string): string | undefined {
  if (!text.includes("-----BEGIN")) {
    const isPath = text.length <= 4096 && !/[\r\n]/.test(text.trim()) && PATH.test(text.trim());
    return isPath ? "a path: pass the content of that file, as of readFileSync()" : "other bytes";
  }
  if (!/[\r\n]/.test(text.trim()) && text.includes("\\n"))
    return 'text whose line breaks are "\\n", two characters each: replace them by line feeds';
  return undefined;
}
