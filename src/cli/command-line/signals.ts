import os from "node:os";
import { EXIT } from "./exit.js";

const ENDING: readonly NodeJS.Signals[] = ["SIGINT", "SIGTERM", "SIGHUP"];

/** That this program was told to end. */
export interface EndSignal {
  /** Aborts with the name of the first signal. */
  readonly signal: AbortSignal;
  /** 128 plus the number of that signal; undefined before it. */
  readonly exitCode: number | undefined;
  /** The signals that end the program now. A command may take one of them for itself. */
  readonly ends: Set<NodeJS.Signals>;
  /** Resolves with true when the program gets another one from now on. */
  again(): Promise<true>;
}

/** Takes SIGINT, SIGTERM and SIGHUP from now on until the process has ended: a command ends in order when it gets one of them. */
export function endSignal(): EndSignal {
  const controller = new AbortController();
  let exitCode: number | undefined;
  const ends = new Set(ENDING);
  let again: (() => void) | undefined;
  const heard = (name: NodeJS.Signals): void => {
    if (!ends.has(name)) return;
    again?.();
    exitCode ??= EXIT.signal + os.constants.signals[name];
    controller.abort(name);
  };
  for (const name of ENDING) process.on(name, heard);
  return {
    signal: controller.signal,
    ends,
    get exitCode() {
      return exitCode;
    },
    again: () => new Promise((resolve) => (again = () => resolve(true))),
  };
}
