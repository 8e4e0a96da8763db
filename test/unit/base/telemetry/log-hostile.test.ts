import { describe, expect, onTestFinished, test } from "vitest";
import * as channels from "../../../../src/base/telemetry/channels.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { LogWorld } from "../../../support/fixtures/log-world.js";

const ESCAPES = "\u001b[31mred\u001b[0m\r\nERROR fake line\u202e\u0000\u2028";
const HOSTILE = [ESCAPES, "x".repeat(1 << 20), ESCAPES.repeat(1 << 12), "\ud800\udbff", '" "'];
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u;

const { acquireChannel, electionChannel, memberChannel, sessionChannel, shardChannel } = channels;

/** One message on each channel that has texts of others, with `text` in all of them. */
async function publishAll(world: LogWorld, text: string): Promise<void> {
  const { hosts } = world;
  const error = new Error(text);
  const call = world.begin(world.call(text, { names: [text, text] }));
  await world.clock.pass(30_100);
  world.finish(call, { outcome: "error", error });
  const rest = { fence: undefined, delayMs: 5, label: undefined, owner: text };
  electionChannel.publish({ hosts, name: text, state: "retrying", error, ...rest });
  const shard = { shard: 7, label: undefined, fence: 1n, drainMs: undefined };
  shardChannel.publish({ hosts, name: text, state: "failed", error, ...shard });
  memberChannel.publish({ hosts, host: text, state: "refused", error });
  memberChannel.publish({ hosts, host: "http://a:2379", state: "up", error: undefined });
  const members = new Map(Array.from({ length: 10 }, (_, n) => [`${text}${n}`, error]));
  sessionChannel.publish(world.session("live", "jeopardy", { members, sinceLastRenewalMs: 7000 }));
  await settle();
}

describe("a line", () => {
  test.each(HOSTILE)(
    "has no control characters and a limited length, whatever it contains (%#)",
    async (text) => {
      using world = new LogWorld();
      const contender = { name: text, key: text, state: "holding", revision: 1n, leaseId: 1n } as const;
      const holder = {
        ...contender,
        owner: text,
        since: new Date(NaN),
        value: text,
        reason: text,
        sticky: true,
        weighted: undefined,
        priority: undefined,
        ttlRemainingMs: 1,
        toJSON: () => ({}),
      };
      world.readWait = () => Promise.resolve({ name: text, holder, ahead: 1 });

      await publishAll(world, text);

      expect(world.lines.all).toHaveLength(7);
      for (const line of world.lines.all) {
        expect(line.length).toBeLessThan(2100);
        expect(UNSAFE.test(line)).toBe(false);
      }
    },
  );

  test("that its logger cannot write breaks nothing", async () => {
    const uncaught: unknown[] = [];
    const keep = (error: unknown) => void uncaught.push(error);
    process.on("uncaughtException", keep).on("unhandledRejection", keep);
    onTestFinished(() => void process.off("uncaughtException", keep).off("unhandledRejection", keep));
    const broken = {
      warn: () => Promise.reject(new Error("disk full")),
      error: () => {
        throw new Error("disk full");
      },
      get info(): () => void {
        throw new Error("no info");
      },
    };
    using world = new LogWorld(broken);
    using healthy = new LogWorld();
    healthy.readWait = world.readWait = () => {
      throw new Error("cannot be read");
    };

    await publishAll(world, "jobs");
    await publishAll(healthy, "jobs");
    sessionChannel.publish(world.session("jeopardy", "lost"));
    await settle();
    await settle();

    expect(uncaught).toEqual([]);
    expect(healthy.lines.all.length).toBeGreaterThan(3);
  });

  test("is about the cluster of its logger only, and there is none after the end", () => {
    using one = new LogWorld();
    using other = new LogWorld();
    // Equal, but not the same.
    expect(one.hosts).toEqual(other.hosts);

    sessionChannel.publish(one.session("live", "jeopardy"));
    expect([one.lines.news.length, other.lines.news.length]).toEqual([1, 0]);

    one.end();
    sessionChannel.publish(one.session("jeopardy", "live"));
    other.end();
    expect(one.lines.news).toEqual([]);
    const { CHANNELS, ...all } = channels;
    for (const channel of Object.values(all)) expect(channel.hasSubscribers).toBe(false);
    expect(Object.keys(CHANNELS)).toHaveLength(12);
  });

  test("of the level debug is not even prepared for a logger without that level", () => {
    using world = new LogWorld({ warn: () => {}, error: () => {} });

    expect(channels.callChannel.hasSubscribers).toBe(false);
    expect(acquireChannel.hasSubscribers).toBe(true);
    expect(world.clock.timers).toBe(0);
  });
});
