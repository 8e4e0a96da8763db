// Whoever may write a key may write thousands, under names that nest in each other: what they cost a process that shows them.
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Cluster, connect, inspect, list, watchQueue } from "../../../src/index.js";
import { lockPage } from "../../../src/tools/ui/lock-page.js";
import { putKeys } from "../../support/clients/many-keys.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { Listener } from "../../support/ui/client.js";

/** The loop may stand still for so long beside a lease of the shortest TTL, 2 s, whatever part of a short run that is. */
const SHORT_MS = 200;
const NAMES = 400;
const FEW = 1200;

const nameAt = (depth: number) => Array(depth).fill("a").join("/");
/** The first ones make the names, and all others are under the last one. */
const keysOf = (count: number, root: string) =>
  Array.from({ length: count }, (_, n) => `${root}/${nameAt(Math.min(n + 1, NAMES))}/k${n}`);

let etcd: EtcdCluster;
let cluster: Cluster;

beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
  await putKeys(etcd.member, keysOf(FEW, "few"));
  await putKeys(etcd.member, keysOf(2 * FEW, "many"));
}, 60_000);

afterAll(async () => {
  await cluster.close();
  await etcd.stop();
});

interface Cost {
  /** Processor time of this process, in milliseconds. */
  readonly cpu: number;
  /** The longest time in which the event loop did nothing else, as a part of the whole; 0 if it was short. */
  readonly stall: number;
}

async function costOf(run: () => Promise<void>): Promise<Cost> {
  const before = process.cpuUsage();
  const start = performance.now();
  let [stall, last] = [0, start];
  const look = () => {
    const now = performance.now();
    [stall, last] = [Math.max(stall, now - last), now];
  };
  const timer = setInterval(look, 1);
  await run();
  look();
  clearInterval(timer);
  const { user, system } = process.cpuUsage(before);
  return { cpu: (user + system) / 1000, stall: stall < SHORT_MS ? 0 : stall / (last - start) };
}

async function listAll(prefix: string): Promise<void> {
  const { locks } = await list(cluster, prefix, { limit: 1000, timeoutMs: 60_000 });
  expect(locks).toHaveLength(NAMES);
}

async function watchFirst(name: string, total: number): Promise<void> {
  for await (const state of watchQueue(cluster, name)) {
    expect(state.total).toEqual({ holders: 1, waiters: total - 1 });
    return;
  }
}

/** The page of these names, until it has shown all of them. */
async function showAll(prefix: string): Promise<void> {
  const page = lockPage(cluster, { prefix });
  const server = http.createServer(page).listen(0, "127.0.0.1");
  await once(server, "listening");
  const viewer = new Listener(`http://127.0.0.1:${(server.address() as AddressInfo).port}/events`);
  const names = new Set<string>();
  await viewer.until(({ data }) => {
    for (const { name } of data["rows"] as { name: string }[]) names.add(name);
    return names.size === NAMES;
  });
  viewer.close();
  page.close();
  server.closeAllConnections();
  server.close();
}

const SUBJECTS: Readonly<Record<string, (root: string, count: number) => Promise<void>>> = {
  "list()": (root) => listAll(`${root}/`),
  "watchQueue()": (root, count) => watchFirst(`${root}/a`, count),
  "inspect()": async (root, count) => {
    const { total } = await inspect(cluster, `${root}/a`, { timeoutMs: 60_000 });
    expect(total).toEqual({ holders: 1, waiters: count - 1 });
  },
  "the page": (root) => showAll(`${root}/`),
};

describe("thousands of foreign keys under nested names", { timeout: 60_000 }, () => {
  for (const [what, run] of Object.entries(SUBJECTS))
    test(`cost ${what} no more than 3.2 times as much for twice the keys, and stop the event loop for a part of that only`, async () => {
      // Without what the first run compiles. Of three runs, what other processes have disturbed least.
      await run("few", FEW);
      const least = async (root: string, count: number): Promise<Cost> => {
        const costs: Cost[] = [];
        for (let n = 0; n < 3; n++) costs.push(await costOf(() => run(root, count)));
        return {
          cpu: Math.min(...costs.map(({ cpu }) => cpu)),
          stall: Math.min(...costs.map(({ stall }) => stall)),
        };
      };
      const [few, many] = [await least("few", FEW), await least("many", 2 * FEW)];

      expect(many.cpu / few.cpu).toBeLessThan(3.2);
      expect(many.stall).toBeLessThan(0.5);
    });
});
