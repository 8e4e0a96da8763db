import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { rejoinChannel } from "../../../../src/base/telemetry/channels.js";
import { SessionLostError } from "../../../../src/errors.js";
import { LEASE_ID, LogWorld } from "../../../support/fixtures/log-world.js";

let world: LogWorld;

beforeEach(() => void (world = new LogWorld()));
afterEach(() => world.end());

const error = new SessionLostError(LEASE_ID, "revoked", "etcd has no such lease");
const publish = (name: string, failures = 1) =>
  rejoinChannel.publish({
    ...{ hosts: world.hosts, kind: "mutex", name, names: [name], label: undefined },
    ...{ owner: "web-1", leaseId: LEASE_ID, error, failures, delayMs: 0 },
  });

describe("the log line about lost places", () => {
  test("is one for all within a second, with a few of the names, and the reason", () => {
    for (let n = 0; n < 1000; n++) publish(`orders/${n}`);
    world.clock.advance(999);
    expect(world.lines.news).toEqual([]);
    world.clock.advance(1);

    expect(world.lines.news).toEqual([
      "warn leasehold: lost 1000 places in the queue for " +
        `"orders/0", "orders/1", "orders/2", "orders/3", "orders/4" and 995 more (${error.message}); joining again`,
    ]);
  });

  test("counts the first, second, fourth and eighth failure in a row of a call, and no other", () => {
    for (let failures = 1; failures <= 10; failures++) {
      publish("jobs", failures);
      world.clock.advance(1000);
    }

    const line = `warn leasehold: lost the place in the queue for "jobs" (${error.message}); joining again`;
    expect(world.lines.news).toEqual([line, line, line, line]);
    expect(world.clock.timers).toBe(0);
  });

  test("is written when the log ends before that second is over", () => {
    publish("jobs");
    world.end();

    expect(world.lines.news).toHaveLength(1);
    expect(world.clock.timers).toBe(0);
  });
});
