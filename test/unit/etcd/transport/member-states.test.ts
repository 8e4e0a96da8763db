import { expect, test } from "vitest";
import { CHANNELS } from "../../../../src/telemetry/channels.js";
import type { MemberMessage } from "../../../../src/telemetry/messages.js";
import { EtcdRefusedError } from "../../../../src/errors.js";
import { MemberRefusedError, UnansweredError } from "../../../../src/etcd/port.js";
import { MemberStates } from "../../../../src/etcd/hosts.js";
import { FakeClock } from "../../../support/fakes/fake-clock.js";
import { Messages } from "../../../support/fixtures/messages.js";

const HOSTS = ["a:1", "b:1"];
const DOWN = new UnansweredError("connect ECONNREFUSED");
const REFUSED = new MemberRefusedError(new EtcdRefusedError("tls", "a:1", "self-signed certificate"), false);

function world() {
  const clock = new FakeClock();
  const states = new MemberStates(HOSTS, clock);
  const fail = (host: string, error?: Error) => {
    states.failed(host, error);
    states.left(host);
  };
  return { clock, states, fail };
}

test("an episode is published once, with its first error", () => {
  using messages = new Messages<MemberMessage>(CHANNELS.member);
  const { states, fail } = world();
  states.answered("a:1");
  states.answered("a:1");
  fail("a:1", DOWN);
  fail("a:1", new UnansweredError("no answer in time"));
  fail("b:1");
  states.answered("a:1");

  const same = { hosts: HOSTS };
  expect(messages.all).toMatchObject([
    { ...same, host: "a:1", state: "up", error: undefined },
    { ...same, host: "a:1", state: "down", error: DOWN },
    { ...same, host: "b:1", state: "down", error: { message: "no answer in time" } },
    { ...same, host: "a:1", state: "up", error: undefined },
  ]);
});

test("a member that refuses after it was down is published, and does not alternate", () => {
  using messages = new Messages<MemberMessage>(CHANNELS.member);
  const { fail } = world();
  for (const error of [DOWN, REFUSED, DOWN, REFUSED]) fail("a:1", error);

  expect(messages.all.map(({ state }) => state)).toEqual(["down", "refused"]);
  expect(messages.all[1]?.error).toBe(REFUSED);
});

test("failures are known by their time", () => {
  const { clock, states } = world();
  states.failed("a:1", DOWN);
  clock.advance(1000);
  const since = clock.monotonic();
  expect(states.failuresSince(since).size).toBe(0);
  states.failed("b:1", REFUSED);

  expect(states.failuresSince(since)).toEqual(new Map([["b:1", REFUSED]]));
  expect([...states.failuresSince(since - 1000).keys()]).toEqual(HOSTS);
});
