import type { Logger } from "../options/log.js";

/** Writes all levels to stderr. Unlike a stream, `console` ignores a stderr that is closed. */
export function stderrLogger(): Logger {
  // eslint-disable-next-line no-console -- the user has asked for it
  const write = (level: string) => (line: string) => console.error(`${level} ${line}`);
  return { debug: write("debug"), info: write("info"), warn: write("warn"), error: write("error") };
}
