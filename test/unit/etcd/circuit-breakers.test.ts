import { beforeEach, expect, test } from "vitest";
import { CircuitBreakers } from "../../../src/etcd/hosts.js";
import { FakeClock } from "../../support/fakes/fake-clock.js";

const HOSTS = ["a:1", "b:1", "c:1"];
const OPEN_MS = 1000;

let clock: FakeClock;
let breakers: CircuitBreakers;

beforeEach(() => {
  clock = new FakeClock();
  breakers = new CircuitBreakers(HOSTS, clock);
});

const fail = (host: string, times: number) => {
  for (let n = 0; n < times; n++) breakers.failed(host);
};

test("members take turns while none has failed", () => {
  expect([0, 1, 2, 3].map((start) => breakers.firstUsable(start))).toEqual([0, 1, 2, 0]);
});

test("one failure is no reason to pass a member over, two in a row are", () => {
  fail("b:1", 1);
  expect(breakers.firstUsable(1)).toBe(1);
  fail("b:1", 1);
  expect(breakers.firstUsable(1)).toBe(2);
});

test("an answer between two failures leaves the member in use", () => {
  fail("b:1", 1);
  breakers.succeeded("b:1");
  fail("b:1", 1);
  expect(breakers.firstUsable(1)).toBe(1);
});

test("a member is tried again a second after its last failure, and passed over again if it fails once more", async () => {
  fail("b:1", 2);
  await clock.pass(OPEN_MS - 1);
  expect(breakers.firstUsable(1)).toBe(2);
  await clock.pass(1);
  expect(breakers.firstUsable(1)).toBe(1);
  fail("b:1", 1);
  expect(breakers.firstUsable(1)).toBe(2);
});

test("failures of calls that were under way do not keep a member passed over for longer", async () => {
  fail("b:1", 2);
  await clock.pass(OPEN_MS / 2);
  fail("b:1", 1);
  await clock.pass(OPEN_MS / 2);
  expect(breakers.firstUsable(1)).toBe(1);
});

test("members that have all failed take turns", () => {
  for (const host of HOSTS) fail(host, 2);
  expect([0, 1, 2, 3].map((start) => breakers.firstUsable(start))).toEqual([0, 1, 2, 0]);
});

test("outcomes of an unknown host change nothing", () => {
  fail("d:1", 2);
  breakers.succeeded("d:1");
  expect(breakers.firstUsable(0)).toBe(0);
});
