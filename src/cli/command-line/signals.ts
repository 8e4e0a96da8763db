import os from "node:os";
import { EXIT } from "./exit.js";

const ENDING = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** That this program was told to end. */
export interface EndSignal {
  /** Aborts with the name of the first signal. */
  readonly signal: AbortSignal;
  /** 128 plus the number of that signal; undefined before it. */
  readonly exitCode: number | undefined;
  /** Lets signals end the process again. */
  stop(): void;
}

/** Takes SIGINT, SIGTERM and SIGHUP from now on: a command ends in order when it gets one of them. */
export function endSignal(): EndSignal {
  const controller = new AbortController();
  let exitCode: number | undefined;
  const heard = (name: NodeJS.Signals): void => {
    exitCode ??= EXIT.signal + os.constants.signals[name];
    controller.abort(name);
  };
  for (const name of ENDING) process.on(name, heard);
  return {
    signal: controller.signal,
    get exitCode() {
      return exitCode;
    },
    stop: () => {
      for (const name of ENDING) process.off(name, heard);
    },
  };
}
