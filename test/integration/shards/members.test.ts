// Groups on a real etcd: who is in it is read from etcd, beside what `members` tells.
import { expect, test } from "vitest";
import { connect, join, type MemberList, members, Session } from "../../../src/index.js";
import { revoke } from "../../support/clients/lease-calls.js";
import { placesOf } from "../../support/clients/server-view.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";

const two = twoSessions(20);
const keys = async (name: string) =>
  (await placesOf(two.etcd.member, `${name}/members`)).map(({ key }) => key);

/** The next list that differs from the one before. */
async function nextOf(lists: AsyncIterableIterator<MemberList>): Promise<MemberList> {
  return ((await lists.next()) as IteratorYieldResult<MemberList>).value;
}

const shown = ({ members: all }: MemberList) => all.map(({ id, value, state }) => [id, value, state]);

test("members see one another join, change and leave, in the order of their joins", async () => {
  const lists = members(two.cluster, "workers");
  expect(shown(await nextOf(lists))).toEqual([]);
  const a = await join(two.holder, "workers", "10.0.0.1", { id: "a", zone: "east", capacity: 3 });
  const list = await nextOf(lists);
  expect(list.members).toMatchObject([
    {
      id: "a",
      value: "10.0.0.1",
      owner: "the holder",
      zone: "east",
      capacity: 3,
      leaseId: two.holder.leaseId,
    },
  ]);
  expect(list.members[0]?.key).toBe(a.key);
  const b = await join(two.session, "workers", "10.0.0.2", { id: "b" });
  expect(shown(await nextOf(lists))).toEqual([
    ["a", "10.0.0.1", "active"],
    ["b", "10.0.0.2", "active"],
  ]);
  await a.update({ state: "draining", value: "gone soon" });
  expect(shown(await nextOf(lists))[0]).toEqual(["a", "gone soon", "draining"]);
  await a.leave();
  await a.leave();
  expect(shown(await nextOf(lists))).toEqual([["b", "10.0.0.2", "active"]]);
  expect(await keys("workers")).toEqual([b.key]);
  await expect(a.update({ value: "again" })).rejects.toThrow(/has left the group/);
  await b.leave();
  await lists.return?.();
});

test("one session may have several places in a group, each with a key of its own", async () => {
  await using one = await join(two.session, "several", "1", { id: "one" });
  await using other = await join(two.session, "several", "2", { id: "other" });
  expect(await keys("several")).toEqual([one.key, other.key]);
  await one.leave();
  expect(await keys("several")).toEqual([other.key]);
});

test("a session that another one replaces stays for the last of its members", async () => {
  const session = { ttlSeconds: 2, releaseDelayMs: 60_000 };
  await using cluster = connect({ hosts: two.etcd.endpoints, session });
  const first = await cluster.session();
  const [left, stays] = await Promise.all([join(cluster, "left", "x"), join(cluster, "stays", "x")]);
  await revoke(two.etcd.member, first.leaseId | 1n);
  await expect.poll(async () => (await cluster.session()).leaseId).not.toBe(first.leaseId);
  const renewed = async (): Promise<void> => {
    let lastMs = Infinity;
    const isRenewed = (): boolean => first.remainingMs() > lastMs || (lastMs = first.remainingMs()) === 0;
    await expect.poll(isRenewed).toBe(true);
  };

  await left.leave();
  await renewed();
  await renewed();

  expect(stays.signal.aborted).toBe(false);
  expect(await keys("stays")).toEqual([stays.key]);
  await stays.leave();
  await expect.poll(() => first.state).toBe("closed");
});

test("a member goes with its session, and is told", async () => {
  const session = await Session.open(two.cluster);
  const place = await join(session, "gone", "x");
  expect(place.signal.aborted).toBe(false);
  await session.close();
  expect(place.signal.aborted).toBe(true);
  expect(await keys("gone")).toEqual([]);
  await expect(place.update({ value: "y" })).rejects.toMatchObject({ code: "SESSION_CLOSED" });
  await place.leave();
});

test("the key of a member that somebody has deleted is put again with its next change", async () => {
  await using place = await join(two.session, "deleted", "x");
  await two.etcd.member.gateway("/v3/kv/deleterange", { key: Buffer.from(place.key).toString("base64") });
  expect(await keys("deleted")).toEqual([]);
  await place.update({ value: "y" });
  expect(await keys("deleted")).toEqual([place.key]);
});

test("values of other programs in the place of a member's are ignored, whatever they are", async () => {
  await using place = await join(two.session, "hostile", "x", { id: "good" });
  const lease = two.session.leaseId.toString();
  const put = (key: string, value: string) =>
    two.etcd.member.gateway("/v3/kv/put", {
      key: Buffer.from(`hostile/members/${key}`).toString("base64"),
      value: Buffer.from(value).toString("base64"),
      lease,
    });
  const valid = { member: "m", value: "", owner: "o", capacity: 1, state: "active" };
  await put("text", "no JSON");
  await put("open", "{".repeat(100_000));
  await put("null", "null");
  await put("capacity", JSON.stringify({ ...valid, capacity: -1 }));
  await put("state", JSON.stringify({ ...valid, state: "dead" }));
  await put("long", JSON.stringify({ ...valid, member: "m".repeat(257) }));
  await put("other", JSON.stringify({ ...valid, zone: 17, shards: "x" }));
  const lists = members(two.cluster, "hostile");
  expect(shown(await nextOf(lists))).toEqual([
    ["good", "x", "active"],
    ["m", "", "active"],
  ]);
  await lists.return?.();
  expect(place.id).toBe("good");
});

test("an abort ends the call, and its key does not stay", async () => {
  const stop = new AbortController();
  const joining = join(two.session, "aborted", "x", { signal: stop.signal });
  stop.abort(new Error("enough"));
  await expect(joining).rejects.toThrow("enough");
  await expect.poll(() => keys("aborted")).toEqual([]);
});

test("a member that has left does not come back by an attempt that etcd executes late", async () => {
  await using proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
  await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 300 });
  const session = await Session.open(cluster, { ttlSeconds: 20 });
  const late = proxy.rule({
    ...{ path: "/etcdserverpb.KV/Txn", act: "hold", times: 1 },
    when: (request) => request.includes("late/members/"),
  });
  const place = await join(session, "late", "x");
  expect(late.hits).toBe(1);
  await place.leave();
  expect(await keys("late")).toEqual([]);

  late.release();
  await late.answered();

  await expect.poll(() => keys("late")).toEqual([]);
  expect(session.state).toBe("live");
});

test("a member that has left does not come back by an attempt that etcd executes again", async () => {
  await using proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
  await using cluster = connect({ hosts: proxy.endpoint });
  const session = await Session.open(cluster, { ttlSeconds: 2 });
  const again = proxy.rule({
    ...{ path: "/etcdserverpb.KV/Txn", act: "repeat-late", times: 1 },
    when: (request) => request.includes("again/members/"),
  });
  const place = await join(session, "again", "x");
  await place.leave();
  expect(await keys("again")).toEqual([]);

  again.release();
  await again.answered();

  await expect.poll(() => keys("again")).toEqual([]);
  expect(session.state).toBe("live");
});

test("a call that etcd rejects after a lost answer leaves no member", async () => {
  await using proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
  await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 300 });
  const session = await Session.open(cluster, { ttlSeconds: 20 });
  const puts = (request: Buffer) => request.includes("rejected/members/");
  const status = { code: 8, details: "etcdserver: mvcc: database space exceeded" };
  const path = "/etcdserverpb.KV/Txn";
  const lost = proxy.rule({ path, act: "drop-answer", when: puts, times: 1 });
  proxy.rule({ path, act: "refuse", when: puts, times: 1, status });

  await expect(join(session, "rejected", "x")).rejects.toMatchObject({ code: "ETCD_REFUSED" });

  expect(lost.hits).toBe(1);
  await expect.poll(() => keys("rejected")).toEqual([]);
});

test.each([
  [
    "value",
    () => join(two.session, "bad", "x".repeat(4097)),
    /value to be a well-formed string of at most 4096/,
  ],
  ["name", () => join(two.session, "/bad", "x"), /name to be free of "\/" at its ends/],
  ["id", () => join(two.session, "bad", "x", { id: "" }), /id to be a string of 1 to 256 bytes/],
  ["capacity", () => join(two.session, "bad", "x", { capacity: 1001 }), /capacity to be a whole number/],
  ["option", () => join(two.session, "bad", "x", { zon: "a" } as never), /Unknown option zon of join.*zone/],
])("a bad %s is refused", async (_what, call, message) => {
  await expect(call()).rejects.toThrow(message);
});
