// The program of Prometheus that checks rules.
import { findProgram } from "./debian-program.js";

/** @param {NodeJS.ProcessEnv} [env] */
export function findPromtool(env = process.env) {
  const plan = {
    ...{ name: "promtool", cache: "promtool", versionArg: "--version", version: /version (\d+[.\d]*)/ },
    ...{ packages: ["prometheus"], files: ["usr/bin/promtool"] },
  };
  return findProgram(plan, env);
}
