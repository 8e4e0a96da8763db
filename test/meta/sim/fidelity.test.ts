import { expect, test } from "vitest";
import { campaign, type Named } from "../../sim/fidelity/campaign.js";
import { LIES } from "../../sim/fidelity/lies.js";
import { lateWatches } from "../../sim/fidelity/late-watches.js";
import { generate } from "../../sim/fidelity/programs/generate.js";
import { SimSubject } from "../../sim/fidelity/subjects/sim-subject.js";

const named = (name: string, subject: SimSubject): Named => ({ name, subject });

test("a seed always gives the same program", () => {
  expect(generate("s", 60, true)).toEqual(generate("s", 60, true));
  expect(generate("s", 60, true)).not.toEqual(generate("t", 60, true));
});

test("two simulated etcds of one version answer alike", async () => {
  const pair = [
    named("one", new SimSubject({ version: "3.6" })),
    named("other", new SimSubject({ version: "3.6" })),
  ];
  const found: string[] = [];
  const options = {
    seed: "1",
    operations: 1200,
    differences: 1,
    expiryEvery: 10,
    log: (text: string) => found.push(text),
  };

  const totals = await campaign(pair as [Named, Named], options);

  expect(found).toEqual([]);
  expect(totals.revisions).toBeGreaterThan(100);
  expect(totals.events).toBeGreaterThan(100);
});

test("a difference is reported as the shortest program and both answers", async () => {
  const pair = [
    named("3.6", new SimSubject({ version: "3.6" })),
    named("3.7", new SimSubject({ version: "3.7" })),
  ];
  const found: string[] = [];
  const avoided = new Set(["empty ends"] as const);
  const options = { seed: "1", operations: 6000, differences: 1, expiryEvery: 0, avoided };

  await campaign(pair as [Named, Named], { ...options, log: (text) => found.push(text) });

  // 3.7 leaves the leases out of a range of keys only.
  expect(found.join()).toMatch(/=> 2\. .*keysOnly=true.*\n +3\.6: .* lease=\d+\]?.*\n +3\.7: /);
  expect(found.join().split("\n")).toHaveLength(6);
});

test("a difference that does not occur again is counted apart", async () => {
  const [lie] = LIES;
  let programs = 0;
  const once = new SimSubject({
    version: "3.6",
    sabotage: (etcd) => programs++ === 0 && lie!.sabotage(etcd),
  });
  const pair = [named("true", new SimSubject({ version: "3.6" })), named("lying once", once)];

  const totals = await campaign(pair as [Named, Named], {
    ...{ seed: "1", operations: 300, differences: 1, expiryEvery: 0 },
  });

  expect(totals).toMatchObject({ unsteady: 1, differences: 0 });
});

test.each(LIES)("2,000 operations show that $name", async ({ sabotage }) => {
  const pair = [
    named("true", new SimSubject({ version: "3.6" })),
    named("lying", new SimSubject({ version: "3.6", sabotage })),
  ];

  const totals = await campaign(pair as [Named, Named], {
    ...{ seed: "1", operations: 2000, differences: 1, expiryEvery: 0 },
  });

  expect(totals.differences).toBe(1);
});

test("a watch from now on is late only where the present revision is read before it is registered", async () => {
  const readsFirst = new SimSubject({ version: "3.5" });
  const registers = new SimSubject({ version: "3.6" });
  await Promise.all([readsFirst.begin(), registers.begin()]);

  expect(await lateWatches(readsFirst, 10)).toBeGreaterThan(0);
  expect(await lateWatches(registers, 10)).toBe(0);
});
