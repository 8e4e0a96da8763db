import { getEventListeners } from "node:events";
import { expect, test } from "vitest";
import { systemClock } from "../../../../src/async/clock.js";
import { GrpcMember } from "../../../../src/etcd/grpc/member.js";
import { checkConnect } from "../../../../src/options/connect.js";

const REFUSING = "http://127.0.0.1:1";

test("members that were left one after the other leave no listener on the signal of their calls", async () => {
  const options = checkConnect({ hosts: REFUSING, transport: "http2" });
  const setting = { token: () => undefined, pingMs: options.pingIntervalMs };
  const { signal } = new AbortController();
  for (let n = 0; n < 5; n++) {
    const member = new GrpcMember(REFUSING, setting, { options, clock: systemClock });
    const call = member.range({ key: "a" }, { timeoutMs: 10_000, signal });
    // Some are left before their calls end, and some after that.
    if (n % 2 === 0) member.retire();
    await expect(call).rejects.toThrow();
    member.retire();
  }

  expect(getEventListeners(signal, "abort")).toHaveLength(0);
});
