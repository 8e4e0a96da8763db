import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Contender } from "../../../../src/contender.js";
import type { AcquireMessage } from "../../../../src/base/telemetry/messages.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { LogWorld } from "../../../support/fixtures/log-world.js";

let world: LogWorld;
let reads: AcquireMessage[];

const holder = (more: Partial<Contender> = {}): Contender => ({
  ...{ name: "orders/17", key: "orders/17/6a1f", state: "holding", revision: 41n, leaseId: 0x6a1fn },
  ...{ owner: "web-3", since: new Date(world.clock.date().getTime() - 41_000), ttlRemainingMs: 9000 },
  value: undefined,
  reason: undefined,
  sticky: false,
  weighted: undefined,
  priority: undefined,
  toJSON: () => ({}),
  ...more,
});

beforeEach(() => {
  world = new LogWorld();
  reads = [];
  world.readWait = (call) => {
    reads.push(call);
    return Promise.resolve({ name: call.name, holder: holder(), ahead: 4 });
  };
});
afterEach(() => world.end());

describe("the line about a wait", () => {
  test("says who holds the lock after 30 s, 1 min, 2 min and so on, and ends with the wait", async () => {
    const call = world.begin(world.call("orders/17"));
    await world.clock.pass(29_900);
    expect(world.lines.news).toEqual([]);

    await world.clock.pass(600_000);
    expect(world.lines.news).toEqual(
      ["30 s", "60 s", "2 min", "4 min", "8 min"].map(
        (time) =>
          `warn leasehold: waiting ${time} for "orders/17": held by "web-3" (joined 41 s ago), 4 ahead`,
      ),
    );

    world.finish(call, { outcome: "granted", waitedMs: 629_900, fence: 42n });
    await world.clock.pass(3_600_000);
    expect(world.lines.news).toEqual(['debug leasehold: acquired mutex "orders/17" after 10 min, fence 42']);
    expect(reads).toHaveLength(5);
  });

  test("says of a dead holder that it is dead, and when the lock is free", async () => {
    const dead = holder({ state: "dead", ttlRemainingMs: 15_400 });
    world.readWait = ({ name }) => Promise.resolve({ name, holder: dead, ahead: 1 });
    world.begin(world.call("orders/17"));
    await world.clock.pass(30_100);

    expect(world.lines.all).toEqual([
      'warn leasehold: waiting 30 s for "orders/17": its holder "web-3" (joined 71 s ago) is dead (free in 16 s), 1 ahead',
    ]);
  });

  test("is one for all calls of the process that wait for the same lock", async () => {
    for (let n = 0; n < 500; n++) world.begin(world.call("orders/17"));
    await world.clock.pass(31_000);

    expect(world.lines.all).toHaveLength(1);
    expect(world.lines.all[0]).toMatch(/4 ahead; 499 more calls of this process also waiting$/);
  });

  test("is written for the longest waiting call only: short waits for a busy lock have no line", async () => {
    let last = world.begin(world.call("orders/17"));
    for (let n = 0; n < 20; n++) {
      const next = world.begin(world.call("orders/17"));
      await world.clock.pass(20_000);
      world.finish(last, { outcome: "granted" });
      last = next;
      expect(reads.length).toBe(n === 0 ? 0 : reads.length);
    }

    const longest = 40_000;
    expect(world.lines.all.filter((line) => line.startsWith("warn")).length).toBeLessThanOrEqual(
      (20 * 20_000) / longest,
    );
  });

  test("has limits: thousands of names give 16 lines and 16 reads in 30 s, and one that says so", async () => {
    for (let n = 0; n < 5000; n++) world.begin(world.call(`orders/${n}`));
    await world.clock.pass(30_100);

    expect(reads).toHaveLength(16);
    expect(world.lines.all).toHaveLength(17);
    expect(world.lines.all).toContain(
      "warn leasehold: waiting for 5000 locks: further ones are not listed for 30 s",
    );
  });

  test("names the one of several names that is missing", async () => {
    world.readWait = () => Promise.resolve({ name: "b", holder: holder(), ahead: 1 });
    world.begin(world.call("a", { kind: "all", names: ["a", "b"] }));
    await world.clock.pass(30_100);

    expect(world.lines.all.join()).toContain('waiting 30 s for "a", "b": "b" is held by "web-3"');
  });

  test("says when etcd does not answer, or when the call is in no queue yet", async () => {
    const answers = [() => Promise.reject(new Error("no answer")), () => Promise.resolve(undefined)];
    world.readWait = () => answers.shift()!();
    world.begin(world.call("orders/17"));
    await world.clock.pass(61_000);

    expect(world.lines.all).toEqual([
      'warn leasehold: waiting 30 s for "orders/17": etcd does not answer',
      'warn leasehold: waiting 60 s for "orders/17": not in the queue yet',
    ]);
  });

  test("is not written for a wait that ends during the read", async () => {
    let answer: (report: undefined) => void = () => {};
    world.readWait = () => new Promise((resolve) => (answer = resolve));
    const call = world.begin(world.call("orders/17"));
    await world.clock.pass(30_100);
    world.finish(call, { outcome: "timeout" });
    expect(world.lines.news).toHaveLength(1);
    answer(undefined);
    await settle();

    expect(world.lines.news).toEqual([]);
  });

  test("leaves no timer behind calls that failed at once, and none for calls that do not wait", async () => {
    const failed = world.begin(world.call("orders/17"));
    world.finish(failed, { outcome: "error", error: new Error("bad") });
    world.begin(world.call("orders/18", { tries: true }));
    await world.clock.pass(120_000);

    expect(world.lines.news).toEqual(['debug leasehold: mutex "orders/17" not acquired (error): bad']);
    expect(world.clock.timers).toBe(0);
  });

  test("names a web lock in words", () => {
    const call = world.begin(world.call("a name", { kind: "web_lock" }));
    world.finish(call, { outcome: "error", error: new Error("bad") });

    expect(world.lines.all).toEqual(['debug leasehold: web lock "a name" not acquired (error): bad']);
  });

  test("is for debugging where a candidate of an election stands by", async () => {
    world.begin(world.call("reports", { kind: "leadership" }));
    await world.clock.pass(31_000);

    expect(world.lines.all).toHaveLength(1);
    expect(world.lines.all[0]).toMatch(/^debug leasehold: waiting 30 s for "reports"/);
  });
});
