import { describe, expect, test } from "vitest";
import { connect, Election, Session } from "../../../src/index.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { takesPlace } from "../../support/clients/request-shape.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { abortOf, queued as joined } from "../../support/clients/session-client.js";
import { revoke } from "../../support/clients/lease-calls.js";

const TTL_SECONDS = 20;
const TXN = "/etcdserverpb.KV/Txn";

const two = twoSessions(TTL_SECONDS);
const { places } = two;
/** Waits until etcd has this many places under the name. */
const queued = (name: string, count: number) => joined(two.etcd.member, name, count);

const deleteKey = (key: string) => two.etcd.etcdctl(["del", key]);
/** What etcd stores under a key. */
const valueOf = async (key: string) =>
  (await two.etcd.etcdctl(["get", key, "--print-value-only"])).stdout.slice(0, -1);

describe("a candidate", () => {
  test("leads at once when nobody does, under Go's key, with its value, and everybody can ask who leads", async () => {
    const election = new Election(two.holder, "elect/alone");
    expect(await election.leader()).toBeUndefined();

    const leadership = await election.campaign("first");
    const leader = await new Election(two.cluster, "elect/alone").leader();

    expect(leadership.key).toBe(`elect/alone/${two.holder.leaseId.toString(16)}`);
    expect(leader).toEqual({
      key: leadership.key,
      value: "first",
      fence: leadership.fence,
      modRevision: leadership.fence,
      leaseId: two.holder.leaseId,
    });
    expect(JSON.parse(JSON.stringify(leader))).toEqual({
      key: leadership.key,
      value: "first",
      fence: String(leadership.fence),
      modRevision: String(leadership.fence),
      leaseId: String(two.holder.leaseId),
    });
    await leadership.resign();
    expect(await election.leader()).toBeUndefined();
  });

  test("campaigns once at a time, and again after it has resigned or was lost", async () => {
    const name = "elect/twice";
    const rival = await new Election(two.holder, name).campaign("rival");
    const election = new Election(two.session, name);
    const waiting = election.campaign("mine");
    await queued(name, 2);
    expect(await reasonOf(election.campaign("mine too"))).toMatchObject({ code: "DEADLOCK" });
    await rival.resign();
    const first = await waiting;
    expect(await reasonOf(election.campaign("mine too"))).toMatchObject({ code: "DEADLOCK", lockName: name });
    expect(await places(name)).toHaveLength(1);

    void first.resign();
    const second = await election.campaign("again");
    await deleteKey(second.key);
    await abortOf(second.signal);
    const third = await election.campaign("and again");

    expect([first.fence < second.fence, second.fence < third.fence]).toEqual([true, true]);
    await third.resign();
  });

  test("that gave up, or whose time is over, leaves no place and may campaign again", async () => {
    const name = "elect/gives-up";
    const leadership = await new Election(two.holder, name).campaign("leader");
    const election = new Election(two.session, name);
    const caller = new AbortController();
    const aborted = reasonOf(election.campaign("a", { signal: caller.signal }));
    await queued(name, 2);

    caller.abort("enough");
    expect(await aborted).toBe("enough");
    expect(await reasonOf(election.campaign("b", { timeoutMs: 1000 }))).toMatchObject({
      code: "LOCK_TIMEOUT",
    });
    await queued(name, 1);
    const waiting = election.campaign("c");
    await leadership.resign();

    await (await waiting).resign();
    await queued(name, 0);
  });

  test.each([
    ["none at all", ""],
    ["64 KiB", "é".repeat(32_768)],
    ["lines, quotes and zeros", '{"a":\n"\u0000"}'],
  ])("can have any text for its value: %s", async (what, value) => {
    const election = new Election(two.session, `elect/values/${what}`);
    const leadership = await election.campaign(value);
    expect((await election.leader())?.value).toBe(value);

    await leadership.proclaim("other");
    await leadership.proclaim(value);

    expect((await election.leader())?.value).toBe(value);
    await leadership.resign();
  });

  // A request of its own that a proxy has repeated looks the same; and there is one living process per lease.
  test("recognizes its own key by its lease and its value", async () => {
    const name = "elect/same-lease";
    const { leaseId } = two.session;
    const key = `${name}/${leaseId.toString(16)}`;
    await two.etcd.etcdctl(["put", key, "same", `--lease=${leaseId.toString(16)}`]);

    const leadership = await new Election(two.session, name).campaign("same");

    expect(leadership.key).toBe(key);
    await leadership.resign();
    expect(await places(name)).toEqual([]);
  });

  test("of many with large values all join, though what they ask for exceeds one request together", async () => {
    const name = "elect/crowd";
    const value = "v".repeat(65_536);
    const candidates = Array.from({ length: 40 }, () => new Election(two.session, name));
    let terms = 0;

    await Promise.all(
      candidates.map(async (candidate) => {
        const leadership = await candidate.campaign(value);
        terms++;
        await leadership.resign();
      }),
    );

    expect(terms).toBe(40);
  });
});

describe("a leader", () => {
  test("proclaims under the same key and fence, each time with a higher revision, in the order of its calls", async () => {
    const election = new Election(two.session, "lead/proclaims");
    const leadership = await election.campaign("0");
    const first = await election.leader();

    await leadership.proclaim("1");
    const second = await election.leader();
    await Promise.all(["2", "3", "4"].map((value) => leadership.proclaim(value)));
    const last = await election.leader();

    expect([first, second, last].map((leader) => leader?.value)).toEqual(["0", "1", "4"]);
    expect(new Set([first, second, last].map((leader) => leader?.fence))).toEqual(
      new Set([leadership.fence]),
    );
    expect([second!.modRevision > first!.modRevision, last!.modRevision - second!.modRevision]).toEqual([
      true,
      3n,
    ]);
    await leadership.resign();
    expect(await reasonOf(leadership.proclaim("5"))).toMatchObject({ code: "LOCK_RELEASED" });
  });

  test("learns at once that its key was deleted, even early in its term and while its lease lives", async () => {
    const leadership = await new Election(two.session, "lead/deleted").campaign("x");

    await deleteKey(leadership.key);

    expect(await abortOf(leadership.signal)).toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
    expect(two.session.state).toBe("live");
    expect(await reasonOf(leadership.proclaim("y"))).toBe(leadership.signal.reason);
    expect(await reasonOf(leadership.resign())).toBe(leadership.signal.reason);
  });

  test("whose session is revoked learns of it, and can proclaim nothing more", async () => {
    await using cluster = connect({ hosts: two.etcd.endpoints });
    const session = await Session.open(cluster, { ttlSeconds: 10 });
    const leadership = await new Election(session, "lead/revoked").campaign("x");

    await revoke(two.etcd.member, session.leaseId);

    expect(await reasonOf(leadership.proclaim("y"))).toMatchObject({ code: "LOCK_LOST" });
    expect(leadership.held).toBe(false);
    expect(await places("lead/revoked")).toEqual([]);
  });

  test("proclaims over what somebody else has written under its key", async () => {
    const leadership = await new Election(two.session, "lead/overwritten").campaign("mine");
    await two.etcd.etcdctl(["put", leadership.key, "theirs", "--ignore-lease"]);

    await leadership.proclaim("mine again");

    expect(await valueOf(leadership.key)).toBe("mine again");
    await leadership.resign();
  });
});

describe("a proclamation", () => {
  /** A leader with its own connection. */
  async function stage(name: string) {
    const proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
    const cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 300 });
    const session = await Session.open(cluster, { ttlSeconds: TTL_SECONDS });
    const leadership = await new Election(session, name).campaign("0");
    const stop = async () => {
      await cluster.close({ drainMs: 0 });
      await proxy.stop();
    };
    return { proxy, leadership, [Symbol.asyncDispose]: stop };
  }

  test.each([
    ["answer is lost", "drop-answer"],
    ["answer is lost with its connection", "cut-answer"],
    ["request is lost", "drop-request"],
  ] as const)("whose first %s is made once", async (what, act) => {
    await using scene = await stage(`proclaim/${what}`);
    const { proxy, leadership } = scene;
    const fault = proxy.rule({ path: TXN, act, when: takesPlace, times: 1 });

    await leadership.proclaim("1");
    await leadership.proclaim("2");

    expect(fault.hits).toBe(1);
    const { kvs } = (await two.etcd.member.gateway("/v3/kv/range", {
      key: Buffer.from(leadership.key).toString("base64"),
    })) as { kvs: { version: string; create_revision: string }[] };
    // One campaign and two proclamations.
    expect(kvs).toMatchObject([{ version: "3", create_revision: String(leadership.fence) }]);
    expect(await valueOf(leadership.key)).toBe("2");
  });

  test("that arrives late does not overwrite what was proclaimed since, nor come back after the term", async () => {
    const name = "proclaim/late";
    await using scene = await stage(name);
    const { proxy, leadership } = scene;
    const late = proxy.rule({ path: TXN, act: "hold", when: takesPlace, times: 1 });
    await leadership.proclaim("1");
    const later = proxy.rule({ path: TXN, act: "hold", when: takesPlace, times: 1 });
    await leadership.proclaim("2");

    late.release();
    await late.answered();
    expect(await valueOf(leadership.key)).toBe("2");
    await leadership.resign();
    later.release();
    await later.answered();

    expect(await places(name)).toEqual([]);
  });

  test("finds out that the key is gone before the watch has told it, and ends the term", async () => {
    await using scene = await stage("proclaim/gone");
    const { leadership } = scene;
    const other = new Election(two.holder, "proclaim/gone");
    // The key is deleted and put again at once, with another create revision.
    const put = { key: Buffer.from(leadership.key).toString("base64"), value: "" };
    await two.etcd.member.gateway("/v3/kv/deleterange", { key: put.key });
    await two.etcd.member.gateway("/v3/kv/put", put);

    expect(await reasonOf(leadership.proclaim("1"))).toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
    expect(leadership.held).toBe(false);
    expect((await other.leader())?.value).toBe("");
    await deleteKey(leadership.key);
  });
});

describe("a campaign on an adopted session", () => {
  test.each([
    ["with the same value leads under the same key and fence, and writes nothing", "mine"],
    ["with another value has proclaimed it before it leads", "other"],
  ])("%s", async (_, value) => {
    const name = `adopted/${value}`;
    const session = await Session.open(two.cluster, { ttlSeconds: TTL_SECONDS });
    const before = await new Election(session, name).campaign("first");
    await before.proclaim("mine");
    const rival = new Election(two.holder, name).campaign("rival");
    await queued(name, 2);
    const adopted = await Session.adopt(two.cluster, await session.orphan());

    const after = await new Election(adopted, name).campaign(value);

    expect([after.key, after.fence]).toEqual([before.key, before.fence]);
    expect(await new Election(two.cluster, name).leader()).toMatchObject({ value, fence: before.fence });
    await after.resign();
    await (await rival).resign();
    await adopted.close();
  });
});
