import { afterEach, describe, expect, test, vi } from "vitest";
import { planFaults } from "../../../examples/demo/nemesis.js";
import { parseOptions } from "../../../examples/demo/options.js";
import { seeded } from "../../../examples/demo/random.js";
import { Timeline } from "../../../examples/demo/timeline.js";

describe("the demo's command line", () => {
  test("starts five workers, its own etcd and no sabotage unless told otherwise", () => {
    expect(parseOptions([])).toMatchObject({ workers: 5, sabotage: false, ui: false, endpoints: [] });
    expect(parseOptions(["--ui"])).toMatchObject({ ui: true });
  });

  test("takes several endpoints", () => {
    expect(parseOptions(["--endpoints", "http://a:2379,http://b:2379/"])).toMatchObject({
      endpoints: ["http://a:2379", "http://b:2379"],
    });
  });

  test.each([
    [["--workers", "4"], "--workers to be a whole number from 5 to 26, got '4'"],
    [["--workers", "6.5"], "got '6.5'"],
    [["--seed", "x"], "--seed to be a whole number"],
    [["--seed"], "--seed"],
    [["--sabotage", "lock"], "--sabotage to be 'fence', got 'lock'"],
    [["--endpoints", "localhost:2379"], "--endpoints to be URLs"],
    [["--endpoints", "http://a:2379,"], "got ''"],
    [["--worker", "5"], "Unknown option '--worker'"],
    [["5"], "Unexpected argument '5'"],
  ])("refuses %j and says why in one line", (args, message) => {
    expect(() => parseOptions(args)).toThrow(message);
    expect(() => parseOptions(args)).not.toThrow("\n");
  });

  test("plans the same faults for the same seed", () => {
    const plans = [1, 2, 3, 4, 5, 6, 7, 8].map((seed) => planFaults(seeded(seed), true));

    expect(plans).toEqual([1, 2, 3, 4, 5, 6, 7, 8].map((seed) => planFaults(seeded(seed), true)));
    expect(new Set(plans.map(String)).size).toBeGreaterThan(1);
  });

  test("plans no fault at servers that are not its own", () => {
    expect(planFaults(seeded(1), false)).not.toContain("kill-leader");
  });
});

describe("the demo's timeline", () => {
  afterEach(() => vi.unstubAllEnvs());

  const shown = (screen: { isTTY: boolean }) => {
    let text = "";
    const timeline = new Timeline({ ...screen, write: (more: string) => (text += more) });
    timeline.open();
    timeline.show({
      k: "queue",
      places: ["A", "B", "C"].map((owner, index) => ({ owner, fence: 7 + index })),
    });
    timeline.show({ k: "counted", n: 1, by: "A", fence: 7 });
    timeline.show({ k: "fault", fault: "kill-holder", target: "A" });
    timeline.close();
    return text;
  };

  test.each([
    { isTTY: false, NO_COLOR: "" },
    { isTTY: true, NO_COLOR: "1" },
  ])("is plain lines for %j: no colour, no line written over", ({ isTTY, NO_COLOR }) => {
    vi.stubEnv("NO_COLOR", NO_COLOR);
    const text = shown({ isTTY });

    expect(text).not.toMatch(/[\x1b\r]/);
    expect(text).toMatch(/A +7 +0→1 +B C\n/);
    expect(text).toMatch(/A +7 +1 +B C +\[KILL -9\] A, which holds the lock\n/);
  });

  test("shows the present moment in the last line of a terminal", () => {
    vi.stubEnv("NO_COLOR", "");
    vi.stubEnv("TERM", "xterm");

    expect(shown({ isTTY: true })).toContain("waiting for the dead holder's lease to run out");
  });
});
