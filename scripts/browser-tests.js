// Runs test/browser: the page of `leasehold/ui` in a real Chromium. Prints `not run: reason` and exits with 75 without one.
import { findChromium } from "../test/support/servers/chromium.js";
import { exitNotRun, runVitest } from "./vitest-run.js";

const { version } = await findChromium().catch(exitNotRun);
console.log(`Chromium ${version}.`);
process.exitCode = await runVitest("test/browser", { env: { LEASEHOLD_BROWSER: version } });
