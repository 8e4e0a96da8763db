import { getEventListeners } from "node:events";
import { describe, expect, test } from "vitest";
import { systemClock } from "../../../../src/base/util/clock.js";
import { GrpcMember } from "../../../../src/etcd/http2/member.js";
import type { Member } from "../../../../src/etcd/port.js";
import { checkConnect } from "../../../../src/base/options/connect.js";
import { says } from "../../../support/fixtures/peer-calls.js";
import { dataFrame, responseFrame, startPeer, uint32 } from "../../../support/servers/http2-peer.js";

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

describe("an answer that is longer than the method's can be", () => {
  const limits = { timeoutMs: 10_000 };
  const stream = (member: Member) =>
    new Promise<never>((_, reject) => member.keepalive({ answer: () => undefined, ended: reject }).renew(1n));

  test.each<[string, number, (member: Member) => Promise<unknown>]>([
    ["the grant of a lease", 4097, (member) => member.grant(1n, 10, limits)],
    ["the revocation of a lease", 4097, (member) => member.revoke(1n, limits)],
    ["a renewal", 4097, stream],
    ["the list of the members", 64 * 1024 + 1, (member) => member.members!(limits)],
    ["a login", 64 * 1024 + 1, (member) => member.authenticate("user", "secret", limits)],
    ["a read", 256 * 1024 * 1024 + 1, (member) => member.range({ key: "a" }, limits)],
  ])("fails %s before it has arrived", async (_, bytes, ask) => {
    await using peer = await startPeer();
    const host = `http://127.0.0.1:${peer.port}`;
    const options = checkConnect({ hosts: host, transport: "http2" });
    const setting = { token: () => undefined, pingMs: options.pingIntervalMs };
    const member = new GrpcMember(host, setting, { options, clock: systemClock });
    const asked = ask(member).then(
      () => undefined,
      (error: unknown) => error,
    );
    const connection = await peer.connection();
    connection.greet();
    const id = await connection.request();

    const prefix = Buffer.concat([Buffer.of(0), uint32(bytes)]);
    connection.send(responseFrame(id), dataFrame(id, prefix));

    expect(await asked).toMatchObject({ message: says(new RegExp(`of ${bytes} bytes`)), inDoubt: true });
    member.retire();
  });
});
