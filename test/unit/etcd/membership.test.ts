import { beforeEach, describe, expect, test } from "vitest";
import { Hosts } from "../../../src/etcd/hosts.js";
import { Membership } from "../../../src/etcd/membership.js";
import type { Member, MembersAnswer } from "../../../src/etcd/port.js";
import { checkConnect } from "../../../src/base/options/connect.js";
import { FakeClock, settle } from "../../support/fakes/fake-clock.js";
import { HEADER } from "../../support/fakes/fake-connection.js";

const A = "http://a:2379";
const FOLLOW_MS = 10_000;

let clock: FakeClock;
let hosts: Hosts;
let asked: number;
let answer: () => Promise<MembersAnswer>;

beforeEach(() => {
  clock = new FakeClock();
  asked = 0;
});

const listed = (...members: [clientUrls: string[], isLearner?: boolean][]): Promise<MembersAnswer> =>
  Promise.resolve({
    header: HEADER,
    members: members.map(([clientUrls, isLearner = false]) => ({ clientUrls, isLearner })),
  });

const member = (host = A) => ({ host, members: () => (asked++, answer()) }) as unknown as Member;

function follow(given: object = { hosts: A }) {
  const options = checkConnect({ followMembers: true, ...given });
  hosts = new Hosts(options.hosts, clock, 6000);
  for (const name of options.hosts) hosts.check(name, HEADER);
  return new Membership(options, hosts, clock, () => Promise.reject(new Error("no DNS")));
}

describe("etcd's list of its members", () => {
  test("is read once for each connection, and every 10 s while it lasts", async () => {
    answer = () => listed([["http://b:2379"]]);
    const membership = follow();
    const first = member();

    for (let n = 0; n < 3; n++) membership.used(first);
    await settle();
    expect([asked, ...hosts.names]).toEqual([1, A, "http://b:2379"]);
    answer = () => listed([["http://c:2379"]]);
    clock.advance(FOLLOW_MS);
    await settle();
    expect([asked, ...hosts.names]).toEqual([2, A, "http://c:2379"]);
    membership.left();
    clock.advance(10 * FOLLOW_MS);
    expect(asked).toBe(2);
    membership.used(member());
    expect(asked).toBe(3);
    membership.close();
    clock.advance(10 * FOLLOW_MS);
    expect(asked).toBe(3);
  });

  test("may be missing: the hosts that are known stay", async () => {
    answer = () => listed([["http://b:2379"]]);
    const membership = follow();
    membership.used(member());
    await settle();
    answer = () => Promise.reject(new Error("permission denied"));

    clock.advance(FOLLOW_MS);
    await settle();

    expect(hosts.names).toEqual([A, "http://b:2379"]);
  });

  test("adds what can be reached as the hosts are, and nothing else", async () => {
    answer = () =>
      listed(
        [["http://B:2380/", "https://b:2380", "unix:///b", "http://u:p@b:1", "b", "\u0000", ""]],
        [[]],
        [["http://learner:1"], true],
        [["http://c:1,http://d:1", `http://${"x".repeat(9999)} :1`]],
        [[A]],
      );
    follow().used(member());
    await settle();
    expect(hosts.names).toEqual([A, "http://b:2380", "http://b:2379"]);
  });

  test("is cut after 64 URLs", async () => {
    answer = () => listed([Array.from({ length: 9000 }, (_, n) => `http://m${n}:1`)]);
    follow().used(member());
    await settle();
    expect(hosts.names).toHaveLength(1 + 64);
  });

  test("of another cluster is not taken", async () => {
    answer = () =>
      listed([["http://b:2379"]]).then((found) => ({ ...found, header: { ...HEADER, clusterId: "2" } }));
    follow({ hosts: [A, "http://z:1"] }).used(member());
    await settle();
    expect(hosts.names).toEqual([A, "http://z:1"]);
  });

  test("that arrives after the member was left, or after the end, is not taken", async () => {
    for (const end of ["left", "close"] as const) {
      answer = () => listed([["http://b:2379"]]);
      const membership = follow();
      membership.used(member());
      membership[end]();
      await settle();
      expect(hosts.names).toEqual([A]);
    }
  });

  test("keeps what is known of hosts, and the one in use while it works", () => {
    const membership = follow({ hosts: [A, "http://b:1"] });
    hosts.hostInUse = "http://b:1";
    hosts.contacted("http://b:1");
    hosts.pingedTooOften(A);

    hosts.replaceWith([A, "http://c:1"]);

    expect(hosts.names).toEqual([A, "http://c:1", "http://b:1"]);
    expect(hosts.pingMsOf(A)).toBe(12_000);
    expect(hosts.pingMsOf("http://gone:1")).toBe(6000);

    hosts.streamFailed("http://b:1", undefined);
    hosts.replaceWith([A, "http://c:1"]);
    expect(hosts.names).toEqual([A, "http://c:1"]);
    membership.close();
  });
});

describe("the hosts of DNS", () => {
  const record = (name: string, priority: number, weight: number) => ({ name, port: 1, priority, weight });

  test("are one for each record, whatever its target contains", async () => {
    const options = checkConnect({ hosts: "srv:a" });
    hosts = new Hosts(options.hosts, clock, 6000);
    const records = [record("a:1,http://b", 1, 1), record("c", 1, 1)];
    await new Membership(options, hosts, clock, () => Promise.resolve(records)).find({ timeoutMs: 1000 });
    expect(hosts.names).toEqual(["http://c:1"]);
  });

  test("begin with the lowest priority, and among equals by chance and weight", async () => {
    const first = new Map<string, number>();
    const last = new Set<string>();
    let state = 1;
    for (let n = 0; n < 2000; n++) {
      const options = checkConnect({ hosts: "srv:a" });
      hosts = new Hosts(options.hosts, clock, 6000);
      const records = [record("backup", 2, 9), record("a", 1, 30), record("b", 1, 10), record("never", 1, 0)];
      const chance = Object.assign(new FakeClock(), {
        random: () => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647,
      });
      const membership = new Membership(options, hosts, chance, () => Promise.resolve(records));
      await membership.find({ timeoutMs: 1000 });
      first.set(hosts.names[0]!, (first.get(hosts.names[0]!) ?? 0) + 1);
      last.add(hosts.names.at(-1)!);
    }
    expect(last).toEqual(new Set(["http://backup:1"]));
    const share = (first.get("http://a:1") ?? 0) / (first.get("http://b:1") ?? 1);
    expect(share).toBeGreaterThan(2.4);
    expect(share).toBeLessThan(3.7);
    expect(first.get("http://never:1") ?? 0).toBeLessThan(10);
  });
});

describe("a call that waits for DNS", () => {
  test.each([
    ["ENOTFOUND", "unreachable"],
    ["ENODATA", "unreachable"],
    ["ESERVFAIL", undefined],
    ["ETIMEOUT", undefined],
  ])("takes %s for a failure of the kind %s", async (code, kind) => {
    const options = checkConnect({ hosts: "srv:a" });
    const failing = () => Promise.reject(Object.assign(new Error(`querySrv ${code}`), { code }));
    const membership = new Membership(options, new Hosts(options.hosts, clock, 6000), clock, failing);

    const found = membership.find({ timeoutMs: 500 });

    await expect(found).rejects.toMatchObject({ kind, inDoubt: false, message: `querySrv ${code}` });
  });

  test("ends with its limit, and with its signal", async () => {
    const options = checkConnect({ hosts: "srv:a" });
    const membership = new Membership(
      options,
      new Hosts(options.hosts, clock, 6000),
      clock,
      () => new Promise<never>(() => undefined),
    );
    const late = membership.find({ timeoutMs: 500 });
    const { signal, abort } = stoppable();
    const stopped = membership.find({ timeoutMs: 500, signal });

    abort();
    clock.advance(500);

    await expect(late).rejects.toMatchObject({
      kind: undefined,
      message: "no answer of DNS within 500 ms",
    });
    await expect(stopped).rejects.toMatchObject({ kind: "cancelled" });
  });
});

function stoppable() {
  const stop = new AbortController();
  return { signal: stop.signal, abort: () => stop.abort() };
}
