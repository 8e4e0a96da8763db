import { describe, expect, it } from "vitest";
import { EtcdRefusedError } from "../../../src/errors.js";
import {
  AuthDisabledError,
  LeaseExistsError,
  LeaseNotFoundError,
  UnansweredError,
} from "../../../src/etcd/port.js";
import { SimEtcd } from "../../../src/testing/memory/etcd.js";
import { Kernel } from "../../sim/kernel/kernel.js";
import { DirectWire } from "../../sim/network/direct-wire.js";
import { failures } from "../../../src/etcd/transport.js";
import { SimMember } from "../../../src/testing/memory/network/member.js";
import type { CallListener, Wire } from "../../../src/testing/memory/network/wire.js";
import { FakeClock } from "../../support/fakes/fake-clock.js";

const options = { timeoutMs: 1000 };
const lease = { leaseId: 7n, leaseTtl: 5 };

function setUp() {
  const kernel = new Kernel("member");
  const etcd = new SimEtcd({ scheduler: kernel, random: kernel.random, version: "3.6" });
  const server = etcd.members[0]!;
  return { kernel, etcd, member: new SimMember(server.host, new DirectWire(server), { failures }) };
}

/** A wire whose only call is answered by hand. */
function byHand() {
  const calls: { readonly listener: CallListener; cancelled: boolean }[] = [];
  const wire = {
    call: (_request: unknown, listener: CallListener) => {
      const call = { listener, cancelled: false };
      calls.push(call);
      return () => (call.cancelled = true);
    },
  } as unknown as Wire;
  const clock = new FakeClock();
  return { clock, calls, member: new SimMember("http://m:1", wire, { failures, clock }) };
}

const reasonOf = (call: Promise<unknown>) =>
  call.then(
    () => undefined,
    (error: unknown) => error,
  );

describe("SimMember over a DirectWire", () => {
  it("carries transactions, ranges and leases to the simulated etcd and back", async () => {
    const { member } = setUp();
    const granted = await member.grant(lease.leaseId, lease.leaseTtl, options);
    expect(granted).toMatchObject({ leaseId: 7n, ttlSeconds: 5 });
    const put = { kind: "put", key: "a", value: "1", leaseId: 7n } as const;
    const [answer] = await member.txns([{ queues: [], compare: [], success: [put], failure: [] }], options);
    expect(answer).toMatchObject({ succeeded: true, header: { revision: 2n } });
    const { kvs } = await member.range({ key: "a" }, options);
    expect(kvs).toMatchObject([{ value: "1", leaseId: 7n, createRevision: 2n }]);
    expect((await member.timeToLive(7n, options)).keys.map(String)).toEqual(["a"]);
    expect(await member.revoke(7n, options)).toBeUndefined();
    expect((await member.range({ key: "a" }, options)).kvs).toEqual([]);
  });

  it("rejects with the port's errors for what etcd refuses", async () => {
    const { member } = setUp();
    await member.grant(7n, 5, options);
    expect(await reasonOf(member.grant(7n, 5, options))).toBeInstanceOf(LeaseExistsError);
    expect(await reasonOf(member.revoke(8n, options))).toBeInstanceOf(LeaseNotFoundError);
    const ahead = reasonOf(member.range({ key: "a", revision: 99n }, options));
    expect(await ahead).toBeInstanceOf(EtcdRefusedError);
    expect(await reasonOf(member.authenticate("user", "password", options))).toBeInstanceOf(
      AuthDisabledError,
    );
  });
});

describe("a unary call of SimMember", () => {
  it("rejects at once, and sends nothing, if its signal has aborted", async () => {
    const { member, calls } = byHand();
    const error = await reasonOf(member.revoke(1n, { ...options, signal: AbortSignal.abort() }));
    expect(error).toMatchObject({ kind: "cancelled" });
    expect(error).toMatchObject({ inDoubt: false });
    expect(calls).toEqual([]);
  });

  it.each([true, false])(
    "ends with its time and its caller's abort, in doubt if it was sent: %s",
    async (sent) => {
      const { member, calls, clock } = byHand();
      const abort = new AbortController();
      const onSent: number[] = [];
      const timedOut = reasonOf(member.revoke(1n, options));
      const aborted = reasonOf(
        member.revoke(2n, { ...options, signal: abort.signal, onSent: () => onSent.push(2) }),
      );
      if (sent) for (const { listener } of calls) listener.sent();
      abort.abort();
      clock.advance(2000);
      expect(await timedOut).toBeInstanceOf(UnansweredError);
      expect(await timedOut).toMatchObject({ inDoubt: sent });
      expect(await timedOut).toMatchObject({
        message: sent ? "no answer within 1000 ms" : "no connection within 1000 ms",
      });
      expect(await aborted).toMatchObject({ kind: "cancelled" });
      expect(await aborted).toMatchObject({ inDoubt: sent });
      expect(calls.map(({ cancelled }) => cancelled)).toEqual([true, true]);
      expect(onSent).toEqual(sent ? [2] : []);
    },
  );
});
