// 1,000 locks with 5,000 waiters that change steadily: what the server needs, and whether the page is right at the end.
import { setTimeout as delay } from "node:timers/promises";
import type { Browser } from "puppeteer-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect, list, type Cluster } from "../../src/index.js";
import { startEtcd, type EtcdCluster } from "../support/etcd/etcd.js";
import { startBrowser } from "../support/servers/browser.js";
import { PageServer } from "../support/ui/page-server.js";
import { RawQueues } from "../support/ui/raw-queues.js";

const LOCKS = 1000;
const WAITERS = 5;
const HAND_OVERS_PER_SECOND = 100;
const MEASURE_MS = 15_000;
/** Of one core. */
const MOST = 0.2;

let etcd: EtcdCluster;
let cluster: Cluster;
let browser: Browser;
let server: PageServer;
let queues: RawQueues;
beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
  browser = await startBrowser();
});
afterAll(async () => {
  await browser?.close();
  await server?.kill();
  await queues?.close();
  await cluster?.close();
  await etcd?.stop();
});

test(
  "1,000 locks with 5,000 waiters: less than a fifth of a core, and no state is missed at the end",
  { timeout: 120_000 },
  async () => {
    queues = await RawQueues.fill(etcd.endpoints, { prefix: "scale/", locks: LOCKS, waiters: WAITERS });
    server = await PageServer.start({ hosts: etcd.endpoints, prefix: "scale/" });
    const tab = await browser.newPage();
    await tab.goto(`${server.url}#queue=scale%2F0007`);
    // What it shows instead is the first thing to know if it never does.
    const shows = () =>
      tab.evaluate(
        `["#link", "#holding", "#waiting"].map((each) => document.querySelector(each).textContent).concat(document.visibilityState)`,
      );
    await expect
      .poll(shows, { timeout: 80_000, interval: 200 })
      .toEqual(["Live", "1,000", "5,000", "visible"]);

    const before = await server.used();
    const start = performance.now();
    const handOvers = await queues.handOver(HAND_OVERS_PER_SECOND, MEASURE_MS);
    const after = await server.used();
    const share = (after.ms - before.ms) / (performance.now() - start);
    const perSecond = Math.round((1000 * handOvers) / (performance.now() - start));
    const rows = Number(await tab.evaluate('document.querySelectorAll("#rows tr").length'));
    await delay(1000);
    const { locks } = await list(cluster, "scale/", { limit: 1000 });
    const wanted = locks.map(({ name, holder, waiters }) => [name, holder?.owner ?? "", waiters]);
    const shown: unknown[] = [];
    for (;;) {
      shown.push(
        ...((await tab.evaluate(
          `[...document.querySelectorAll("#rows tr")].map(({ cells: [name, , holder, , waiters] }) =>
            [name.textContent.trim(), holder.textContent.trim(), Number(waiters.textContent)])`,
        )) as unknown[]),
      );
      if (await tab.evaluate('document.querySelector("#next").disabled')) break;
      await tab.evaluate('document.querySelector("#next").click()');
    }
    console.log(
      `${perSecond} hand-overs a second: ${(100 * share).toFixed(1)} % of a core, ${after.mib.toFixed(0)} MiB`,
    );

    expect(rows).toBe(50);
    expect(shown).toEqual(wanted);
    expect(share).toBeLessThan(MOST);
  },
);
