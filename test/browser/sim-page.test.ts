// The page of the simulation in a real browser: what moves, what the controls do, and what a keyboard reaches.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Browser, Page } from "puppeteer-core";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { PageServer } from "../sim/page/server.js";
import { startBrowser } from "../support/servers/browser.js";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const WIDE = { width: 1280, height: 900 };
const NARROW = { width: 360, height: 740 };
const QUERY = "seed=22&version=3.6&of=mutex&processes=3&lanes=1&names=2&ttl=5&faults=";

let browser: Browser;
let server: PageServer;
beforeAll(async () => {
  browser = await startBrowser();
  server = await PageServer.start();
});
afterAll(async () => {
  await browser?.close();
  server?.close();
});

let tab: Page;
let complaints: string[] = [];
afterEach(async () => {
  await tab.close();
});

async function visit(query: string, size = WIDE, scheme = "light"): Promise<void> {
  await server.table.start(query);
  complaints = [];
  tab = await browser.newPage();
  tab.on("console", (message) => complaints.push(message.text()));
  tab.on("pageerror", (error) => complaints.push(String(error)));
  await tab.setViewport(size);
  await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await tab.goto(server.url);
  await tab.waitForSelector(".process");
}

const textOf = async (selector: string): Promise<string> =>
  String(await tab.evaluate(`document.querySelector(${JSON.stringify(selector)})?.textContent ?? ""`));
const countOf = (selector: string) => tab.evaluate(`document.querySelectorAll("${selector}").length`);

describe("the page of the simulation", () => {
  test("plays, pauses and steps by keyboard, and draws messages on their way", async () => {
    await visit(QUERY);
    await tab.keyboard.press("Space");
    await tab.waitForSelector("#wires .flight");
    expect(await tab.evaluate('document.querySelector("#wires .flight path").checkVisibility()')).toBe(false);
    await expect.poll(() => textOf("#play")).toBe("Pause");
    await tab.keyboard.press("Space");
    await expect.poll(() => textOf("#play")).toBe("Play");
    const eventsOf = async () => Number((await textOf("#counts")).split(" ")[0]);
    const before = await eventsOf();
    await tab.keyboard.press("s");
    await expect.poll(eventsOf).toBe(before + 1);
    await tab.keyboard.press("n");
    await expect.poll(() => textOf("#story [data-tone=good]")).toMatch(/holds n\d, fence \d+/);

    expect(complaints).toEqual([]);
  });

  test("pauses a process and cuts its link by a click, shows both, and has the run in its address", async () => {
    await visit(QUERY);
    await tab.click(".process:nth-child(2) .acts button:nth-child(1)");
    await expect.poll(() => textOf(".process:nth-child(2) .state")).toBe("paused");
    await tab.click(".process:nth-child(3) .acts button:nth-child(3)");
    await expect.poll(() => countOf("#wires .wire[data-state=cut]")).toBe(1);
    expect(await countOf("#afflictions li")).toBe(2);
    await tab.click("#afflictions button");
    await expect.poll(() => textOf(".process:nth-child(2) .state")).toBe("alive");

    expect(await tab.evaluate("location.search")).toContain("pause+w1.0");
    expect(await textOf("#command")).toContain("--play 'seed=22");
    expect(complaints).toEqual([]);
  });

  test("shows which invariant a sabotaged rule breaks, and stops there", async () => {
    await visit("seed=3");
    await tab.select("#mutant", "whole-ttl");
    await tab.click("#find");
    await expect
      .poll(() => tab.evaluate('document.querySelector("#verdict").dataset.broken'), { timeout: 90_000 })
      .toBe("yes");

    expect(await textOf("#verdict")).toMatch(/^I\d+ is broken: /);
    expect(await textOf("#scope")).toContain("sabotaged: whole-ttl");
  }, 120_000);

  test.each([
    ["light and wide", WIDE, "light"],
    ["dark and narrow", NARROW, "dark"],
  ])("has no serious finding of axe-core and no overflow: %s", async (_title, size, scheme) => {
    await visit(QUERY, size, scheme);
    await tab.click("#next");
    await tab.waitForSelector("#story [data-tone=good]");
    await tab.click(".process:nth-child(1) .acts button:nth-child(2)");
    await tab.waitForSelector("#afflictions li");
    await tab.evaluate(AXE);
    const { violations } = (await tab.evaluate("axe.run(document)")) as {
      violations: { id: string; impact: string; nodes: { html: string }[] }[];
    };
    const serious = violations.filter(({ impact }) => /serious|critical/.test(impact));
    const overflow = await tab.evaluate("document.documentElement.scrollWidth - innerWidth");

    expect(serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`)).toEqual([]);
    expect(Number(overflow)).toBeLessThanOrEqual(0);
  });
});
