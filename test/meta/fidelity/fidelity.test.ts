import { expect, test } from "vitest";
import type { SimVersion } from "../../../src/testing/memory/protocol.js";
import { campaign } from "../../sim/fidelity/campaign.js";
import { RealSubject } from "../../sim/fidelity/subjects/real-subject.js";
import { SimSubject } from "../../sim/fidelity/subjects/sim-subject.js";

test("the simulated etcd answers 5,000 random operations as etcd does", async () => {
  const real = await RealSubject.start();
  try {
    const version = real.version.split(".").slice(0, 2).join(".") as SimVersion;
    const pair = [
      { name: `etcd ${real.version}`, subject: real },
      { name: "simulated", subject: new SimSubject({ version }) },
    ] as const;
    const found: string[] = [];
    const log = (text: string): void => void found.push(text);
    const options = { seed: "npm test", operations: 5000, differences: 1, expiryEvery: 40, log };

    const totals = await campaign(pair, options);

    expect(totals.differences, found.join("\n")).toBe(0);
    expect(totals.operations).toBeGreaterThanOrEqual(5000);
    expect(totals.rejected).toBeLessThan(totals.operations / 2);
  } finally {
    await real.close();
  }
}, 180_000);
