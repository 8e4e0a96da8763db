import { describe, expect, it } from "vitest";
import { runLab } from "../../lab/runner/lab.js";
import { NotRunError, type Tier } from "../../lab/runner/ground.js";
import { parseOptions } from "../../lab/options.js";
import { plan } from "../../lab/runner/schedule.js";
import { t1 } from "../../lab/tiers/t1.js";

describe("the arguments of the chaos program", () => {
  it("name what is wrong with them", () => {
    expect(() => parseOptions(["--tier", "t9"])).toThrow(/--tier/);
    expect(() => parseOptions(["--of", "mutex,queue"])).toThrow(/--of.*rwlock.*queue/);
    expect(() => parseOptions(["--time", "soon"])).toThrow(/--time.*soon/);
    expect(() => parseOptions(["--ttl", "1"])).toThrow(/--ttl.*at least 2.*1/);
    expect(() => parseOptions(["--nonsense"])).toThrow(/nonsense/);
    expect(() => parseOptions(["--auth", "maybe"])).toThrow(/--auth on or off.*maybe/);
    expect(() => parseOptions(["--without", "hope"])).toThrow(/--without batching.*hope/);
  });

  it("choose what is taken: a mutex, if nothing else is said", () => {
    expect(parseOptions([])).toMatchObject({ of: ["mutex"] });
    expect(parseOptions(["--of", "rwlock,election"])).toMatchObject({ of: ["rwlock", "election"] });
  });

  it("choose a ground with TLS, or with users that need a password or do not yet", () => {
    expect(parseOptions([])).toMatchObject({ tls: false, auth: undefined });
    expect(parseOptions(["--tls", "--auth", "off"])).toMatchObject({ tls: true, auth: "off" });
  });

  it("replay a part of a schedule", () => {
    expect(parseOptions(["--seed", "7", "--only", "3,7"])).toMatchObject({ seed: "7", only: [3, 7] });
  });
});

describe("a schedule", () => {
  const options = { seconds: 120, ttlMs: 2000, kinds: t1.faults, gapMs: [200, 2000] as const };

  it("is the same for the same seed, and another one for another", () => {
    const first = plan({ ...options, seed: "a" });
    expect(plan({ ...options, seed: "a" })).toEqual(first);
    expect(plan({ ...options, seed: "b" })).not.toEqual(first);
  });

  it("is numbered in the order of time and ends with the run", () => {
    const all = plan({ ...options, seed: "a" });
    expect(all.map(({ n }) => n)).toEqual(all.map((_, n) => n));
    expect(all.map(({ atMs }) => atMs)).toEqual(all.map(({ atMs }) => atMs).toSorted((a, b) => a - b));
    expect(all.at(-1)?.atMs).toBeLessThan(120_000);
  });
});

describe("what a fault needs", () => {
  const fault = { name: "wrong", effect: "hinders", needs: "tls", inflict: () => undefined } as const;
  /** A tier that records what was requested, and is not available. */
  const tier = (has: Tier["has"], asked: object[]): Tier => ({
    ...{ name: "t0", title: "", faults: [fault], ...(has && { has }) },
    start: (options) => {
      asked.push(options);
      return Promise.reject(new NotRunError("enough is known"));
    },
  });
  const run = { seed: "a", seconds: 1 };

  it("is there when the fault is named, or when it is asked for", async () => {
    const asked: object[] = [];
    const it = tier(["tls"], asked);
    await expect(runLab({ ...run, tier: it, faults: ["wrong"] })).rejects.toThrow("enough");
    await expect(runLab({ ...run, tier: it, tls: true })).rejects.toThrow("enough");
    await expect(runLab({ ...run, tier: it })).rejects.toThrow("enough");
    expect(asked).toMatchObject([{ tls: true }, { tls: true }, { tls: false }]);
  });

  it("is refused by a tier that does not have it", async () => {
    const asked: object[] = [];
    await expect(runLab({ ...run, tier: tier(undefined, asked), tls: true })).rejects.toThrow(
      "t0 has no tls",
    );
    expect(asked).toEqual([]);
  });
});
