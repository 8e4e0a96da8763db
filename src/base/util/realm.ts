// Test environments with a DOM, and Electron's renderer, put classes of their own in the place of Node.js's, and Jest runs the library
// in a realm of its own: there, what Node.js gives out is no instance of the Error or Uint8Array that this code sees. These
// checks go by what a value says it is.

const tagOf = (value: unknown): string => Object.prototype.toString.call(value);

export const isError = (value: unknown): value is Error =>
  value instanceof Error || /^\[object (?:Error|DOMException)\]$/.test(tagOf(value));

export const isBytes = (value: unknown): value is Uint8Array => tagOf(value) === "[object Uint8Array]";

export const isAbortSignal = (value: unknown): value is AbortSignal =>
  value instanceof AbortSignal ||
  // Old polyfills have the tag, but not all of the methods.
  (tagOf(value) === "[object AbortSignal]" &&
    typeof (value as Partial<AbortSignal>).throwIfAborted === "function" &&
    typeof (value as Partial<AbortSignal>).addEventListener === "function");

export const isPromise = (value: unknown): value is Promise<unknown> => tagOf(value) === "[object Promise]";
