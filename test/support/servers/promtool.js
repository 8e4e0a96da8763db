// The program of Prometheus that checks rules.
import { findProgram } from "./debian-program.js";

/** @param {NodeJS.ProcessEnv} [env] */
export const findPromtool = (env = process.env) =>
  findProgram(
    {
      ...{ names: ["promtool"], package: "prometheus", file: "usr/bin/promtool" },
      ...{ versionArgs: ["--version"], version: /version (\d+[.\d]*)/ },
    },
    env,
  );
