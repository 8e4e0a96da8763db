// `node scripts/screenshots.js [FOLDER]`: pictures of the page, light, dark and narrow, into docs/ or another folder.
import { createServer } from "node:http";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { connect } from "leasehold";
import { lockPage } from "leasehold/ui";
import { startEtcd } from "../test/support/etcd/etcd.js";
import { startBrowser } from "../test/support/servers/browser.js";
import { listen, Scene } from "../test/support/ui/scene.js";
import { exitNotRun } from "./vitest-run.js";

const FOLDER = path.resolve(process.argv[2] ?? fileURLToPath(new URL("../docs/", import.meta.url)));
/** Long enough for a few hand-overs. */
const PLAY_MS = 16_000;

const WIDE = { width: 1280, height: 800 };
const NARROW = { width: 360, height: 740 };
const DETAIL = "#queue=jobs%2Fnightly";
/** @type {readonly (readonly [name: string, scheme: string, size: typeof WIDE, hash: string])[]} */
const PICTURES = [
  ["ui-light.png", "light", WIDE, DETAIL],
  ["ui-dark.png", "dark", WIDE, DETAIL],
  ["ui-narrow.png", "light", NARROW, ""],
];

const browser = await startBrowser().catch(exitNotRun);
const etcd = await startEtcd();
const scene = new Scene(etcd.endpoints);
const cluster = connect({ hosts: etcd.endpoints });
const page = lockPage(cluster, { authorize: () => true });
const server = createServer(page);
try {
  const port = await listen(server);
  await scene.fill();
  await delay(PLAY_MS);
  for (const [name, scheme, size, hash] of PICTURES) {
    const tab = await browser.newPage();
    await tab.setViewport(size);
    await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    tab.on("console", (message) => console.log(`${name}: ${message.text()}`));
    await tab.goto(`http://127.0.0.1:${port}/${hash}`);
    await tab.waitForSelector("#rows tr");
    if (hash) await tab.waitForSelector("#detail .bar");
    await delay(1200);
    await tab.screenshot({
      path: /** @type {`${string}.png`} */ (path.join(FOLDER, name)),
      optimizeForSpeed: false,
    });
    await tab.close();
    console.log(path.join(FOLDER, name));
  }
} finally {
  await browser.close();
  page.close();
  server.closeAllConnections();
  server.close();
  await scene.end();
  await cluster.close();
  await etcd.stop();
}
