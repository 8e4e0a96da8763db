import { typeError } from "./check.js";

/** A logger: `console`, one of pino or winston, or any object with these methods. */
export interface Logger {
  debug?(line: string): unknown;
  info?(line: string): unknown;
  warn(line: string): unknown;
  error(line: string): unknown;
}

export type LogLevel = keyof Logger;

const RULE = "a logger: an object with the methods warn and error, and perhaps info and debug";

/** Loggers have other properties as well, so unknown ones are allowed. */
export function checkLog(value: unknown): Logger | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== "object" || value === null) throw typeError("log", RULE, value);
  const logger = value as Readonly<Record<LogLevel, unknown>>;
  checkMethod("warn", logger.warn);
  checkMethod("error", logger.error);
  if (logger.info !== undefined) checkMethod("info", logger.info);
  if (logger.debug !== undefined) checkMethod("debug", logger.debug);
  return value as Logger;
}

function checkMethod(level: LogLevel, method: unknown): void {
  if (typeof method !== "function") throw typeError(`log.${level}`, "a function", method);
}
