// The page of `leasehold/ui` in a real browser: what a user sees, does and hears.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Browser, Page } from "puppeteer-core";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { connect, inspect, Mutex, once, Semaphore, Session, shards, type Cluster } from "../../src/index.js";
import { startEtcd, type EtcdCluster } from "../support/etcd/etcd.js";
import { startCli } from "../support/programs/cli.js";
import { startBrowser } from "../support/servers/browser.js";
import { PageServer, type ServeSetting } from "../support/ui/page-server.js";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const WIDE = { width: 1280, height: 800 };
const NARROW = { width: 360, height: 740 };

let etcd: EtcdCluster;
let cluster: Cluster;
let browser: Browser;
beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints, session: { owner: "web-1" } });
  browser = await startBrowser();
});
afterAll(async () => {
  await browser?.close();
  await cluster?.close();
  await etcd?.stop();
});

const servers: PageServer[] = [];
const tabs: Page[] = [];
/** What the console and the page's errors said. */
let complaints: string[] = [];
afterEach(async () => {
  for (const tab of tabs.splice(0)) await tab.close();
  for (const server of servers.splice(0)) await server.kill();
  complaints = [];
});

async function serve(setting: Omit<ServeSetting, "hosts"> = {}): Promise<PageServer> {
  const server = await PageServer.start({ hosts: etcd.endpoints, ...setting });
  servers.push(server);
  return server;
}

async function visit(url: string, size = WIDE, scheme = "light"): Promise<Page> {
  const tab = await browser.newPage();
  tabs.push(tab);
  tab.on("console", (message) => complaints.push(message.text()));
  tab.on("pageerror", (error) => complaints.push(String(error)));
  tab.on("dialog", (dialog) => complaints.push(dialog.message()));
  await tab.setViewport(size);
  await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await tab.goto(url);
  return tab;
}

const textOf = async (tab: Page, selector: string): Promise<string> =>
  String(await tab.evaluate(`document.querySelector(${JSON.stringify(selector)})?.textContent ?? ""`));
const rowsOf = async (tab: Page): Promise<string[][]> =>
  (await tab.evaluate(
    `[...document.querySelectorAll("#rows tr")].map((row) => [...row.cells].map((cell) => cell.textContent.trim()))`,
  )) as string[][];
const namesOf = async (tab: Page): Promise<(string | undefined)[]> =>
  (await rowsOf(tab)).map(([name]) => name);

/** Through the menu of the first line. */
async function chooseRelease(tab: Page): Promise<void> {
  await tab.waitForSelector("#detail .menu summary", { visible: true });
  await tab.click("#detail .menu summary");
  await tab.waitForSelector("#detail .menu button", { visible: true });
  await tab.click("#detail .menu button");
}

describe("the page", () => {
  test("shows who holds and who waits as it changes, without a complaint of the browser", async () => {
    const lock = await new Mutex(cluster, "seen/a").lock();
    await using other = await Session.open(cluster, { owner: "web-2" });
    const tab = await visit((await serve({ prefix: "seen/" })).url);
    await expect
      .poll(() => rowsOf(tab))
      .toMatchObject([
        ["seen/a", "mutex", "web-1", /s$/, "0"].map((cell) =>
          cell instanceof RegExp ? (expect.stringMatching(cell) as string) : cell,
        ),
      ]);

    const waiting = new Mutex(other, "seen/a").lock();
    await expect.poll(async () => (await rowsOf(tab))[0]?.[4]).toBe("1");
    await lock.release();
    await expect.poll(async () => (await rowsOf(tab))[0]?.[2]).toBe("web-2");
    await (await waiting).release();
    await expect.poll(async () => (await rowsOf(tab))[0]?.[2]).toBe("free");

    expect(await textOf(tab, "#free")).toBe("1");
    expect(complaints).toEqual([]);
  });

  test("finds by name and holder, and keeps the focus while rows change", async () => {
    const locks = await Promise.all(
      ["find/alpha", "find/beta", "find/gamma"].map((name) => new Mutex(cluster, name).lock()),
    );
    await using other = await Session.open(cluster, { owner: "web-2" });
    const tab = await visit((await serve({ prefix: "find/" })).url);
    await expect.poll(() => namesOf(tab)).toHaveLength(3);
    await tab.keyboard.press("/");
    await tab.keyboard.type("BET");
    expect(await namesOf(tab)).toEqual(["find/beta"]);
    for (let n = 0; n < 3; n++) await tab.keyboard.press("Backspace");
    expect(await namesOf(tab)).toHaveLength(3);
    await tab.select("#order", "waiters");
    await tab.focus('a[href="#queue=find%2Fgamma"]');
    const waiting = new Mutex(other, "find/gamma").lock();
    await expect.poll(() => namesOf(tab)).toEqual(["find/gamma", "find/alpha", "find/beta"]);

    expect(await tab.evaluate("document.activeElement.textContent")).toBe("find/gamma");
    await Promise.all(locks.map((lock) => lock.release()));
    await (await waiting).release();
  });

  test("shows one queue by keyboard: its lease, its hand-overs as a picture and a table, its waiters", async () => {
    const lock = await new Mutex(cluster, "one/a").lock();
    await using other = await Session.open(cluster, { owner: "web-2" });
    const waiting = new Mutex(other, "one/a").lock();
    const tab = await visit((await serve({ prefix: "one/" })).url);
    await tab.waitForSelector("#rows a");
    await tab.focus("#rows a");
    await tab.keyboard.press("Enter");
    await tab.waitForSelector("#detail .waiter");

    expect(await textOf(tab, "#detail .person .who")).toBe("web-1");
    expect(await textOf(tab, "#detail .lease")).toMatch(/^\d+ s of lease left$/);
    expect(await textOf(tab, "#detail .waiter")).toContain("web-2");
    expect(await tab.evaluate("document.activeElement.id")).toBe("detail-title");
    await lock.release();
    await expect.poll(() => textOf(tab, "#detail .person .who")).toBe("web-2");
    await expect.poll(() => tab.evaluate('document.querySelectorAll("#detail .bar").length')).toBe(2);
    await expect.poll(() => textOf(tab, "#announce")).toBe("one/a is now held by web-2");
    expect(await textOf(tab, "#detail .history tbody")).toMatch(/^web-2.*holdsweb-1/);
    await tab.keyboard.press("Escape");
    await tab.waitForSelector("#detail", { hidden: true });
    expect(await tab.evaluate("document.activeElement.textContent")).toBe("one/a");
    await (await waiting).release();
    expect(complaints).toEqual([]);
  });

  test("counts the runs of once under the name of a queue", async () => {
    await once(cluster, "counted/a", 1, () => undefined);
    await once(cluster, "counted/a", 2, () => Promise.reject(new Error("wrong"))).catch(() => undefined);
    const { url } = await serve({ prefix: "counted/" });
    const tab = await visit(`${url}#queue=${encodeURIComponent("counted/a")}`);
    const told = () => tab.evaluate(`document.querySelector("#detail").innerText`);
    await expect.poll(told).toContain("Runs of once: 1 done, 1 failed");
  });

  test("shows the shards of a group by member over time, as a picture, a list and a table", async () => {
    const options = { count: 6, settleMs: 0 };
    const start = (owner: string) => shards(cluster, "group/feeds", { ...options, owner }, () => undefined);
    const own = '<img src=x onerror="alert(1)">\u202e';
    const first = await start(own);
    await expect.poll(() => first.owned).toHaveLength(6);
    const { url } = await serve({ prefix: "group/" });
    const tab = await visit(`${url}#queue=${encodeURIComponent("group/feeds/members")}`);
    const listed = () =>
      tab.evaluate(`[...document.querySelectorAll(".shard-members li")].map((each) => each.innerText)`);
    const shown = '<img src=x onerror="alert(1)">\\u202e';
    await expect.poll(listed).toEqual([`1\n${shown}\n6 shards`]);
    const lanes = () => tab.evaluate('document.querySelectorAll("#detail .owned").length');
    expect(await lanes()).toBe(6);

    const second = await start("web-2");
    await expect.poll(listed).toEqual([`1\n${shown}\n3 shards`, "2\nweb-2\n3 shards"]);
    expect(await lanes()).toBe(9);
    expect(await tab.evaluate('document.querySelectorAll("#detail .owned.m1").length')).toBe(3);
    const label = await tab.evaluate('document.querySelector("#detail .picture").getAttribute("aria-label")');
    expect(label).toBe(
      "6 shards of 2 members in the last 1 min: 3 moves. The table below has the same as text.",
    );
    await tab.click("#detail details:has(a) summary");
    const owners = await tab.evaluate(
      `[...document.querySelectorAll("#detail details:has(a) tbody tr")].map((row) => row.cells[1].textContent).sort()`,
    );
    expect(owners).toEqual([...Array<string>(3).fill(shown), ...Array<string>(3).fill("web-2")]);
    await tab.click("#detail details:has(a) tbody a");
    await expect.poll(() => textOf(tab, "#detail-title")).toBe("group/feeds/shard/0");
    expect(await tab.evaluate('document.querySelector(".shard-members")')).toBeNull();
    await Promise.all([first.close(), second.close()]);
    expect(complaints).toEqual([]);
  });

  test("releases after a confirmation if the viewer may, and has no button otherwise", async () => {
    const lock = await new Mutex(cluster, "force/a").lock();
    const may = await visit(`${(await serve({ prefix: "force/", release: true })).url}#queue=force%2Fa`);
    const mayNot = await visit(`${(await serve({ prefix: "force/" })).url}#queue=force%2Fa`);
    await mayNot.waitForSelector("#detail .person");
    expect(await mayNot.evaluate('document.querySelector("#detail .menu").checkVisibility()')).toBe(false);

    await may.bringToFront();
    await chooseRelease(may);
    await may.waitForSelector("#confirm[open]");
    expect(await may.evaluate("document.activeElement.id")).toBe("cancel");
    await may.keyboard.press("Enter");
    await may.waitForSelector("#confirm[open]", { hidden: true });
    expect((await inspect(cluster, "force/a")).holders).toHaveLength(1);
    await chooseRelease(may);
    await may.click("#force");
    await expect.poll(async () => (await inspect(cluster, "force/a")).holders).toEqual([]);
    await may.waitForSelector("#confirm[open]", { hidden: true });
    await lock.release().catch(() => {});
  });

  test("connects again when the server is back, and has the present state", async () => {
    const lock = await new Mutex(cluster, "again/a").lock();
    const server = await serve({ prefix: "again/" });
    const tab = await visit(`${server.url}#queue=again%2Fa`);
    await tab.waitForSelector("#detail .person");
    await server.kill();
    await expect.poll(() => textOf(tab, "#link")).toContain("lost");
    await lock.release();
    const next = await new Mutex(cluster, "again/b").lock();
    await serve({ prefix: "again/", port: server.port });

    await expect.poll(() => namesOf(tab)).toEqual(["again/b"]);
    await expect.poll(() => textOf(tab, "#link")).toBe("Live");
    await expect.poll(() => textOf(tab, "#detail h3")).toBe("Free");
    await next.release();
  });

  test("names its etcd in the header, the title and the question before a release", async () => {
    const lock = await new Mutex(cluster, "which/a").lock();
    const tab = await visit(`${(await serve({ prefix: "which/", release: true })).url}#queue=which%2Fa`);
    await tab.waitForSelector("#detail .menu");
    const [host = ""] = etcd.endpoints;

    expect(await textOf(tab, "#etcd")).toBe(host);
    expect(await tab.title()).toBe(`1 holding · ${host.replace("http://", "")}`);
    await chooseRelease(tab);
    expect(await textOf(tab, "#confirm-text")).toContain(`holds which/a in the etcd at ${host}.`);
    await lock.release();
  });

  test(
    "says how old its state is while etcd is away, and is no longer live",
    { timeout: 90_000 },
    async () => {
      await using own = await startEtcd();
      await using mine = connect({ hosts: own.endpoints, session: { ttlSeconds: 60 } });
      await new Mutex(mine, "stale/a").lock();
      const server = await PageServer.start({ hosts: own.endpoints, prefix: "stale/" });
      servers.push(server);
      const tab = await visit(server.url);
      await expect.poll(() => namesOf(tab)).toEqual(["stale/a"]);
      const state = () => tab.evaluate("document.querySelector('#link').dataset.state");

      await own.member.kill();

      await expect.poll(() => textOf(tab, "#link"), { timeout: 30_000 }).toMatch(/^Stale for [1-9]\d* s$/);
      expect(await state()).toBe("stale");
      const before = Number.parseInt((await textOf(tab, "#link")).slice("Stale for ".length));
      await expect
        .poll(async () => Number.parseInt((await textOf(tab, "#link")).slice("Stale for ".length)))
        .toBeGreaterThan(before);
      expect(await namesOf(tab)).toEqual(["stale/a"]);
      await own.member.restart();
      await expect.poll(() => textOf(tab, "#link"), { timeout: 30_000 }).toBe("Live");
      expect(await state()).toBe("live");
    },
  );

  test("begins with the names for which most wait", async () => {
    const names = ["most/a", "most/b", "most/c"];
    const locks = await Promise.all(names.map((name) => new Mutex(cluster, name).lock()));
    const stop = new AbortController();
    const waits = ["most/c", "most/c", "most/b"].map((name) =>
      new Mutex(cluster, name).lock({ signal: stop.signal }).catch(() => undefined),
    );
    const tab = await visit((await serve({ prefix: "most/" })).url);

    await expect.poll(() => namesOf(tab)).toEqual(["most/c", "most/b", "most/a"]);
    stop.abort();
    await Promise.all([...waits, ...locks.map((lock) => lock.release())]);
  });

  test("shows key and lease of each, and a fence of locks only", async () => {
    const lock = await new Mutex(cluster, "facts/a").lock();
    const permit = await new Semaphore(cluster, "facts/b", 2).acquire();
    const { url } = await serve({ prefix: "facts/" });
    const [, lease = ""] = /\/([0-9a-f]+)$/.exec(lock.key) ?? [];

    const mutex = await visit(`${url}#queue=facts%2Fa`);
    await expect.poll(() => textOf(mutex, "#detail .key")).toBe(`${lock.key} · lease ${lease}`);
    expect(await textOf(mutex, "#detail .facts")).toContain(`fence ${lock.fence}`);
    const semaphore = await visit(`${url}#queue=facts%2Fb`);
    await expect.poll(() => textOf(semaphore, "#detail .key")).toContain(permit.key);
    expect(await textOf(semaphore, "#detail .facts")).toMatch(/^for \d+ s$/);
    await Promise.all([lock.release(), permit.release()]);
  });

  test("says what holders, a waiter and a crowd take of a weighted semaphore, and nothing of plain permits", async () => {
    await using other = await Session.open(cluster, { owner: "web-2" });
    const heavy = new Semaphore(cluster, "weights/a", 10, { weighted: true });
    const waits = new Semaphore(other, "weights/a", 10, { weighted: true });
    const holds = [await heavy.acquire({ weight: 3 }), await heavy.acquire({ weight: 6 })];
    const first = waits.acquire({ weight: 2 });
    const plain = await new Semaphore(cluster, "weights/b", 2).acquire();
    const { url } = await serve({ prefix: "weights/" });
    const tab = await visit(`${url}#queue=weights%2Fa`);
    const facts = () =>
      tab.evaluate(
        `[...document.querySelectorAll("#detail li > .facts, #detail .line > .facts")].map((it) => it.textContent)`,
      );

    await expect
      .poll(facts)
      .toEqual([
        expect.stringMatching(/^weight 3 of 10 · for \d+ s$/),
        expect.stringMatching(/^weight 6 of 10 · for \d+ s$/),
        expect.stringMatching(/^weight 2 of 10 · \d+ s$/),
      ]);
    expect(await textOf(tab, "#detail .sub")).toBe("semaphore · 2 holders (9 of 10 permits), 1 waiter");
    const second = waits.acquire({ weight: 7 });
    await expect
      .poll(() => textOf(tab, "#detail .line .facts"))
      .toMatch(/^2 waiters · weight 9 together · \d+ s$/);
    const permits = await visit(`${url}#queue=weights%2Fb`);
    await expect.poll(() => textOf(permits, "#detail .facts")).toMatch(/^for \d+ s$/);
    expect(await textOf(permits, "#detail .sub")).toBe("semaphore · 1 holder, 0 waiters");
    expect(complaints).toEqual([]);
    await Promise.all([plain, ...holds].map((hold) => hold.release()));
    for (const waiter of [first, second]) await (await waiter).release();
  });

  test("closes a menu by Escape, by Tab and by a click elsewhere, and the queue stays", async () => {
    const lock = await new Mutex(cluster, "menu/a").lock();
    const tab = await visit(`${(await serve({ prefix: "menu/", release: true })).url}#queue=menu%2Fa`);
    const isOpen = () => tab.evaluate("document.querySelector('#detail .menu').open");
    await tab.waitForSelector("#detail .menu summary", { visible: true });
    for (const close of [
      () => tab.keyboard.press("Escape"),
      () => tab.click("#detail-title"),
      async () => {
        await tab.keyboard.press("Tab");
        await tab.keyboard.press("Tab");
      },
    ]) {
      await tab.focus("#detail .menu summary");
      await tab.keyboard.press("Enter");
      expect(await isOpen()).toBe(true);
      await close();
      await expect.poll(isOpen).toBe(false);
    }

    expect(await tab.evaluate("document.querySelector('#detail').hidden")).toBe(false);
    await lock.release();
  });

  test("has the waiters of one owner in one line, at the place of the first, which opens", async () => {
    const lock = await new Mutex(cluster, "crowd/a").lock();
    await using other = await Session.open(cluster, { owner: "web-2" });
    await using third = await Session.open(cluster, { owner: "web-3" });
    const stop = new AbortController();
    const waits: Promise<unknown>[] = [];
    for (const session of [other, third, other, other]) {
      const reason = `reason ${session === other ? "of web-2" : waits.length}`;
      const options = { signal: stop.signal, reason };
      waits.push(new Mutex(session, "crowd/a").lock(options).catch(() => undefined));
      await expect.poll(async () => (await inspect(cluster, "crowd/a")).total.waiters).toBe(waits.length);
    }
    const tab = await visit(`${(await serve({ prefix: "crowd/" })).url}#queue=crowd%2Fa`);
    const lines = "[...document.querySelectorAll('#detail h3 ~ ol:last-of-type > li')]";
    await expect
      .poll(() => tab.evaluate(`${lines}.map((line) => line.querySelector(".place").textContent)`))
      .toEqual(["1.", "2."]);

    expect(await textOf(tab, "#detail .crowd summary")).toMatch(/^1\.web-2reason of web-23 waiters · \d+ s$/);
    expect(await tab.evaluate("document.querySelector('.crowd .waiter').checkVisibility()")).toBe(false);
    await tab.click("#detail .crowd summary");
    expect(
      await tab.evaluate(`[...document.querySelectorAll(".crowd .place")].map((it) => it.textContent)`),
    ).toEqual(["1.", "1.", "3.", "4."]);
    expect(await textOf(tab, "#detail .crowd .waiter .key")).toContain(" · lease ");
    stop.abort();
    await Promise.all([...waits, lock.release()]);
  });

  test("counts holders and waiters as leasehold top does, and the hand-overs of the last hour", async () => {
    const semaphore = new Semaphore(cluster, "sum/a", 2);
    const permits = [await semaphore.acquire(), await semaphore.acquire()];
    const tab = await visit((await serve({ prefix: "sum/" })).url);
    await expect.poll(() => textOf(tab, "#holding")).toBe("2");
    expect(await textOf(tab, "#overview .trend-line")).toMatch(/^0 hand-overs since \d/);
    const mutex = new Mutex(cluster, "sum/b");
    for (let n = 0; n < 5; n++) await mutex.withLock(() => n);

    const top = startCli(["top", "sum/", "--json"], { endpoints: etcd.endpoints.join(",") });
    await top.says(/"event":"locks".*\n/);
    top.child.kill("SIGINT");
    await top.ended;
    const line = top
      .stdout()
      .split("\n")
      .find((each) => each.includes('"event":"locks"'));
    const { locks } = JSON.parse(line ?? "") as { locks: { total: { holders: number } }[] };
    expect(locks.reduce((sum, { total }) => sum + total.holders, 0)).toBe(2);
    await expect.poll(() => textOf(tab, "#overview .trend-line")).toMatch(/^5 hand-overs since \d/);
    await Promise.all(permits.map((permit) => permit.release()));
  });

  test("shows cards in a narrow window, which screen readers still read as a table", async () => {
    const lock = await new Mutex(cluster, "card/a").lock();
    const tab = await visit((await serve({ prefix: "card/" })).url, NARROW);
    await tab.waitForSelector("#rows tr");
    const boxOf = async (selector: string) =>
      (await tab.evaluate(
        `(({ x, y, width }) => ({ x, y, width }))(document.querySelector("#rows ${selector}").getBoundingClientRect())`,
      )) as { x: number; y: number; width: number };
    const [card, name, holder, age] = await Promise.all(["tr", "th", ".holder", ".number"].map(boxOf));

    expect(holder?.y).toBeGreaterThan(name?.y ?? NaN);
    expect(age?.y).toBeGreaterThan(holder?.y ?? NaN);
    expect(holder?.width).toBeGreaterThan(0.85 * (card?.width ?? NaN));
    const tree = await tab.accessibility.snapshot({ interestingOnly: false });
    const roles = JSON.stringify(tree);
    for (const role of ["table", "row", "columnheader", "rowheader", "cell"])
      expect(roles).toContain(`"role":"${role}"`);
    await lock.release();
  });

  test("shows hostile names, owners and reasons as text", async () => {
    const name = 'evil/<img src=x onerror="alert(1)">\u202e"\'';
    await using session = await Session.open(cluster, { owner: "<script>alert(2)</script>\u0007" });
    const reason = `<img src=x onerror="alert(3)">\u202e${"r".repeat(200)}`;
    const lock = await new Mutex(session, name).lock({ reason });
    const tab = await visit((await serve({ prefix: "evil/" })).url, NARROW);
    await tab.waitForSelector("#rows a");
    await tab.click("#rows a");
    await tab.waitForSelector("#detail .person");
    const [row] = await rowsOf(tab);

    expect(row?.[0]).toBe('evil/<img src=x onerror="alert(1)">\\u202e"\'');
    expect(row?.[2]).toBe("<script>alert(2)</script>\\u0007");
    expect(await textOf(tab, "#detail h2")).toBe(row?.[0]);
    expect(await textOf(tab, "#detail .person .reason")).toBe(reason.replace("\u202e", "\\u202e"));
    expect(await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")).toBe(true);
    expect(await tab.evaluate('document.querySelectorAll("img, body script").length')).toBe(0);
    expect(complaints).toEqual([]);
    await lock.release();
  });

  test("of leasehold ui keeps its token in a cookie that scripts cannot read, not in the address", async () => {
    const lock = await new Mutex(cluster, "token/a").lock();
    const cli = startCli(["ui", "token/"], { endpoints: etcd.endpoints.join(",") });
    await cli.says(/http:\S+\n/);
    const tab = await visit(cli.stdout().trim());
    await expect.poll(() => namesOf(tab)).toEqual(["token/a"]);
    const address = tab.url();
    const cookies = await tab.evaluate("document.cookie");
    await tab.reload();
    await expect.poll(() => namesOf(tab)).toEqual(["token/a"]);
    cli.child.kill("SIGINT");
    const { code } = await cli.ended;
    await lock.release();

    expect(address).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/$/);
    expect([cookies, code]).toEqual(["", 130]);
  });
});

interface Finding {
  readonly id: string;
  readonly impact: string;
  readonly nodes: readonly { readonly html: string }[];
}

describe("axe-core", () => {
  test.each([
    ["light and wide", WIDE, "light"],
    ["dark and wide", WIDE, "dark"],
    ["light and narrow", NARROW, "light"],
    ["dark and narrow", NARROW, "dark"],
  ])("has no serious finding: %s", async (_title, size, scheme) => {
    const name = `axe/${scheme}-${size.width}`;
    const dying = await Session.open(cluster, { owner: "dying", ttlSeconds: 2 });
    await using other = await Session.open(cluster, { owner: "web-2" });
    const { url } = await serve({ prefix: name, release: true });
    const tab = await visit(url, size, scheme);
    await expect.poll(() => textOf(tab, "#empty")).toContain("No lock is held");
    await new Mutex(dying, name).lock();
    const waiting = [new Mutex(cluster, name).lock(), new Mutex(other, name).lock()];
    await dying.orphan();
    // Either of them may have joined first.
    await Promise.race(waiting);
    await tab.waitForSelector("#rows .tag:not([hidden])");
    const group = await shards(cluster, `${name}-group`, { count: 3, settleMs: 0 }, () => undefined);
    const findings: string[] = [];
    for (const [queue, shown] of [
      [undefined, "#rows .tag:not([hidden])"],
      [name, "#detail .cross"],
      [`${name}-group/members`, "#detail .owned"],
    ] as const) {
      await tab.goto(queue === undefined ? url : `${url}#queue=${encodeURIComponent(queue)}`);
      await tab.waitForSelector(shown);
      await tab.evaluate(AXE);
      const { violations } = (await tab.evaluate("axe.run(document)")) as { violations: Finding[] };
      for (const { id, impact, nodes } of violations)
        if (/serious|critical/.test(impact))
          findings.push(`${id}: ${nodes.map(({ html }) => html).join(" ")}`);
      const overflow = await tab.evaluate("document.documentElement.scrollWidth - innerWidth");
      expect(Number(overflow)).toBeLessThanOrEqual(0);
    }
    await Promise.all([group.close(), ...waiting.map(async (lock) => (await lock).release())]);

    expect(findings).toEqual([]);
  });
});
