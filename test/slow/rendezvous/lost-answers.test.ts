// Latches and barriers on a real etcd whose answers are lost: each request of theirs, in each way.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  Barrier,
  type Cluster,
  connect,
  CountDownLatch,
  DoubleBarrier,
  Session,
} from "../../../src/index.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { keysUnder, revoke, stillWaits } from "../../support/fixtures/rendezvous.js";
import { spaceAlarm } from "../../support/fixtures/space-alarm.js";
import { type Act, type GrpcProxy, startGrpcProxy } from "../../support/proxies/grpc-proxy.js";

const TXN = "/etcdserverpb.KV/Txn";
const ACTS = ["drop-answer", "cut-answer", "goaway", "drop-request", "repeat"] as const;

let etcd: EtcdCluster;
let proxy: GrpcProxy;
/** Behind the proxy, and with an undisturbed connection. */
let caller: Cluster;
let other: Cluster;
beforeAll(async () => {
  etcd = await startEtcd();
  proxy = await startGrpcProxy({ port: etcd.member.clientPort });
  caller = connect({
    hosts: proxy.endpoint,
    requestTimeoutMs: 500,
    session: { ttlSeconds: 30, owner: "caller" },
  });
  other = connect({ hosts: etcd.member.endpoint });
});
afterAll(async () => {
  await Promise.all([caller, other].map((cluster) => cluster.close({ drainMs: 0 })));
  await proxy.stop();
  await etcd.stop();
});

/** Disturbs the next transaction that contains all of these texts. */
const rule = (act: Act, ...texts: readonly string[]) =>
  proxy.rule({
    ...{ path: TXN, act, times: 1 },
    when: (request) => texts.every((text) => request.includes(text)),
  });
/** The same for the second one: the first one reads. */
function secondRule(act: Act, ...texts: readonly string[]) {
  let seen = 0;
  return proxy.rule({
    ...{ path: TXN, act, times: 1 },
    when: (request) => texts.every((text) => request.includes(text)) && ++seen === 2,
  });
}
/** The next one that deletes a member. */
const removal = (act: Act, name: string, times = 1) =>
  proxy.rule({
    ...{ path: TXN, act, times },
    when: (request) => request.includes(`${name}/waiters/`) && !request.includes('"members":'),
  });
/** Rejects the next one, as etcd does. */
const refusal = (...texts: readonly string[]) =>
  proxy.rule({
    ...{ path: TXN, act: "refuse", times: 1, status: { code: 7, details: "etcdserver: permission denied" } },
    when: (request) => texts.every((text) => request.includes(text)),
  });
const counted = async (name: string) =>
  (await keysUnder(etcd, `/leasehold/latch/${name}//`)).filter(({ key }) => key.includes("/counted/")).length;
const waitersOf = (name: string) => keysUnder(etcd, `${name}/waiters/`);
/** What the records of members say that have no lease of a session. */
const recordsOf = async (name: string) =>
  (await keysUnder(etcd, `/leasehold/barrier/${name}//`)).map(({ value }) =>
    value === '{"left":true}' ? "left" : "there",
  );
/** What kinds of keys of counters there are. */
const partsOf = async (name: string) =>
  (await keysUnder(etcd, `/leasehold/latch/${name}//`))
    .map(({ key }) => key.split("/").at(-2))
    .filter(Boolean);

describe.concurrent.for(ACTS)("a request that is disturbed by %s", (act) => {
  test("counts once, as the first count of a latch, one of it, and the last one", async ({ expect }) => {
    const name = `count/${act}`;
    const latch = new CountDownLatch(caller, name, 3);
    const near = new CountDownLatch(other, name, 3);
    for (const left of [2, 1, 0]) {
      const disturbed = rule(act, `/latch/${name}//`, "/counted/");
      await latch.countDown();
      expect(disturbed.hits).toBe(1);
      proxy.remove(disturbed);
      expect(await near.count()).toBe(left);
      expect(await counted(name)).toBe(3 - left);
    }
    await near.wait();
  });

  test("counts once for an enlisted counter, which has no other place then", async ({ expect }) => {
    const name = `enlisted/${act}`;
    const latch = new CountDownLatch(caller, name, 2);
    const near = new CountDownLatch(other, name, 2);
    const enlist = rule(act, `/latch/${name}//`, "/enlisted/");
    const counter = await latch.enlist();
    proxy.remove(enlist);
    const count = rule(act, `/latch/${name}//`, "/counted/", "/alive/");
    await counter.countDown();
    proxy.remove(count);
    expect([enlist.hits, count.hits]).toEqual([1, 1]);
    expect(await near.count()).toBe(1);
    const leaving = await latch.enlist();
    const leave = rule(act, `/latch/${name}//`, "/alive/");
    await leaving.leave();
    proxy.remove(leave);
    expect(leave.hits).toBe(1);
    const left = (await keysUnder(etcd, `/leasehold/latch/${name}//`)).map(({ key }) =>
      key.split("/").at(-2),
    );
    expect(left.sort()).toEqual(["", "counted"]);
  });

  test("opens a latch when the transaction that says so is disturbed, and resets it", async ({ expect }) => {
    const name = `open/${act}`;
    const latch = new CountDownLatch(caller, name, 2);
    await latch.countDown();
    const open = rule(act, `/latch/${name}//latch`, '"isOpen":true');
    await latch.countDown();
    expect(open.hits).toBe(1);
    proxy.remove(open);
    await new CountDownLatch(other, name, 2).wait();
    const reset = rule(act, `/latch/${name}//latch`, '"isOpen":false');
    await latch.reset();
    expect(reset.hits).toBe(1);
    proxy.remove(reset);
    expect(await new CountDownLatch(other, name, 2).count()).toBe(2);
  });

  test("closes a barrier for the caller that is told so, and opens it", async ({ expect }) => {
    const name = `barrier/${act}`;
    const barrier = new Barrier(caller, name);
    const hold = rule(act, name, '"owner"');
    expect(await barrier.hold()).toBe(true);
    proxy.remove(hold);
    expect(await new Barrier(other, name).hold()).toBe(false);
    const release = secondRule(act, name);
    await barrier.release();
    proxy.remove(release);
    expect([hold.hits, release.hits]).toEqual([1, 1]);
    await new Barrier(other, name).wait();
    const breaks = rule(act, name, '"owner"');
    expect(await barrier.hold({ onCrash: "break" })).toBe(true);
    expect(breaks.hits).toBe(1);
    proxy.remove(breaks);
    await barrier.release();
    expect(await keysUnder(etcd, name)).toEqual([]);
  });

  test("lets a member in and out once, as the first of a double barrier, and as the last one", async ({
    expect,
  }) => {
    const name = `double/${act}`;
    const [a, b] = [new DoubleBarrier(caller, name, 2), new DoubleBarrier(other, name, 2)];
    for (const isFirst of [true, false]) {
      const enter = rule(act, `${name}/waiters/`, '"owner"');
      // Only the last one opens it.
      const open = isFirst ? undefined : rule(act, `${name}/ready`, '"members":[');
      const first = isFirst ? a.enter() : b.enter();
      await expect
        .poll(async () => (await keysUnder(etcd, `${name}/waiters/`)).length, { timeout: 5000 })
        .toBe(1);
      await Promise.all([first, isFirst ? b.enter() : a.enter()]);
      expect([enter.hits, open?.hits ?? 1]).toEqual([1, 1]);
      for (const each of [enter, open]) if (each) proxy.remove(each);
      expect(await keysUnder(etcd, `${name}/`)).toHaveLength(3);
      const leave = rule(act, `${name}/waiters/`);
      const left = isFirst ? a.leave() : b.leave();
      await expect
        .poll(async () => (await keysUnder(etcd, `${name}/waiters/`)).length, { timeout: 5000 })
        .toBe(1);
      await Promise.all([left, isFirst ? b.leave() : a.leave()]);
      expect(leave.hits).toBe(1);
      proxy.remove(leave);
      await expect.poll(() => keysUnder(etcd, `${name}/`)).toEqual([]);
      // A request that was lost may yet arrive: for ten minutes, a key keeps it from being executed.
      const records = (await keysUnder(etcd, `/leasehold/barrier/${name}//`)).map(({ value }) => value);
      expect(records.filter((value) => value !== '{"left":true}')).toEqual([]);
    }
  });
});

test("a member that gives up while its put is unanswered leaves no key", async () => {
  const name = "given-up";
  const lost = rule("drop-answer", `${name}/waiters/`, '"owner"');
  const controller = new AbortController();
  const entering = new DoubleBarrier(caller, name, 2)
    .enter({ signal: controller.signal })
    .catch((e: unknown) => e);
  await lost.answered();
  controller.abort(new Error("enough"));
  expect(await entering).toMatchObject({ message: "enough" });
  proxy.remove(lost);
  await expect.poll(() => keysUnder(etcd, `${name}/`)).toEqual([]);
  await expect.poll(() => keysUnder(etcd, `/leasehold/barrier/${name}//`)).toEqual([]);
});

test("an attempt to count that etcd executes after a reset counts nothing", async () => {
  const name = "late-count";
  const latch = new CountDownLatch(caller, name, 2);
  const near = new CountDownLatch(other, name, 2);
  const held = rule("hold", `/latch/${name}//`, "/counted/");
  await latch.countDown();
  expect(held.hits).toBe(1);
  await near.reset();
  held.release();
  await held.answered();
  proxy.remove(held);
  expect(await near.count()).toBe(2);
  await near.countDown();
  expect(await near.count()).toBe(1);
});

test("an attempt to release a barrier that etcd executes twice does not open a later hold", async () => {
  const name = "late-release";
  const barrier = new Barrier(caller, name);
  const near = new Barrier(other, name);
  await barrier.hold();
  const repeated = secondRule("repeat-late", name);
  await barrier.release();
  expect(repeated.hits).toBe(1);
  expect(await near.hold()).toBe(true);
  repeated.release();
  await repeated.answered();
  proxy.remove(repeated);
  expect(await barrier.hold()).toBe(false);
  await near.release();
});

test("a double barrier does not open when a member dies between the read that shows all of them and the opening", async () => {
  const name = "dies-at-last";
  const dying = await Session.open(other, { owner: "dies at last" });
  const gone = new DoubleBarrier(dying, name, 3).enter().catch((error: unknown) => error);
  const waiters = () => keysUnder(etcd, `${name}/waiters/`);
  await expect.poll(waiters).toHaveLength(1);
  const [patient, last] = [new DoubleBarrier(other, name, 3), new DoubleBarrier(caller, name, 3)];
  const entering = [patient.enter({ onCrash: "continue" })];
  await expect.poll(waiters).toHaveLength(2);
  const held = rule("hold", `${name}/ready`, '"members":[');
  entering.push(last.enter({ onCrash: "continue" }));
  await held.hit();
  await revoke(etcd, dying.leaseId);
  held.release();
  await held.answered();
  proxy.remove(held);
  expect(await gone).toMatchObject({ code: "SESSION_LOST" });
  expect(await stillWaits(other, Promise.race(entering))).toBe(true);
  expect(await keysUnder(etcd, `${name}/ready`)).toEqual([]);
  const replacement = new DoubleBarrier(other, name, 3);
  await Promise.all([...entering, replacement.enter()]);
  await Promise.all([patient, last, replacement].map((each) => each.leave()));
});

describe("an attempt that etcd executes late", () => {
  test.for([true, false])(
    "closes no barrier that was released since; its caller was told %s",
    async (closes) => {
      const name = `late-hold/${closes}`;
      const [barrier, near] = [new Barrier(caller, name), new Barrier(other, name)];
      if (!closes) await near.hold();
      const held = rule("hold", name, '"owner"');
      expect(await barrier.hold()).toBe(closes);
      expect(held.hits).toBe(1);
      await near.release();
      held.release();
      await held.answered();
      proxy.remove(held);
      expect(await keysUnder(etcd, name)).toEqual([]);
      await near.wait();
    },
  );

  test("closes no barrier that was broken, and released since", async () => {
    const name = "late-hold/broken";
    const [barrier, near] = [new Barrier(caller, name), new Barrier(other, name)];
    const dying = await Session.open(other);
    await new Barrier(dying, name).hold({ onCrash: "break" });
    await revoke(etcd, dying.leaseId);
    const held = rule("hold", name, '"owner"');
    await expect(barrier.hold()).rejects.toMatchObject({ code: "BARRIER_BROKEN" });
    expect(held.hits).toBe(1);
    await near.release();
    held.release();
    await held.answered();
    proxy.remove(held);
    expect(await keysUnder(etcd, name)).toEqual([]);
    await near.wait();
  });

  test("closes a broken barrier for its caller, when it comes between the release and the renouncement", async () => {
    const name = "late-hold/between";
    const [barrier, near] = [new Barrier(caller, name), new Barrier(other, name)];
    const dying = await Session.open(other);
    await new Barrier(dying, name).hold({ onCrash: "break" });
    await revoke(etcd, dying.leaseId);
    const held = rule("hold", name, '"owner"');
    const renouncing = proxy.rule({
      ...{ path: TXN, act: "hold" },
      when: (request) => request.includes(name) && request.includes("renounced"),
    });
    const holding = barrier.hold();
    await renouncing.hit();
    await near.release();
    held.release();
    await held.answered();
    renouncing.release();
    expect(await holding).toBe(true);
    for (const each of [held, renouncing]) proxy.remove(each);
    expect(await near.hold()).toBe(false);
    await near.release();
  });

  test.for(["countDown", "leave"] as const)("enlists no counter anew after its %s", async (call) => {
    const name = `late-enlist/${call}`;
    await new CountDownLatch(other, name, 3).countDown();
    const latch = new CountDownLatch(caller, name, 3);
    // It knows the round.
    await latch.count();
    const held = rule("hold", `/latch/${name}//`, "/enlisted/");
    const counter = await latch.enlist();
    expect(held.hits).toBe(1);
    await counter[call]();
    held.release();
    await held.answered();
    proxy.remove(held);
    const places = (await keysUnder(etcd, `/leasehold/latch/${name}//`)).map(({ key }) =>
      key.split("/").at(-2),
    );
    expect(places.filter((part) => part === "alive" || part === "enlisted")).toEqual([]);
  });

  test("puts no member that has given up", async () => {
    const name = "late-enter";
    const held = rule("hold", `${name}/waiters/`, '"owner"');
    const controller = new AbortController();
    const entering = new DoubleBarrier(caller, name, 2)
      .enter({ signal: controller.signal })
      .catch((error: unknown) => error);
    const waiters = () => keysUnder(etcd, `${name}/waiters/`);
    await expect.poll(waiters, { timeout: 5000 }).toHaveLength(1);
    controller.abort(new Error("enough"));
    expect(await entering).toMatchObject({ message: "enough" });
    await expect.poll(waiters).toEqual([]);
    held.release();
    await held.answered();
    proxy.remove(held);
    expect(await waiters()).toEqual([]);
  });
});

describe("a counter whose enlisting is refused after a lost answer", () => {
  const REFUSED = { code: "ETCD_REFUSED", reason: "permission" };

  test.for(["a new round", "a known round"])(
    "leaves no place in %s, and the end of its session is no crash",
    async (round) => {
      const name = `refused-enlist/${round}`;
      const dying = await Session.open(caller);
      const [latch, near] = [new CountDownLatch(dying, name, 2), new CountDownLatch(other, name, 2)];
      if (round === "a known round") {
        await near.countDown();
        await latch.count();
      }
      const lost = rule("drop-answer", `/latch/${name}//`, "/enlisted/");
      const refused = refusal(`/latch/${name}//`, "/enlisted/");
      await expect(latch.enlist()).rejects.toMatchObject(REFUSED);
      expect([lost.hits, refused.hits]).toEqual([1, 1]);
      for (const each of [lost, refused]) proxy.remove(each);
      await expect.poll(() => partsOf(name)).toContain("left");
      expect((await partsOf(name)).filter((part) => part !== "counted")).toEqual(["left"]);
      const waiting = near.wait();
      await revoke(etcd, dying.leaseId);
      expect(await stillWaits(other, waiting)).toBe(true);
      while ((await near.count()) > 0) await near.countDown();
      await waiting;
    },
  );

  test("is put by no attempt that etcd executes late", async () => {
    const name = "refused-late";
    const latch = new CountDownLatch(caller, name, 2);
    const held = rule("hold", `/latch/${name}//`, "/enlisted/");
    const refused = refusal(`/latch/${name}//`, "/enlisted/");
    await expect(latch.enlist()).rejects.toMatchObject(REFUSED);
    proxy.remove(refused);
    await expect.poll(() => partsOf(name)).toEqual(["left"]);
    held.release();
    await held.answered();
    proxy.remove(held);
    expect(await partsOf(name)).toEqual(["left"]);
  });

  test("leaves no place when its caller has given up before", async () => {
    const name = "refused-abort";
    const lost = rule("drop-answer", `/latch/${name}//`, "/enlisted/");
    const refused = refusal(`/latch/${name}//`, "/enlisted/");
    const controller = new AbortController();
    const enlisting = new CountDownLatch(caller, name, 2).enlist({ signal: controller.signal });
    enlisting.catch(() => undefined);
    await lost.answered();
    expect(await partsOf(name)).toEqual(["alive", "enlisted"]);
    controller.abort(new Error("enough"));
    await expect(enlisting).rejects.toThrow("enough");
    await expect.poll(() => partsOf(name)).toEqual(["left"]);
    for (const each of [lost, refused]) proxy.remove(each);
  });

  test("leaves no place when etcd is full, which stores no mark then", async () => {
    const name = "refused-full";
    const lost = rule("drop-answer", `/latch/${name}//`, "/enlisted/");
    const enlisting = new CountDownLatch(caller, name, 2).enlist();
    enlisting.catch(() => undefined);
    await lost.answered();
    await spaceAlarm(etcd.member, "ACTIVATE");
    try {
      await expect(enlisting).rejects.toMatchObject({ code: "ETCD_REFUSED", reason: "quota" });
      await expect.poll(() => partsOf(name)).toEqual([]);
    } finally {
      await spaceAlarm(etcd.member, "DEACTIVATE");
      proxy.remove(lost);
    }
    await expect.poll(() => partsOf(name)).toEqual(["left"]);
  });
});

describe("a member whose put is in doubt", () => {
  const QUOTA = { code: "ETCD_REFUSED", reason: "quota" };
  /** With no lease for its mark yet. */
  const join = () => connect({ hosts: proxy.endpoint, requestTimeoutMs: 500, session: { ttlSeconds: 30 } });
  /** The first attempt to enter: the second one enters. */
  const holdPut = (name: string) => rule("hold", `${name}/waiters/`, '"owner"');
  /** Rejects its mark once, so that the next one only deletes. */
  const noMark = (name: string) => refusal(`${name}/waiters/`, '{"left":true}');
  /** Nothing is left of it but its mark, whatever etcd executes. */
  async function comesNoMore(name: string, held: ReturnType<typeof holdPut>): Promise<void> {
    await expect.poll(() => recordsOf(name)).toEqual(["left"]);
    held.release();
    await held.answered();
    proxy.remove(held);
    expect([await waitersOf(name), await recordsOf(name)]).toEqual([[], ["left"]]);
  }

  test("leaves when it is refused", async () => {
    const name = "refused-member";
    const held = holdPut(name);
    const refused = refusal(`${name}/waiters/`, '"owner"');
    const entering = new DoubleBarrier(caller, name, 2).enter();
    await expect(entering).rejects.toMatchObject({ code: "ETCD_REFUSED", reason: "permission" });
    proxy.remove(refused);
    await comesNoMore(name, held);
  });

  test("leaves when etcd is full, which stores no mark then", async () => {
    await using cluster = join();
    const name = "full-enter";
    const lost = rule("drop-answer", `${name}/waiters/`, '"owner"');
    const entering = new DoubleBarrier(cluster, name, 2).enter();
    entering.catch(() => undefined);
    await lost.answered();
    await spaceAlarm(etcd.member, "ACTIVATE");
    try {
      await expect(entering).rejects.toMatchObject(QUOTA);
      await expect.poll(() => waitersOf(name)).toEqual([]);
      expect(await recordsOf(name)).toEqual([]);
    } finally {
      await spaceAlarm(etcd.member, "DEACTIVATE");
      proxy.remove(lost);
    }
    await expect.poll(() => recordsOf(name), { timeout: 5000 }).toEqual(["left"]);
  });

  test("leaves a full etcd with the others, and enters again", async () => {
    await using cluster = join();
    const name = "full-leave";
    const [a, b] = [new DoubleBarrier(cluster, name, 2), new DoubleBarrier(other, name, 2)];
    const held = holdPut(name);
    await Promise.all([a.enter(), b.enter()]);
    await spaceAlarm(etcd.member, "ACTIVATE");
    try {
      await Promise.all([a, b].map((each) => each.leave({ timeoutMs: 5000 })));
      expect(await keysUnder(etcd, `${name}/`)).toEqual([]);
    } finally {
      await spaceAlarm(etcd.member, "DEACTIVATE");
    }
    await comesNoMore(name, held);
    await Promise.all([a.enter(), b.enter()]);
    await Promise.all([a.leave(), b.leave()]);
  });

  test("is told of a death by a full etcd, and leaves it", async () => {
    await using cluster = join();
    const name = "full-death";
    const dying = await Session.open(other, { owner: "dies" });
    const gone = new DoubleBarrier(dying, name, 3).enter().catch((error: unknown) => error);
    await expect.poll(() => waitersOf(name)).toHaveLength(1);
    const held = holdPut(name);
    const entering = new DoubleBarrier(cluster, name, 3).enter({ timeoutMs: 10_000 });
    entering.catch(() => undefined);
    await expect.poll(() => waitersOf(name), { timeout: 5000 }).toHaveLength(2);
    await spaceAlarm(etcd.member, "ACTIVATE");
    try {
      await revoke(etcd, dying.leaseId);
      await expect(entering).rejects.toMatchObject({ code: "BARRIER_BROKEN", owners: ["dies"] });
      expect(await gone).toMatchObject({ code: "SESSION_LOST" });
      expect(await waitersOf(name)).toEqual([]);
      // That of the death.
      expect(await recordsOf(name)).toEqual(["there"]);
    } finally {
      await spaceAlarm(etcd.member, "DEACTIVATE");
    }
    await expect.poll(async () => (await recordsOf(name)).sort()).toEqual(["left", "there"]);
    held.release();
    await held.answered();
    proxy.remove(held);
    expect(await waitersOf(name)).toEqual([]);
  });

  test("has no mark while it is inside, let in just before it left", async () => {
    const name = "let-in";
    const dying = await Session.open(other);
    const gone = new DoubleBarrier(dying, name, 3).enter().catch((error: unknown) => error);
    await expect.poll(() => waitersOf(name)).toHaveLength(1);
    const put = holdPut(name);
    const member = new DoubleBarrier(caller, name, 3);
    const entering = [member.enter()];
    await expect.poll(() => waitersOf(name), { timeout: 5000 }).toHaveLength(2);
    const leaving = removal("hold", name, Infinity);
    await revoke(etcd, dying.leaseId);
    await leaving.hit();
    const others = [1, 2].map(() => new DoubleBarrier(other, name, 3));
    entering.push(...others.map((each) => each.enter({ onCrash: "continue" })));
    await Promise.all(entering.slice(1));
    leaving.release();
    await Promise.all(entering);
    proxy.remove(leaving);
    expect(await gone).toMatchObject({ code: "SESSION_LOST" });
    expect(await recordsOf(name)).toEqual(["there", "there", "there", "there"]);
    await Promise.all([member, ...others].map((each) => each.leave({ onCrash: "continue" })));
    await expect.poll(async () => (await recordsOf(name)).sort()).toEqual(["left", "there"]);
    put.release();
    await put.answered();
    proxy.remove(put);
    expect(await waitersOf(name)).toEqual([]);
  });

  test("leaves once more if it is put late, before its mark", async () => {
    const name = "put-between";
    const held = holdPut(name);
    const controller = new AbortController();
    const entering = new DoubleBarrier(caller, name, 2).enter({ signal: controller.signal });
    entering.catch(() => undefined);
    await expect.poll(() => waitersOf(name), { timeout: 5000 }).toHaveLength(1);
    const [refused, lost] = [noMark(name), removal("drop-answer", name)];
    controller.abort(new Error("enough"));
    await lost.answered();
    expect([refused.hits, await recordsOf(name)]).toEqual([1, []]);
    held.release();
    await held.answered();
    await expect(entering).rejects.toThrow("enough");
    await expect.poll(() => recordsOf(name)).toEqual(["left"]);
    expect(await waitersOf(name)).toEqual([]);
    for (const each of [held, refused, lost]) proxy.remove(each);
  });

  test("leaves once more if it is put late, before it is known that it has left a full barrier", async () => {
    const name = "put-between/full";
    const inside = [1, 2].map(() => new DoubleBarrier(other, name, 2));
    await Promise.all(inside.map((each) => each.enter()));
    const held = holdPut(name);
    const [refused, lost] = [noMark(name), removal("drop-answer", name)];
    const entering = new DoubleBarrier(caller, name, 2).enter({ timeoutMs: 5000 });
    entering.catch(() => undefined);
    await lost.answered();
    expect([refused.hits, await recordsOf(name)]).toEqual([1, ["there", "there"]]);
    held.release();
    await held.answered();
    await expect(entering).rejects.toMatchObject({ code: "BARRIER_FULL" });
    for (const each of [held, refused, lost]) proxy.remove(each);
    await expect.poll(() => waitersOf(name)).toHaveLength(2);
    await expect.poll(async () => (await recordsOf(name)).sort()).toEqual(["left", "there", "there"]);
    await Promise.all(inside.map((each) => each.leave()));
  });
});

test.for(["enter", "leave"] as const)(
  "a member that gives its %s up enters again after etcd has deleted its key, and meets others only",
  async (call) => {
    const name = `again/${call}`;
    const [member, near] = [new DoubleBarrier(caller, name, 2), new DoubleBarrier(other, name, 2)];
    if (call === "leave") await Promise.all([member.enter(), near.enter()]);
    const controller = new AbortController();
    const leaving = removal("hold", name, Infinity);
    const given = member[call]({ signal: controller.signal });
    given.catch(() => undefined);
    // One that was let in together with it has left.
    const left = call === "leave" ? near.leave() : undefined;
    await expect.poll(() => waitersOf(name)).toHaveLength(1);
    controller.abort(new Error("enough"));
    await expect(given).rejects.toThrow("enough");
    await expect(member.enter({ signal: AbortSignal.timeout(20) })).rejects.toThrow("timeout");
    await expect(member.enter({ timeoutMs: 20 })).rejects.toThrow("within 20 ms");
    const entering = member.enter();
    entering.catch(() => undefined);
    expect(await stillWaits(other, entering)).toBe(true);
    expect([member.state, await waitersOf(name)]).toEqual(["entering", [expect.anything()]]);
    leaving.release();
    await left;
    expect(await stillWaits(other, entering)).toBe(true);
    proxy.remove(leaving);
    await Promise.all([entering, near.enter()]);
    await Promise.all([member.leave(), near.leave()]);
    expect(await keysUnder(etcd, `${name}/`)).toEqual([]);
  },
);

test("a member that was refused without a lost answer sends no more", async () => {
  const name = "refused-once";
  const refused = refusal(`${name}/waiters/`, '"owner"');
  const more = rule("delay", `${name}/waiters/`);
  await expect(new DoubleBarrier(caller, name, 2).enter()).rejects.toMatchObject({ code: "ETCD_REFUSED" });
  // On the same connection.
  await new CountDownLatch(caller, `${name}/after`, 2).count();
  for (const each of [refused, more]) proxy.remove(each);
  expect([refused.hits, more.hits]).toEqual([1, 0]);
});

test("a counter that was refused without a lost answer sends no more", async () => {
  const name = "refused-only";
  const latch = new CountDownLatch(caller, name, 2);
  const refused = refusal(`/latch/${name}//`, "/enlisted/");
  const more = rule("delay", `/latch/${name}//`);
  await expect(latch.enlist()).rejects.toMatchObject({ code: "ETCD_REFUSED" });
  // On the same connection.
  await new CountDownLatch(caller, `${name}/after`, 2).count();
  for (const each of [refused, more]) proxy.remove(each);
  expect([refused.hits, more.hits]).toEqual([1, 0]);
});

test("a counter counts whose round has ended before its enlisting is repeated", async () => {
  const name = "ended-enlist";
  const latch = new CountDownLatch(caller, name, 2);
  const lost = rule("drop-answer", `/latch/${name}//`, "/enlisted/");
  const enlisting = latch.enlist();
  await lost.answered();
  const first = (await keysUnder(etcd, `/leasehold/latch/${name}//`)).find(({ key }) =>
    key.endsWith("//latch"),
  );
  await revoke(etcd, first?.leaseId ?? 0n);
  const counter = await enlisting;
  proxy.remove(lost);
  await counter.countDown();
  expect(await latch.count()).toBe(1);
  expect(await partsOf(name)).toEqual(["counted"]);
});

test("a reset whose answer is lost, and which another one follows, brings back no count between them", async () => {
  const name = "two-resets";
  const [latch, near] = [new CountDownLatch(caller, name, 2), new CountDownLatch(other, name, 2)];
  await near.countDown();
  const lost = rule("drop-answer", `/latch/${name}//latch`, '"isOpen":false');
  const resetting = latch.reset();
  await lost.answered();
  await near.countDown();
  await near.reset();
  await resetting;
  proxy.remove(lost);
  expect(await near.count()).toBe(2);
});

test("a counter counts that was enlisted in a round by a repeated attempt", async () => {
  const name = "enlisted-again";
  await new CountDownLatch(other, name, 3).countDown();
  const latch = new CountDownLatch(caller, name, 3);
  await latch.count();
  const lost = rule("drop-answer", `/latch/${name}//`, "/enlisted/");
  const counter = await latch.enlist();
  expect(lost.hits).toBe(1);
  proxy.remove(lost);
  await counter.countDown();
  expect(await latch.count()).toBe(1);
});

test("a counter whose round has ended with its lease leaves no key", async () => {
  const name = "ended-round";
  const latch = new CountDownLatch(caller, name, 2);
  const counter = await latch.enlist();
  const keys = () => keysUnder(etcd, `/leasehold/latch/${name}//`);
  const first = (await keys()).find(({ key }) => key.endsWith("//latch"));
  await revoke(etcd, first?.leaseId ?? 0n);
  await expect(counter.countDown()).rejects.toMatchObject({ code: "LATCH_BROKEN", why: "reset" });
  expect(await keys()).toEqual([]);
});

describe("an attempt that etcd executes again, after its answer,", () => {
  test("brings back no member that has left", async () => {
    const name = "again-member";
    const session = await Session.open(caller, { ttlSeconds: 2 });
    const repeated = rule("repeat-late", `${name}/waiters/`, '"members":1');
    const member = new DoubleBarrier(session, name, 1);
    await member.enter();
    await member.leave();
    expect(await waitersOf(name)).toEqual([]);

    repeated.release();
    await repeated.answered();

    await expect.poll(() => waitersOf(name)).toEqual([]);
    expect(await recordsOf(name)).toEqual([]);
    expect(session.state).toBe("live");
    await session.close();
  });

  test("brings back no counter that has left", async () => {
    const name = "again-counter";
    const session = await Session.open(caller, { ttlSeconds: 2 });
    await new CountDownLatch(other, name, 2).countDown();
    const repeated = secondRule("repeat-late", `/latch/${name}//`, "/alive/");
    const counter = await new CountDownLatch(session, name, 2).enlist();
    await counter.leave();
    expect(await partsOf(name)).toEqual(["counted"]);

    repeated.release();
    await repeated.answered();

    await expect.poll(() => partsOf(name)).toEqual(["counted"]);
    expect(session.state).toBe("live");
    await session.close();
  });
});

test("a release opens a barrier whose holder dies between its read and its deletion", async () => {
  const name = "dies-at-release";
  const dying = await Session.open(other, { owner: "dies at release" });
  await new Barrier(dying, name).hold({ onCrash: "break" });
  const held = secondRule("hold", name);
  const releasing = new Barrier(caller, name).release();
  await held.hit();
  await revoke(etcd, dying.leaseId);
  held.release();
  await releasing;
  proxy.remove(held);
  await new Barrier(other, name).wait();
});
