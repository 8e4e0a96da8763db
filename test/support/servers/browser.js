// Chromium, driven by puppeteer.
import puppeteer from "puppeteer-core";
import { findChromium } from "./chromium.js";

/** Such a browser is closed with `close()`. */
export async function startBrowser() {
  const { program, env } = await findChromium();
  return puppeteer.launch({
    executablePath: program,
    env: /** @type {Record<string, string>} */ (env),
    // Root has no sandbox, and containers have little shared memory.
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"],
    // Nothing but the tests' own pages is opened.
    acceptInsecureCerts: false,
  });
}
