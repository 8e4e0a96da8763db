// The comparison of two etcds: see test/meta/fidelity for the one with a real etcd.
import { expect, test } from "vitest";
import { campaign } from "../../sim/fidelity/campaign.js";
import { lateWatches } from "../../sim/fidelity/late-watches.js";
import { LIES } from "../../sim/fidelity/lies.js";
import { SimSubject } from "../../sim/fidelity/subjects/sim-subject.js";

const truthful = () => ({ name: "true", subject: new SimSubject({ version: "3.6" }) });
const OPTIONS = { seed: "1", operations: 1200, differences: 1, expiryEvery: 0 };

test("two simulated etcds of one version answer alike", async () => {
  const totals = await campaign([truthful(), truthful()], { ...OPTIONS, expiryEvery: 10 });

  expect(totals.differences).toBe(0);
  expect(Math.min(totals.revisions, totals.events)).toBeGreaterThan(100);
});

test("an etcd that lies is noticed", async () => {
  const lying = { name: "lying", subject: new SimSubject({ version: "3.6", sabotage: LIES[0]!.sabotage }) };

  const totals = await campaign([truthful(), lying], { ...OPTIONS, operations: 2000 });

  expect(totals.differences).toBe(1);
});

test("a watch from now on is late only where the present revision is read before it is registered", async () => {
  const readsFirst = new SimSubject({ version: "3.5" });
  const registers = new SimSubject({ version: "3.6" });
  await Promise.all([readsFirst.begin(), registers.begin()]);

  expect(await lateWatches(readsFirst, 10)).toBeGreaterThan(0);
  expect(await lateWatches(registers, 10)).toBe(0);
});
