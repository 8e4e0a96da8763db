// The transactions of `once` on a real etcd whose answers are lost, and the end of the session at each of them.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, Mutex, once, type Cluster, type Lock, type OnceOptions } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { spaceAlarm } from "../../support/fixtures/space-alarm.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { startGrpcProxy, type Act, type GrpcProxy } from "../../support/proxies/grpc-proxy.js";

const TXN = "/etcdserverpb.KV/Txn";
const SLOT = 1;

let etcd: EtcdCluster;
let proxy: GrpcProxy;
/** The caller behind the proxy, and one with an undisturbed connection. */
let caller: Cluster;
let other: Cluster;
/** The same two with a prefix. */
let prefixed: readonly [caller: Cluster, other: Cluster];
beforeAll(async () => {
  etcd = await startEtcd();
  proxy = await startGrpcProxy({ port: etcd.member.clientPort });
  const behindProxy = { hosts: proxy.endpoint, requestTimeoutMs: 500, session: { ttlSeconds: 30 } };
  caller = connect(behindProxy);
  other = connect({ hosts: etcd.member.endpoint });
  const prefix = "prod/";
  prefixed = [connect({ ...behindProxy, prefix }), connect({ hosts: etcd.member.endpoint, prefix })];
});
afterAll(async () => {
  await Promise.all([caller, other, ...prefixed].map((cluster) => cluster.close({ drainMs: 0 })));
  await proxy.stop();
  await etcd.stop();
});

/** The transactions that put the mark of a slot: the one that takes the lock, and the one after the work. */
const STEPS = [
  ["that takes the lock", '"state":"started"'],
  ["after the work", '"state":"done"'],
] as const;
const ruleFor = (act: Act, name: string, state: string) =>
  proxy.rule({
    ...{ path: TXN, act, times: 1 },
    when: (request) => request.includes(`/leasehold/once/${name}//`) && request.includes(state),
  });

describe.concurrent.for(STEPS)("the transaction %s", ([step, state]) => {
  test.for(["drop-answer", "cut-answer", "goaway", "drop-request"] as const)(
    "may be disturbed by %s: the work runs once, and later callers hear that it is done",
    async (act, { expect }) => {
      const name = `${act}/${step.replaceAll(" ", "-")}`;
      const rule = ruleFor(act, name, state);
      let runs = 0;

      expect(await once(caller, name, SLOT, () => ++runs)).toEqual({ ran: true, value: 1 });
      expect(rule.hits).toBe(1);
      expect(await once(other, name, SLOT, () => ++runs)).toMatchObject({ ran: false, reason: "done" });
      expect(runs).toBe(1);
      await expect.poll(() => placesOf(etcd.member, name)).toEqual([]);
      proxy.remove(rule);
    },
  );

  test("may lose its answer on a cluster with a prefix, too", async ({ expect }) => {
    const name = `prefixed/${step.replaceAll(" ", "-")}`;
    const rule = ruleFor("drop-answer", `prod/${name}`, state);
    let runs = 0;

    expect(await once(prefixed[0], name, SLOT, () => ++runs)).toEqual({ ran: true, value: 1 });
    expect(rule.hits).toBe(1);
    expect(await once(prefixed[1], name, SLOT, () => ++runs)).toMatchObject({ ran: false, reason: "done" });
    await expect.poll(() => placesOf(etcd.member, `prod/${name}`)).toEqual([]);
    proxy.remove(rule);
  });
});

describe.concurrent("a session that ends", () => {
  /** The lease of the caller's session is revoked when etcd has answered, or would have, and the caller hears nothing. */
  async function endedAt(state: string, act: Act, name: string): Promise<{ runs: number; error: unknown }> {
    // An attempt ends with the session, not before it.
    await using cluster = connect({
      ...{ hosts: proxy.endpoint, requestTimeoutMs: 60_000, session: { ttlSeconds: 2 } },
    });
    const session = await cluster.session();
    const rule = ruleFor(act, name, state);
    let runs = 0;
    const called = reasonOf(once(session, name, SLOT, () => void runs++));
    await (act === "drop-answer" ? rule.answered() : rule.hit());
    await etcd.member.gateway("/v3/lease/revoke", { ID: `${session.leaseId}` });
    const error = await called;
    proxy.remove(rule);
    return { runs, error };
  }

  const LOST = { code: expect.stringMatching(/_LOST$/) as string };
  const call = async (name: string, options?: OnceOptions) =>
    once(other, name, SLOT, () => "ran", { timeoutMs: 20_000, ...options });

  test("before its claim is executed leaves the slot to others", async ({ expect }) => {
    expect(await endedAt('"state":"started"', "drop-request", "ends/unclaimed")).toMatchObject({
      runs: 0,
      error: LOST,
    });
    expect(await call("ends/unclaimed")).toEqual({ ran: true, value: "ran" });
  });

  test("after its claim and before its work has lost the slot, which later callers learn", async ({
    expect,
  }) => {
    expect(await endedAt('"state":"started"', "drop-answer", "ends/claimed")).toMatchObject({
      runs: 0,
      error: LOST,
    });
    expect(await call("ends/claimed")).toMatchObject({ ran: false, reason: "lost" });
    expect(await call("ends/claimed", { rerun: "if_lost" })).toEqual({ ran: true, value: "ran" });
    expect(await call("ends/claimed", { rerun: "if_lost" })).toMatchObject({ reason: "done" });
  });

  test("between its work and the mark has lost the slot, which later callers learn", async ({ expect }) => {
    expect(await endedAt('"state":"done"', "drop-request", "ends/unmarked")).toMatchObject({
      runs: 1,
      error: LOST,
    });
    expect(await call("ends/unmarked")).toMatchObject({ ran: false, reason: "lost" });
    expect(await call("ends/unmarked", { rerun: "if_lost" })).toEqual({ ran: true, value: "ran" });
  });

  test("after the mark of its run was put has run the slot, whatever its caller gets", async ({ expect }) => {
    expect(await endedAt('"state":"done"', "drop-answer", "ends/marked")).toMatchObject({ runs: 1 });
    expect(await call("ends/marked", { rerun: "if_lost" })).toMatchObject({ ran: false, reason: "done" });
  });
});

describe("the transaction after the work", () => {
  test.for(["drop-answer", "drop-request"] as const)(
    "of work that throws may be disturbed by %s: the slot has failed, and runs again for those who ask for it",
    async (act, { expect }) => {
      const name = `throws/${act}`;
      const rule = ruleFor(act, name, '"state":"failed"');
      const failure = new Error("no paper");

      await expect(once(caller, name, SLOT, () => Promise.reject(failure))).rejects.toBe(failure);
      expect(rule.hits).toBe(1);
      expect(await once(other, name, SLOT, () => 1)).toMatchObject({ reason: "done", run: { failed: true } });
      expect(await once(other, name, SLOT, () => 2, { rerun: "if_failed" })).toEqual({ ran: true, value: 2 });
      proxy.remove(rule);
    },
  );

  test.for(["drop-answer", "drop-request"] as const)(
    "of the slot that is the lowest one kept may be disturbed by %s, too, although it deletes its mark",
    async (act, { expect }) => {
      const name = `expires/${act}`;
      await once(other, name, 5, () => 5);
      // The claim compares the same floor, and puts a mark.
      const rule = proxy.rule({
        ...{ path: TXN, act, times: 1 },
        when: (request) => request.includes(`${name}//-`) && !request.includes('"state":'),
      });

      expect(await once(caller, name, 4, () => 4, { keep: 1 })).toEqual({ ran: true, value: 4 });
      expect(rule.hits).toBe(1);
      expect(await once(other, name, 4, () => 4)).toMatchObject({ ran: false, reason: "expired" });
      expect(await placesOf(etcd.member, name)).toEqual([]);
      proxy.remove(rule);
    },
  );

  test("is no loss behind a proxy that sends it twice, although it deletes its mark", async ({ expect }) => {
    await using cluster = connect({ hosts: proxy.endpoint });
    const repeat = (when: (request: Buffer) => boolean) =>
      proxy.rule({ path: TXN, act: "repeat", times: 1, when });
    // The second join of this lock finds the key of the first: the cluster knows such a proxy from then on.
    const learned = repeat((request) => request.includes("known/repeats"));
    await (await new Mutex(cluster, "known/repeats").lock()).release();
    await once(other, "repeated", 5, () => 5);
    const rule = repeat((request) => request.includes("repeated//-") && !request.includes('"state":'));

    expect(await once(cluster, "repeated", 4, () => 4, { keep: 1 })).toEqual({ ran: true, value: 4 });
    expect([learned.hits, rule.hits]).toEqual([1, 1]);
    proxy.remove(learned);
    proxy.remove(rule);
  });

  test("is no loss if its answer is lost and a later slot deletes its mark before it is sent again", async ({
    expect,
  }) => {
    const rule = ruleFor("drop-answer", "overtaken", '"state":"done"');
    const running = once(caller, "overtaken", 1, () => 1);
    await rule.answered();

    expect(await once(other, "overtaken", 2, () => 2, { keep: 1 })).toEqual({ ran: true, value: 2 });
    expect(await running).toEqual({ ran: true, value: 1 });
    proxy.remove(rule);
  });

  test("puts no mark if another client has deleted the key before it, not even one in doubt", async ({
    expect,
  }) => {
    const deleteKey = (lock: Lock) => etcd.etcdctl(["del", lock.key]);
    await expect(once(other, "deleted", SLOT, deleteKey)).rejects.toMatchObject({ loss: "deleted" });
    expect(await once(other, "deleted", SLOT, () => 1)).toMatchObject({ ran: false, reason: "lost" });

    const rule = ruleFor("drop-request", "doubted", '"state":"done"');
    const called = reasonOf(once(caller, "doubted", SLOT, deleteKey));
    expect(await called).toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
    expect(rule.hits).toBe(1);
    expect(await once(other, "doubted", SLOT, () => 1)).toMatchObject({ ran: false, reason: "lost" });
    proxy.remove(rule);
  });

  test("that etcd does not get before the session is closed: the lock is lost, and so is the slot", async ({
    expect,
  }) => {
    const cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 60_000 });
    const rule = ruleFor("drop-request", "closed", '"state":"done"');
    const called = reasonOf(once(cluster, "closed", SLOT, () => 1));
    await rule.hit();
    await cluster.close({ drainMs: 0 });

    expect(await called).toMatchObject({ code: "LOCK_LOST", loss: "closed" });
    expect(await once(other, "closed", SLOT, () => 1)).toMatchObject({ ran: false, reason: "lost" });
    proxy.remove(rule);
  });
});

test("a lock whose work ran longer than maxHoldMs is free when the work has ended, not only after the grace", async () => {
  const work = (lock: Lock) =>
    new Promise<void>((resolve) => lock.signal.addEventListener("abort", () => resolve()));
  const options = { maxHoldMs: 50, maxHoldGraceMs: 3_600_000 };

  await expect(once(other, "too-long", SLOT, work, options)).rejects.toMatchObject({ loss: "max_hold" });
  await expect.poll(() => placesOf(etcd.member, "too-long")).toEqual([]);
});

test("a mark that etcd rejects for a TTL ends the call with its reason, and frees the lock", async () => {
  await using cluster = connect({ hosts: etcd.member.endpoint, session: { ttlSeconds: 2 } });
  const called = once(cluster, "no-space", SLOT, () => spaceAlarm(etcd.member, "ACTIVATE"));

  await expect(called).rejects.toMatchObject({ code: "ETCD_REFUSED", reason: "quota" });
  await expect.poll(() => placesOf(etcd.member, "no-space")).toEqual([]);
  await spaceAlarm(etcd.member, "DEACTIVATE");
  expect(await once(other, "no-space", SLOT, () => 1)).toMatchObject({ ran: false, reason: "lost" });
});

test("a waiting call with rejoin outlives its session, and runs the slot", async () => {
  await using cluster = connect({ hosts: etcd.member.endpoint });
  const session = await cluster.session();
  let end = (): void => {};
  const running = once(other, "rejoins", 1, () => new Promise<void>((resolve) => (end = resolve)));
  await expect.poll(() => placesOf(etcd.member, "rejoins")).toHaveLength(1);
  const waiting = once(cluster, "rejoins", 2, () => "ran", { rejoin: true });
  await expect.poll(() => placesOf(etcd.member, "rejoins")).toHaveLength(2);
  await etcd.etcdctl(["lease", "revoke", session.leaseId.toString(16)]);
  await expect.poll(() => session.state).toBe("lost");
  await expect.poll(() => placesOf(etcd.member, "rejoins")).toHaveLength(2);
  end();

  expect(await running).toMatchObject({ ran: true });
  expect(await waiting).toEqual({ ran: true, value: "ran" });
});
