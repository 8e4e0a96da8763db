// The slot that the pages advise, the time of the tick, in zones whose clocks change.
import { Cron } from "croner";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Cluster, connect, once } from "../../../src/index.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { PAGES, readPage } from "../../support/fixtures/pages.js";

const DAY_MS = 86_400_000;

let etcd: EtcdCluster;
let replicas: readonly Cluster[];
beforeAll(async () => {
  etcd = await startEtcd();
  replicas = [1, 2].map(() => connect({ hosts: etcd.endpoints }));
});
afterAll(async () => {
  await Promise.all(replicas.map((each) => each.close()));
  await etcd.stop();
});

/** The ticks of a year. */
const ticksOf = (pattern: string, timezone: string): number[] =>
  new Cron(pattern, { timezone, paused: true })
    .nextRuns(366, "2027-01-01T00:00:00")
    .map((date) => date.getTime());

describe("once, with the time of the tick as its slot, runs each night once", () => {
  test.each([
    ["30 0 * * *", "Europe/London"],
    ["30 1 * * *", "Europe/Berlin"],
    ["30 19 * * *", "America/New_York"],
    ["30 10 * * *", "Australia/Sydney"],
  ])("%s in %s, where the day of the call is that of two nights", async (pattern, timezone) => {
    const ticks = ticksOf(pattern, timezone);
    const twice = ticks.findIndex(
      (tick, n) => Math.floor(tick / DAY_MS) === Math.floor((ticks[n - 1] ?? 0) / DAY_MS),
    );
    expect(twice).toBeGreaterThan(0);
    const nights = ticks.slice(Math.max(0, twice - 3), twice + 3);
    const ran: number[] = [];

    for (const tick of nights)
      await Promise.all(
        replicas.map((each) => once(each, `nights/${timezone}`, tick, () => void ran.push(tick))),
      );

    expect(ran).toEqual(nights);
  });
});

test("no page takes the number of the day, or of another interval, for a slot", () => {
  const computes = /Math\.floor\((Date\.now\(\)|now)\s*\//;

  expect(PAGES.filter((page) => computes.test(readPage(page)))).toEqual([]);
});
