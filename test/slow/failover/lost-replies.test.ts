import { afterAll, beforeAll, describe, type ExpectStatic, test } from "vitest";
import { connect, type Lock, Mutex, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { type GrpcProxy, type Rule, startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { givesBack, grantedId, takesPlace } from "../../support/clients/request-shape.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";

const TTL_SECONDS = 3;
const TTL_MS = TTL_SECONDS * 1000;
const GRANT = "/etcdserverpb.Lease/LeaseGrant";
const TXN = "/etcdserverpb.KV/Txn";

/** The request that is hit. */
const STEPS = {
  grant: { path: GRANT, when: () => true },
  join: { path: TXN, when: takesPlace },
  tryLock: { path: TXN, when: takesPlace },
  release: { path: TXN, when: givesBack },
} as const;
type Step = keyof typeof STEPS;
const ALL_STEPS = Object.keys(STEPS) as Step[];
/** A `tryLock` takes a place by the same request as a join. */
const LATE_STEPS: readonly Step[] = ["grant", "join", "release"];

describe.concurrent("a lost or late request", { timeout: 40_000 }, () => {
  let etcd: EtcdCluster;

  beforeAll(async () => void (etcd = await startEtcd()), 60_000);
  afterAll(() => etcd.stop());

  const places = (name: string) => placesOf(etcd.member, name);
  const liveLeases = async (ids: Set<bigint>) => {
    const live = await leasesOf(etcd.member);
    return [...ids].filter((id) => live.has(id));
  };

  /**
   * A cluster behind its own proxy, which records the leases that it requests; and a rival with an undisturbed
   * connection.
   */
  async function stage(name: string) {
    const proxy = await startGrpcProxy({ port: etcd.member.clientPort });
    const leases = new Set<bigint>();
    const note = (request: Buffer) => !leases.add(grantedId(request));
    proxy.rule({ path: GRANT, act: "drop-request", when: note });
    const session = { ttlSeconds: TTL_SECONDS };
    const cluster = connect({ hosts: proxy.endpoint, session });
    const rivals = connect({ hosts: etcd.member.endpoint, session });
    const rival = new Mutex(rivals, name);
    const stop = async () => {
      await Promise.all([cluster.close({ drainMs: 0 }), rivals.close({ drainMs: 0 })]);
      await proxy.stop();
    };
    return { proxy, leases, cluster, rival, [Symbol.asyncDispose]: stop };
  }
  type Stage = Awaited<ReturnType<typeof stage>>;

  const take = (step: Step, mutex: Mutex) =>
    step === "tryLock" ? mutex.tryLock({ timeoutMs: TTL_MS }) : mutex.lock({ timeoutMs: TTL_MS });

  /** The lock is held by this client and no other, under the exact key that etcd has. */
  async function expectSoleHold(expect: ExpectStatic, { rival }: Stage, lock: Lock | undefined) {
    expect(lock?.held).toBe(true);
    const [first] = await places(rival.name);
    expect(first).toMatchObject({ key: lock?.key, revision: lock?.fence });
    expect(await rival.tryLock()).toBeUndefined();
  }

  /** The name is free for others, and nothing that this client had is left. */
  async function expectNothingLeft(expect: ExpectStatic, { rival, leases }: Stage) {
    await expect.poll(() => liveLeases(leases), { timeout: 2 * TTL_MS }).toEqual([]);
    expect(await places(rival.name)).toEqual([]);
    const lock = await rival.lock({ timeoutMs: TTL_MS });
    await lock.release();
  }

  async function expectOrderlyEnd(expect: ExpectStatic, scene: Stage, session: Session) {
    expect(session.state).not.toBe("lost");
    await session.close();
    expect(await liveLeases(scene.leases)).toEqual([]);
    await expectNothingLeft(expect, scene);
  }

  const ONE_LOST = [
    ["answer is dropped", "drop-answer"],
    ["connection breaks in place of the answer", "cut-answer"],
    ["request is dropped", "drop-request"],
  ] as const;
  const oneLost = ALL_STEPS.flatMap((step) =>
    ONE_LOST.map(([what, act]) => [step, what, act] as const),
  ).filter(([step, , act]) => act !== "cut-answer" || step === "join");

  test.for(oneLost)("costs a %s whose %s no more than a retry", async ([step, , act], { expect }) => {
    await using scene = await stage(`once-${step}-${act}`);
    const rule = scene.proxy.rule({ ...STEPS[step], act, times: 1 });
    await using session = await Session.open(scene.cluster, { ttlSeconds: TTL_SECONDS });

    const lock = await take(step, new Mutex(session, scene.rival.name));
    await expectSoleHold(expect, scene, lock);
    await lock?.release();

    // The retry found the first attempt's place: a second place would have a different number.
    expect(lock?.key).toBe(`${scene.rival.name}/${session.leaseId.toString(16)}`);
    expect(rule.hits).toBe(1);
    expect(lock?.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
    expect(await places(scene.rival.name)).toEqual([]);
    await expectOrderlyEnd(expect, scene, session);
  });

  test("fails the opening of a session that never gets an answer, and leaves no lease", async ({
    expect,
  }) => {
    await using scene = await stage("always-grant");
    scene.proxy.rule({ ...STEPS.grant, act: "drop-answer" });

    const opening = Session.open(scene.cluster, { ttlSeconds: TTL_SECONDS, timeoutMs: TTL_MS });

    await expect(opening).rejects.toMatchObject({ code: "ETCD_UNAVAILABLE" });
    await scene.cluster.close();
    expect(await liveLeases(scene.leases)).toEqual([]);
  });

  test.for([
    ["join", "ETCD_UNAVAILABLE"],
    ["tryLock", "ETCD_UNAVAILABLE"],
  ] as const)(
    "fails a %s that never gets an answer with %s, and leaves no place",
    async ([step, code], { expect }) => {
      await using scene = await stage(`always-${step}`);
      await using session = await Session.open(scene.cluster, { ttlSeconds: TTL_SECONDS });
      const rule = scene.proxy.rule({ ...STEPS[step], act: "drop-answer" });

      await expect(take(step, new Mutex(session, scene.rival.name))).rejects.toMatchObject({ code });
      scene.proxy.remove(rule);

      await expect.poll(() => places(scene.rival.name), { timeout: 2 * TTL_MS }).toEqual([]);
      expect(session.state).not.toBe("lost");
      await session.close();
      await expectNothingLeft(expect, scene);
    },
  );

  test("ends a release that never gets an answer with its session, and calls it no loss", async ({
    expect,
  }) => {
    await using scene = await stage("always-release");
    await using session = await Session.open(scene.cluster, { ttlSeconds: TTL_SECONDS });
    const lock = await new Mutex(session, scene.rival.name).lock();
    const rule = scene.proxy.rule({ ...STEPS.release, act: "drop-answer" });

    const released = lock.release();
    expect(lock.held).toBe(false);
    await rule.answered(2);
    await session.close({ drainMs: 0 });
    await released;

    expect(lock.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
    expect(await liveLeases(scene.leases)).toEqual([]);
    await expectNothingLeft(expect, scene);
  });

  /** Forwards the request and waits for etcd's answer to it. */
  const deliver = async (rule: Rule) => {
    rule.release();
    await rule.answered();
  };
  const hold = (proxy: GrpcProxy, step: Step) => proxy.rule({ ...STEPS[step], act: "hold", times: 1 });

  test.for(LATE_STEPS)(
    "hits no later hold when the first %s arrives after its cleanup",
    async (step, { expect }) => {
      await using scene = await stage(`late-${step}`);
      const late = hold(scene.proxy, step);
      await using session = await Session.open(scene.cluster, { ttlSeconds: TTL_SECONDS });
      const mutex = new Mutex(session, scene.rival.name);
      const lock = await take(step, mutex);
      await expectSoleHold(expect, scene, lock);
      await lock?.release();

      const next = await mutex.lock();
      await deliver(late);

      await expectSoleHold(expect, scene, next);
      await next.release();
      await expect.poll(() => places(scene.rival.name), { timeout: 4 * TTL_MS }).toEqual([]);
      expect(next.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
      await expectOrderlyEnd(expect, scene, session);
    },
  );

  test.for(["join", "tryLock"] as const)(
    "blocks nobody when the first %s arrives after its cleanup",
    async (step, { expect }) => {
      await using scene = await stage(`ghost-${step}`);
      const late = hold(scene.proxy, step);
      await using session = await Session.open(scene.cluster, { ttlSeconds: TTL_SECONDS });
      const lock = await take(step, new Mutex(session, scene.rival.name));
      await lock?.release();

      await deliver(late);
      // It is found after about the same delay again.
      const taken = await scene.rival.lock({ timeoutMs: 4 * TTL_MS });
      await taken.release();

      await expectOrderlyEnd(expect, scene, session);
    },
  );

  const aborted = (["join", "tryLock"] as const).flatMap((step) => [
    [step, "while it is waited for", (late: Rule) => late.hit()] as const,
    [step, "after its cleanup", (_: Rule, cleanup: Rule) => cleanup.answered()] as const,
  ]);

  test.for(aborted)(
    "brings no ghost when an aborted %s arrives %s",
    async ([step, when, arrives], { expect }) => {
      await using scene = await stage(`aborted-${step}-${when}`);
      await using session = await Session.open(scene.cluster, { ttlSeconds: TTL_SECONDS });
      const late = hold(scene.proxy, step);
      const cleanup = scene.proxy.rule({ ...STEPS.release, act: "delay" });
      const abort = new AbortController();
      const { signal } = abort;
      const mutex = new Mutex(session, scene.rival.name);

      const waiting = step === "join" ? mutex.lock({ signal }) : mutex.tryLock({ signal });
      await late.hit();
      abort.abort(new Error("no longer wanted"));
      await expect(waiting).rejects.toThrow("no longer wanted");
      await arrives(late, cleanup);
      await deliver(late);

      await expect.poll(() => places(scene.rival.name), { timeout: 2 * TTL_MS }).toEqual([]);
      await expectOrderlyEnd(expect, scene, session);
    },
  );

  test.for(LATE_STEPS)(
    "leaves no key when the first %s arrives after the session was closed",
    async (step, { expect }) => {
      await using scene = await stage(`closed-${step}`);
      const late = hold(scene.proxy, step);
      const session = await Session.open(scene.cluster, { ttlSeconds: TTL_SECONDS });
      const lock = await take(step, new Mutex(session, scene.rival.name));
      await lock?.release();

      await session.close();
      await deliver(late);

      expect(await places(scene.rival.name)).toEqual([]);
      // Only a late grant may leave something behind: a lease without a key, for one TTL.
      if (step !== "grant") expect(await liveLeases(scene.leases)).toEqual([]);
      await expectNothingLeft(expect, scene);
    },
  );
});
