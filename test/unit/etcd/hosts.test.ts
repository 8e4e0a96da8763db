import { beforeEach, describe, expect, test } from "vitest";
import { Hosts } from "../../../src/etcd/hosts.js";
import { MemberRefusedError, UnansweredError } from "../../../src/etcd/port.js";
import { CHANNELS } from "../../../src/base/telemetry/channels.js";
import type { MemberMessage } from "../../../src/base/telemetry/messages.js";
import { FakeClock } from "../../support/fakes/fake-clock.js";
import { HEADER } from "../../support/fakes/fake-connection.js";
import { Messages } from "../../support/fixtures/messages.js";

const HOSTS = ["a:1", "b:1", "c:1"];
const OPEN_MS = 1000;
const PING_MS = 10_000;
const DOWN = new UnansweredError("connect ECONNREFUSED", { kind: "unreachable" });
const REFUSED = new MemberRefusedError("tls", "self-signed certificate", { host: "a:1" });

let clock: FakeClock;
let hosts: Hosts;

beforeEach(() => {
  clock = new FakeClock();
  hosts = new Hosts(HOSTS, clock, PING_MS);
});

describe("the circuit of a host", () => {
  const fail = (host: string, times: number) => {
    for (let n = 0; n < times; n++) hosts.attemptFailed(host, DOWN);
  };

  test("lets hosts take turns while none has failed", () => {
    expect([0, 1, 2, 3].map((start) => hosts.firstUsable(start))).toEqual([0, 1, 2, 0]);
  });

  test("opens after two failures in a row, not after one", () => {
    fail("b:1", 1);
    expect(hosts.firstUsable(1)).toBe(1);
    fail("b:1", 1);
    expect(hosts.firstUsable(1)).toBe(2);
  });

  test("stays closed when there was an answer between two failures", () => {
    fail("b:1", 1);
    hosts.answered("b:1", 1);
    fail("b:1", 1);
    expect(hosts.firstUsable(1)).toBe(1);
  });

  test("closes with an answer to a call that was under way", () => {
    fail("b:1", 2);
    hosts.answered("b:1", 1);
    expect(hosts.firstUsable(1)).toBe(1);
  });

  test("lets the host be tried a second after its last failure, and opens again if it fails once more", async () => {
    fail("b:1", 2);
    await clock.pass(OPEN_MS - 1);
    expect(hosts.firstUsable(1)).toBe(2);
    await clock.pass(1);
    expect(hosts.firstUsable(1)).toBe(1);
    fail("b:1", 1);
    expect(hosts.firstUsable(1)).toBe(2);
  });

  test("is not kept open by failures of calls that were under way", async () => {
    fail("b:1", 2);
    await clock.pass(OPEN_MS / 2);
    fail("b:1", 1);
    await clock.pass(OPEN_MS / 2);
    expect(hosts.firstUsable(1)).toBe(1);
  });

  test("does not count what a stream finds", () => {
    for (let n = 0; n < 2; n++) hosts.streamFailed("b:1", DOWN);
    expect(hosts.firstUsable(1)).toBe(1);
  });

  test("lets hosts that have all failed take turns", () => {
    for (const host of HOSTS) fail(host, 2);
    expect([0, 1, 2, 3].map((start) => hosts.firstUsable(start))).toEqual([0, 1, 2, 0]);
  });
});

describe("the state of a host", () => {
  const leave = (host: string, error?: Error) => {
    hosts.streamFailed(host, error);
    hosts.left(host);
  };

  test("is published once for each episode, with its first error", () => {
    using messages = new Messages<MemberMessage>(CHANNELS.member);
    hosts.up("a:1");
    hosts.up("a:1");
    leave("a:1", DOWN);
    leave("a:1", new UnansweredError("no answer in time"));
    leave("b:1");
    hosts.up("a:1");

    const same = { hosts: HOSTS };
    expect(messages.all).toMatchObject([
      { ...same, host: "a:1", state: "up", error: undefined },
      { ...same, host: "a:1", state: "down", error: DOWN },
      { ...same, host: "b:1", state: "down", error: { message: "no answer in time" } },
      { ...same, host: "a:1", state: "up", error: undefined },
    ]);
  });

  test("becomes refused after it was down, and does not alternate", () => {
    using messages = new Messages<MemberMessage>(CHANNELS.member);
    for (const error of [DOWN, REFUSED, DOWN, REFUSED]) leave("a:1", error);

    expect(messages.all.map(({ state }) => state)).toEqual(["down", "refused"]);
    expect(messages.all[1]?.error).toBe(REFUSED);
  });
});

describe("the failures of hosts", () => {
  test("are known by their time, whatever was answered since", () => {
    hosts.attemptFailed("a:1", DOWN);
    clock.advance(1000);
    const since = clock.monotonic();
    expect(hosts.failuresSince(since).size).toBe(0);
    hosts.attemptFailed("b:1", REFUSED);
    hosts.answered("b:1", 1);

    expect(hosts.failuresSince(since)).toEqual(new Map([["b:1", REFUSED]]));
    expect([...hosts.failuresSince(since - 1000).keys()]).toEqual(["a:1", "b:1"]);
  });

  test("are listed in the order in which the hosts began to fail", () => {
    for (const host of ["b:1", "a:1", "b:1"]) hosts.streamFailed(host, DOWN);
    expect([...hosts.failuresSince(0).keys()]).toEqual(["b:1", "a:1"]);
    expect([...hosts.whyUnanswered().keys()]).toEqual(["b:1", "a:1"]);
    hosts.answered("c:1", 1);
    for (const host of ["a:1", "b:1"]) hosts.streamFailed(host, DOWN);
    expect([...hosts.whyUnanswered().keys()]).toEqual(["a:1", "b:1"]);
  });

  test("are those of the health report until the same host answers", () => {
    hosts.attemptFailed("a:1", DOWN);
    hosts.streamFailed("b:1", undefined);
    clock.advance(1000);
    expect(hosts.lastContactFailed).toBe(true);
    hosts.contacted("a:1");

    expect(hosts.lastContactFailed).toBe(false);
    const message = "no answer to a renewal or a probe";
    expect([...hosts.silentHosts]).toMatchObject([["b:1", { error: { message }, ms: 1000 }]]);
  });

  test("are those of an unanswered call until any host answers an attempt", () => {
    expect(hosts.whyUnanswered().size).toBe(0);
    hosts.hostInUse = "a:1";
    expect([...hosts.whyUnanswered()]).toMatchObject([["a:1", { message: "no answer yet" }]]);
    hosts.unanswered("a:1", REFUSED);
    hosts.streamFailed("b:1", DOWN);

    expect(hosts.attemptsFail).toBe(true);
    expect([...hosts.whyUnanswered()]).toEqual([
      ["a:1", REFUSED],
      ["b:1", DOWN],
    ]);
    hosts.answered("c:1", 1);
    expect(hosts.attemptsFail).toBe(false);
    hosts.unanswered("c:1", DOWN);
    expect([...hosts.whyUnanswered()]).toEqual([["c:1", DOWN]]);
  });

  test("are those since a call began, though another call was answered meanwhile", () => {
    hosts.hostInUse = "a:1";
    hosts.unanswered("b:1", DOWN);
    clock.advance(1000);
    hosts.unanswered("a:1", REFUSED);
    hosts.answered("a:1", 1);
    clock.advance(100);

    expect([...hosts.whyUnanswered(500)]).toEqual([["a:1", REFUSED]]);
    expect([...hosts.whyUnanswered(50)]).toMatchObject([["a:1", { message: "no answer yet" }]]);
  });

  test("make a cluster unreachable only if each host is, and none has ever answered", () => {
    for (const host of HOSTS) {
      expect(hosts.unreachable).toBe(false);
      hosts.unanswered(host, DOWN);
    }
    expect(hosts.unreachable).toBe(true);
    hosts.rejected("b:1");
    expect(hosts.unreachable).toBe(false);
  });
});

test("a host that asks for fewer pings gets fewer, down to one in five minutes", () => {
  for (let n = 0; n < 2; n++) hosts.pingedTooOften("a:1");
  expect([hosts.pingMsOf("a:1"), hosts.pingMsOf("b:1")]).toEqual([4 * PING_MS, PING_MS]);
  for (let n = 0; n < 9; n++) hosts.pingedTooOften("a:1");
  expect(hosts.pingMsOf("a:1")).toBe(320_000);
});

describe("the identity of the etcd cluster", () => {
  const header = (clusterId: string) => ({ ...HEADER, clusterId });

  test("is the one of the first host that answers; a host of another cluster is refused, and the error names both", () => {
    hosts.check("a:1", header("10"));

    expect(() => hosts.check("b:1", header("11"))).toThrow(MemberRefusedError);
    expect(() => hosts.check("b:1", header("11"))).toThrow("cluster b, but a:1 to a:");
    expect(HOSTS.map((host) => hosts.knows(host))).toEqual([true, false, false]);
  });

  test("changes when every host has another one, as after a restore", () => {
    for (const host of ["a:1", "b:1"]) hosts.check(host, header("10"));

    expect(() => hosts.check("a:1", header("11"))).toThrow(MemberRefusedError);
    hosts.check("b:1", header("11"));

    hosts.check("a:1", header("11"));
    expect(hosts.knows("a:1")).toBe(true);
  });

  test("does not stay that of a host that has long been silent, as one that is down since a restore", () => {
    hosts.check("c:1", header("10"));
    clock.advance(20_000);
    hosts.check("a:1", header("10"));
    clock.advance(10_001);

    expect(() => hosts.check("b:1", header("11"))).toThrow("a:1");
    hosts.check("a:1", header("11"));
    hosts.check("b:1", header("11"));
  });

  test("is kept by the hosts that DNS has replaced, until they have been silent for long", () => {
    hosts = new Hosts([...HOSTS], clock, PING_MS);
    hosts.check("a:1", header("10"));
    clock.advance(1000);
    hosts.check("b:1", header("10"));

    hosts.replaceWith(["x:1"]);
    expect(hosts.isOnly).toBe(false);
    expect(() => hosts.check("x:1", header("11"))).toThrow("cluster b, but b:1 to a:");
    clock.advance(30_000);
    hosts.check("x:1", header("11"));
    expect(hosts.knows("x:1")).toBe(true);
  });

  test("is read from the next host whose cluster is not known", () => {
    hosts.hostInUse = "b:1";
    expect(hosts.second).toBe("c:1");
    hosts.check("c:1", header("10"));
    expect(hosts.second).toBe("a:1");
    hosts.check("a:1", header("10"));
    expect(hosts.second).toBeUndefined();
  });
});
