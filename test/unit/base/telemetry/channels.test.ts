import { describe, expect, test } from "vitest";
import * as channels from "../../../../src/base/telemetry/channels.js";
import * as diagnostics from "../../../../src/base/telemetry/index.js";

describe("the channels", () => {
  test("have public names, which must not change", () => {
    expect(channels.CHANNELS).toEqual({
      acquire: "leasehold.acquire",
      call: "leasehold.call",
      holdEnd: "leasehold.hold.end",
      holdLong: "leasehold.hold.long",
      rejoin: "leasehold.rejoin",
      session: "leasehold.session",
      renewed: "leasehold.session.renewed",
      member: "leasehold.member",
      credentials: "leasehold.credentials",
      guardian: "leasehold.guardian",
      election: "leasehold.election",
      shard: "leasehold.shard",
    });
    expect(channels.acquireChannel.asyncEnd.name).toBe("tracing:leasehold.acquire:asyncEnd");
    expect(channels.callChannel.start.name).toBe("tracing:leasehold.call:start");
  });

  test("are all exported by leasehold/diagnostics", () => {
    expect(Object.keys(diagnostics).sort()).toEqual(Object.keys(channels).sort());
  });

  test("have no subscribers unless a program subscribes", () => {
    const { CHANNELS, ...all } = channels;

    for (const channel of Object.values(all)) expect(channel.hasSubscribers).toBe(false);
    expect(Object.keys(all)).toHaveLength(Object.keys(CHANNELS).length);
  });
});
