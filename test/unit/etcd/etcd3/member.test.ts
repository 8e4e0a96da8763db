import { expect, test } from "vitest";
import { Etcd3Member } from "../../../../src/etcd/etcd3/member.js";
import { checkConnect } from "../../../../src/base/options/connect.js";
import { FakeClock, settle } from "../../../support/fakes/fake-clock.js";

const HOST = "127.0.0.1:1";

test("the time limit of a call does not cover the loading of etcd3", async () => {
  const clock = new FakeClock();
  const setting = { token: () => undefined, pingMs: 6000 };
  const member = new Etcd3Member(HOST, setting, { options: checkConnect({ hosts: HOST }), clock });
  const call = member.range({ key: "a" }, { timeoutMs: 100 });
  const failure = call.catch((error: Error) => error.message);

  expect(member.loading).toBeDefined();
  expect(clock.timers).toBe(0);

  await member.loading;
  await settle();
  expect(member.loading).toBeUndefined();
  expect(clock.timers).toBe(1);
  clock.advance(100);
  expect(await failure).toMatch(/^(no connection within 100 ms|connect ECONNREFUSED .*)$/);
  member.retire();
});
