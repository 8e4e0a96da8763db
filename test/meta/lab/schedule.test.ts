import { describe, expect, it } from "vitest";
import { parseOptions } from "../../lab/options.js";
import { NotRunError, type Tier } from "../../lab/runner/ground.js";
import { runLab } from "../../lab/runner/lab.js";
import { plan } from "../../lab/runner/schedule.js";
import { t1 } from "../../lab/tiers/t1.js";

describe("a schedule", () => {
  const options = { seconds: 120, ttlMs: 2000, kinds: t1.faults, gapMs: [200, 2000] as const };

  it("is the same for the same seed, and another one for another", () => {
    const first = plan({ ...options, seed: "a" });
    expect(plan({ ...options, seed: "a" })).toEqual(first);
    expect(plan({ ...options, seed: "b" })).not.toEqual(first);
    expect(parseOptions(["--seed", "a", "--only", "3,7"])).toMatchObject({ seed: "a", only: [3, 7] });
  });
});

describe("a fault that needs TLS", () => {
  const fault = { name: "wrong", effect: "hinders", needs: "tls", inflict: () => undefined } as const;

  it("makes the tier start with TLS, and is refused by one that has none", async () => {
    const asked: object[] = [];
    const tier = (has: Tier["has"]): Tier => ({
      ...{ name: "t0", title: "", faults: [fault], ...(has && { has }) },
      start: (options) => {
        asked.push(options);
        return Promise.reject(new NotRunError("enough is known"));
      },
    });
    const run = { seed: "a", seconds: 1, faults: ["wrong"] };

    await expect(runLab({ ...run, tier: tier(["tls"]) })).rejects.toThrow("enough");
    expect(asked).toMatchObject([{ tls: true }]);
    await expect(runLab({ seed: "a", seconds: 1, tier: tier(undefined), tls: true })).rejects.toThrow(
      "t0 has no tls",
    );
  });
});
