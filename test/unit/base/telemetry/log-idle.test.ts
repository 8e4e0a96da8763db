import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { holdEndChannel, sessionChannel } from "../../../../src/base/telemetry/channels.js";
import type { HoldEndMessage } from "../../../../src/base/telemetry/messages.js";
import { Lines, LogWorld } from "../../../support/fixtures/log-world.js";

const HINT =
  "debug leasehold: no lock has been held or waited for in 5 s, and the open session keeps the process alive: " +
  "call cluster.close() when you are done";

let world: LogWorld;
const hints = () => world.lines.all.filter((line) => line.includes("cluster.close()"));
const open = () => sessionChannel.publish(world.session(undefined, "live"));
const release = () => {
  const { hosts } = world;
  const about = { hosts, kind: "mutex", names: ["a"], heldMs: 1, reason: "released" };
  holdEndChannel.publish(about as unknown as HoldEndMessage);
};

beforeEach(() => {
  world = new LogWorld();
  world.idle = true;
});
afterEach(() => world.end());

describe("the hint that a cluster was not closed", () => {
  test("is one debug line, 5 s after the last use, and never a second one", async () => {
    open();
    await world.clock.pass(4000);
    world.finish(world.begin(world.call("a")), { outcome: "granted" });
    await world.clock.pass(2000);
    release();
    await world.clock.pass(4999);
    expect(hints()).toEqual([]);

    await world.clock.pass(1);
    expect(hints()).toEqual([HINT]);

    release();
    await world.clock.pass(60_000);
    expect(hints()).toEqual([HINT]);
  });

  test("does not come while something is held or waited for, but after that", async () => {
    world.idle = false;
    open();
    await world.clock.pass(60_000);
    expect(hints()).toEqual([]);

    world.idle = true;
    release();
    await world.clock.pass(5000);
    expect(hints()).toEqual([HINT]);
  });

  test("does not come after close()", async () => {
    open();
    world.end();
    await world.clock.pass(60_000);

    expect(world.lines.all.join()).not.toContain("cluster.close()");
  });

  test("costs one timer, however many locks are taken", () => {
    open();
    const after = vi.spyOn(world.clock, "after");

    for (let n = 0; n < 1000; n++) {
      world.finish(world.begin(world.call("a")), { outcome: "granted" });
      release();
    }

    expect(after.mock.calls.filter(([ms]) => ms === 5000)).toEqual([]);
  });

  test("needs a logger that takes debug lines: without one there is no timer", () => {
    world.end();
    const { warn, error } = new Lines();
    const quiet = new LogWorld({ warn, error });
    const after = vi.spyOn(quiet.clock, "after");

    sessionChannel.publish(quiet.session(undefined, "live"));
    quiet.end();

    expect(after).not.toHaveBeenCalled();
  });
});
