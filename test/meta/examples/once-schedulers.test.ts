// Three replicas of each example with a scheduler, with clocks 5 s ahead, right, and 5 s behind, which are killed at random.
// LEASEHOLD_ONCE_TICKS, set by `npm run test:all -- once`, is the number of ticks; LEASEHOLD_ONCE_SEED seeds the kills.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { buildPackage } from "../../support/fixtures/examples.js";
import { runSchedule } from "../../support/programs/schedules.js";

const all = process.env["LEASEHOLD_ONCE_TICKS"];
const seed = Number(process.env["LEASEHOLD_ONCE_SEED"] ?? Math.floor(Math.random() * 1e9));
const jobs = all === undefined ? 7 : 20;
const ticks = all === undefined ? 3 : Math.ceil(Number(all) / jobs);

let etcd: EtcdCluster;
beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
}, 150_000);
afterAll(() => etcd?.stop());

describe("three replicas whose clocks differ by 10 s, killed at random", () => {
  test.each(["once-node-cron.js", "once-croner.js"])(
    "of examples/%s run no tick twice, and lose none that is not told",
    async (file) => {
      const figures = await runSchedule({ file, endpoints: etcd.endpoints, jobs, ticks, seed });
      console.log(`${file}, seed ${seed}: ${JSON.stringify(figures)}`);

      expect(figures.runTwice).toEqual([]);
      expect(figures.lostAndNotTold).toEqual([]);
      expect(figures.ticks).toBe(jobs * ticks);
      expect(figures.kills).toBeGreaterThan(0);
      expect(figures.runOnce).toBeGreaterThan(0);
    },
    600_000,
  );
});
