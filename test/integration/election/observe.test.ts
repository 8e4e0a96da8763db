import { describe, expect, test } from "vitest";
import { connect, Election, type Leader, Session } from "../../../src/index.js";
import { leasesOf } from "../../support/clients/server-view.js";
import { nextLeader } from "../../support/fixtures/next-leader.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { queued as joined } from "../../support/clients/session-client.js";

const two = twoSessions(20);
/** Next to other tests, what takes a process milliseconds alone may take seconds. */
const PATIENCE = { timeout: 10_000 };
/** Waits until etcd has this many places under the name. */
const queued = (name: string, count: number) => joined(two.etcd.member, name, count);

/** Reads an election from now on. */
function reading(name: string, cluster = two.cluster) {
  const iterator = new Election(cluster, name).observe();
  const next = () => nextLeader(iterator);
  const nextValue = async () => (await next())?.value;
  return { next, nextValue, iterator, [Symbol.asyncDispose]: async () => void (await iterator.return?.()) };
}

const values = async (nextValue: () => Promise<string | undefined>, count: number) => {
  const told = [];
  for (let n = 0; n < count; n++) told.push(await nextValue());
  return told;
};

describe("an observer", () => {
  test("sees every leader, value and vacancy, in the order of their revisions", async () => {
    const name = "observe/all";
    await using observer = reading(name);
    expect(await observer.next()).toBeUndefined();
    const election = new Election(two.session, name);

    const first = await election.campaign("a");
    await first.proclaim("b");
    await first.proclaim("b");
    await first.resign();
    const second = await election.campaign("c");
    await second.resign();

    const told: (Leader | undefined)[] = [];
    for (let n = 0; n < 6; n++) told.push(await observer.next());
    expect(told.map((leader) => leader?.value)).toEqual(["a", "b", "b", undefined, "c", undefined]);
    expect(told.slice(0, 3).map((leader) => leader?.fence)).toEqual(Array(3).fill(first.fence));
    const revisions = told.flatMap((leader) => leader?.modRevision ?? []);
    expect(revisions).toEqual([...new Set(revisions)].sort((a, b) => (a < b ? -1 : 1)));
  });

  test("yields the current leader, then its successor with no vacancy in between", async () => {
    const name = "observe/succession";
    const first = await new Election(two.holder, name).campaign("first");
    await using observer = reading(name);
    expect(await observer.nextValue()).toBe("first");
    const waiting = new Election(two.session, name).campaign("second");
    await queued(name, 2);

    await first.resign();

    const told = await observer.next();
    const second = await waiting;
    expect(told).toMatchObject({ value: "second", fence: second.fence, key: second.key });
    await second.resign();
    expect(await observer.next()).toBeUndefined();
  });

  test("sees one change where a session ends that led and had candidates waiting", async () => {
    const name = "observe/session";
    const session = await Session.open(two.cluster, { ttlSeconds: 20 });
    await new Election(session, name).campaign("1");
    for (const value of ["2", "3"]) void reasonOf(new Election(session, name).campaign(value));
    await queued(name, 3);
    const next = new Election(two.session, name).campaign("4");
    await queued(name, 4);
    await using observer = reading(name);
    expect(await observer.nextValue()).toBe("1");

    await two.etcd.member.gateway("/v3/lease/revoke", { ID: session.leaseId.toString() });

    expect(await observer.nextValue()).toBe("4");
    await (await next).resign();
  });

  test("is not told of those who wait, nor of other elections with a like name", async () => {
    const name = "observe/test";
    await two.etcd.etcdctl(["put", "observe/testa", "not a candidate"]);
    const like = await new Election(two.holder, "observe/testa").campaign("another's");
    await using observer = reading(name);
    expect(await observer.next()).toBeUndefined();

    const first = await new Election(two.holder, name).campaign("first");
    const waiter = reasonOf(new Election(two.session, name).campaign("waiter", { timeoutMs: 300 }));
    await like.resign();
    await waiter;
    await queued(name, 1);
    await first.resign();

    expect(await values(observer.nextValue, 2)).toEqual(["first", undefined]);
  });

  test("sees nobody lead while an entry of a nested name comes first, which rejects candidates", async () => {
    const name = "observe/outer";
    const inner = await new Election(two.holder, `${name}/inner`).campaign("inner");
    await using observer = reading(name);
    const outer = new Election(two.session, name);
    expect(await observer.next()).toBeUndefined();
    await expect(outer.campaign("outer")).rejects.toMatchObject({
      code: "KIND_MISMATCH",
      foundName: `${name}/inner`,
    });
    expect(await outer.leader()).toBeUndefined();

    await inner.resign();
    const leadership = await outer.campaign("outer");

    expect(await observer.nextValue()).toBe("outer");
    await leadership.resign();
  });

  test("keeps at most 16 MiB of the values that nobody has read, with the last one", async () => {
    const name = "observe/large";
    await using idle = reading(name);
    await idle.next();
    await using eager = reading(name);
    await eager.next();
    const large = Array.from({ length: 20 }, (_, n) => `${n}`.padEnd(1024 * 1024));
    const leadership = await new Election(two.session, name).campaign("first");
    // Only other clients write so much.
    const base64 = (text: string) => Buffer.from(text).toString("base64");
    const key = base64(leadership.key);
    for (const value of large) {
      await two.etcd.member.gateway("/v3/kv/put", { key, value: base64(value), ignore_lease: true });
      while ((await eager.nextValue()) !== value);
    }

    await leadership.resign();
    const kept = [];
    for (let value; (value = await idle.nextValue()) !== undefined;) kept.push(value.trim());
    expect(kept).toEqual(large.slice(-kept.length).map((value) => value.trim()));
    // The last ones may have come while it has read.
    expect(kept.length).toBeLessThan(19);
    expect(kept.length).toBeGreaterThan(15);
  });

  test("needs no session", async () => {
    await using cluster = connect({ hosts: two.etcd.endpoints });
    const before = await leasesOf(two.etcd.member);
    await using observer = reading("observe/no-session", cluster);

    expect(await observer.next()).toBeUndefined();

    expect(await leasesOf(two.etcd.member)).toEqual(before);
  });
});

describe("observing ends", () => {
  test("with the reason of the signal, for who waits for news as for who comes later", async () => {
    const election = new Election(two.cluster, "ends/abort");
    const caller = new AbortController();
    const iterator = election.observe({ signal: caller.signal });
    await iterator.next();
    const waiting = reasonOf(iterator.next());

    caller.abort("enough");

    expect(await waiting).toBe("enough");
    expect(await iterator.next()).toEqual({ done: true, value: undefined });
    const late = election.observe({ signal: caller.signal });
    expect(await reasonOf(late.next())).toBe("enough");
    expect(await late.next()).toEqual({ done: true, value: undefined });
  });

  test("when the loop is left", async () => {
    const name = "ends/loop";
    const leadership = await new Election(two.session, name).campaign("x");
    const seen = [];

    for await (const leader of new Election(two.cluster, name).observe()) {
      seen.push(leader?.value);
      break;
    }

    expect(seen).toEqual(["x"]);
    await leadership.resign();
  });

  test("for who waits for news when return() is called, and calls beside it", async () => {
    const iterator = new Election(two.cluster, "ends/return").observe();
    await iterator.next();
    const waiting = [iterator.next(), iterator.next()];

    await iterator.return!();

    expect(await Promise.all(waiting)).toEqual(Array(2).fill({ done: true, value: undefined }));
    expect(await iterator.next()).toEqual({ done: true, value: undefined });
  });

  test("with the cluster", async () => {
    const cluster = connect({ hosts: two.etcd.endpoints });
    const iterator = new Election(cluster, "ends/cluster").observe();
    await iterator.next();
    const waiting = reasonOf(iterator.next());

    await cluster.close();

    expect(await waiting).toMatchObject({ code: "SESSION_CLOSED" });
    const late = reasonOf(new Election(cluster, "ends/cluster").observe().next());
    expect(await late).toMatchObject({ code: "SESSION_CLOSED" });
    const leader = reasonOf(new Election(cluster, "ends/cluster").leader());
    expect(await leader).toMatchObject({ code: "SESSION_CLOSED" });
  });

  test("at etcd, too: nothing is watched any more", async () => {
    const name = "ends/watch";
    const watchers = async () =>
      (await two.etcd.member.metrics()).get("etcd_debugging_mvcc_watcher_total") ?? 0;
    const before = await watchers();
    const observers = await Promise.all(
      Array.from({ length: 5 }, async () => {
        const observer = reading(name);
        await observer.next();
        return observer;
      }),
    );
    await expect.poll(watchers, PATIENCE).toBe(before + 5);

    for (const observer of observers) await observer[Symbol.asyncDispose]();

    await expect.poll(watchers, PATIENCE).toBe(before);
  });
});

test("leader() gives up after its time when etcd is silent, or at once when its caller does", async () => {
  await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
  await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 100 });
  const election = new Election(cluster, "leader/silence");
  await election.leader();
  await proxy.mode("refuse");

  expect(await reasonOf(election.leader({ timeoutMs: 300 }))).toMatchObject({ code: "ETCD_UNAVAILABLE" });
  const caller = new AbortController();
  const asked = reasonOf(election.leader({ signal: caller.signal }));
  caller.abort("enough");
  expect(await asked).toBe("enough");
});
