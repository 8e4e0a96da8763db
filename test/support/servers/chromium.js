// A browser for tests.
import { findProgram } from "./debian-program.js";

/** @param {NodeJS.ProcessEnv} [env] */
export const findChromium = (env = process.env) =>
  findProgram(
    {
      names: ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"],
      // Not usr/bin/chromium, a script that starts an installed one.
      ...{ package: "chromium", file: "usr/lib/chromium/chromium" },
      ...{ versionArgs: ["--version", "--no-sandbox"], version: /(\d+(\.\d+)+)/ },
    },
    env,
  );
