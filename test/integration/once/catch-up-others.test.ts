// Ticks that others have begun: run again if that is asked for, and never passed by if they gave up before their work.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { catchUp, type CatchUpOptions, type Cluster, connect, once } from "../../../src/index.js";
import { startGrpcProxy, type GrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(10);
const HOUR = 3_600_000;
const T0 = Date.UTC(2026, 0, 1);
const hours = (...n: readonly number[]): number[] => n.map((each) => T0 + each * HOUR);
const nothing = () => undefined;

/** The states of all ticks, from the first one on. */
const states = async (name: string) =>
  [...(await once.history(two.cluster, name))]
    .sort((a, b) => Number(a.slot) - Number(b.slot))
    .map(({ state }) => state);

describe("rerun", () => {
  /** The first tick has failed, the second was lost, and the third has run. */
  const begun = async (name: string) => {
    const [failed = 0, lost = 0, done = 0] = hours(0, 1, 2);
    await reasonOf(once(two.cluster, name, failed, () => Promise.reject(new Error("no disk"))));
    await reasonOf(once(two.cluster, name, lost, (lock) => lock.release()));
    await once(two.cluster, name, done, nothing);
    expect(await states(name)).toEqual(["failed", "lost", "done"]);
  };
  const caughtUp = (name: string, options: CatchUpOptions) =>
    catchUp(two.cluster, name, hours(0, 1, 2, 3), nothing, options);

  test.each([
    ["never", [3]],
    ["if_lost", [1, 3]],
    ["if_failed", [0, 1, 3]],
  ] as const)("%j", async (rerun, ran) => {
    await begun(`rerun/${rerun}`);

    expect(await caughtUp(`rerun/${rerun}`, { missed: "all", rerun })).toEqual({
      ran: hours(...ran),
      missed: [],
    });
  });

  test("runs none that missed would not have run, and marks none as missed that has a run", async () => {
    await begun("rerun/last");

    expect(await caughtUp("rerun/last", { missed: "last", rerun: "if_failed" })).toEqual({
      ran: hours(3),
      missed: [],
    });
    expect(await states("rerun/last")).toEqual(["failed", "lost", "done", "done"]);
  });

  test("waits for a run that is under way, and does not repeat it", async () => {
    let end: () => void = nothing;
    const running = once(
      two.holder,
      "rerun/waits",
      T0,
      () => new Promise<void>((resolve) => (end = resolve)),
    );
    await expect.poll(() => end).not.toBe(nothing);
    const waiting = catchUp(two.session, "rerun/waits", hours(0, 1), nothing, {
      missed: "all",
      rerun: "if_failed",
    });
    await two.queued("rerun/waits", 2);
    end();

    expect(await waiting).toEqual({ ran: hours(1), missed: [] });
    await running;
  });
});

describe("a tick whose process gives up before its work", () => {
  let proxy: GrpcProxy;
  let leaving: Cluster;
  beforeAll(async () => {
    proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
    leaving = connect({ hosts: proxy.endpoint, requestTimeoutMs: 1000 });
    await once(leaving, "warm", 1, nothing);
  });
  afterAll(async () => {
    await leaving.close({ drainMs: 0 });
    await proxy.stop();
  });
  /** A process begins a tick by its nth claim, hears nothing of that, and leaves. */
  const marked = (name: string, nth: number, begin: (signal: AbortSignal) => Promise<unknown>) => {
    let claims = 0;
    const rule = proxy.rule({
      ...{ path: "/etcdserverpb.KV/Txn", act: "drop-answer", times: 1 },
      when: (request) =>
        request.includes(`/leasehold/once/${name}//`) && request.includes('"started"') && ++claims === nth,
    });
    const stop = new AbortController();
    const begun = reasonOf(begin(stop.signal));
    return {
      answered: () => rule.answered(),
      async leave() {
        stop.abort(new Error("SIGTERM"));
        expect(await begun).toMatchObject({ message: "SIGTERM" });
        proxy.remove(rule);
      },
    };
  };

  const after = (last: Date | undefined) => hours(0, 1, 2).filter((slot) => !last || slot > last.getTime());

  test.each([
    ["all", "an array", hours(0, 1, 2)],
    ["last", "an array", hours(0, 1, 2)],
    ["all", "a function", after],
    ["last", "a function", after],
  ] as const)(
    "is waited for before anything is made of later ones, and then run: %j, with %s of ticks",
    { timeout: 20_000 },
    async (missed, form, ticks) => {
      const name = `leaves/${missed}/${form}`;
      const tick = marked(name, 1, (signal) =>
        catchUp(leaving, name, hours(0), nothing, { missed: "all", signal }),
      );
      await tick.answered();
      const ran: number[] = [];
      const work = ({ slot }: { readonly slot: number }) => void ran.push(slot);
      const waiting = catchUp(two.session, name, ticks, work, { missed });
      await new Promise((resolve) => setTimeout(resolve, 300));
      expect(await states(name)).toEqual(["running"]);
      await tick.leave();

      const [some, others] = missed === "all" ? [hours(0, 1, 2), []] : [hours(0, 2), hours(1)];
      expect(await waiting).toEqual({ ran: some, missed: others });
      expect(ran).toEqual(some);
    },
  );

  test("is not passed by if it begins after the look, either", { timeout: 20_000 }, async () => {
    const name = "leaves/later";
    await using cluster = connect({ hosts: proxy.endpoint, session: { owner: "the late one" } });
    const late = proxy.rule({
      ...{ path: "/etcdserverpb.KV/Txn", act: "hold", ms: 500, times: 1 },
      when: (request) => request.includes(`${T0 + HOUR}`) && request.includes('"the late one"'),
    });
    let end: () => void = nothing;
    const work = ({ slot }: { readonly slot: number }) =>
      slot === T0 ? new Promise<void>((resolve) => (end = resolve)) : undefined;
    const running = catchUp(cluster, name, hours(0, 1, 2), work, { missed: "all" });
    await expect.poll(() => end).not.toBe(nothing);
    // The first claim finds that the queue is not empty.
    const tick = marked(name, 2, (signal) => once(leaving, name, T0 + HOUR, nothing, { signal }));
    await two.queued(name, 2);
    end();
    await Promise.all([tick.answered(), late.hit()]);
    await new Promise((resolve) => setTimeout(resolve, 800));
    expect(await states(name)).toEqual(["done", "running"]);
    await tick.leave();

    expect(await running).toEqual({ ran: hours(0, 1, 2), missed: [] });
    proxy.remove(late);
  });

  test("is not waited for if nothing else is due", async () => {
    let end: () => void = nothing;
    const running = once(two.holder, "alone", T0, () => new Promise<void>((resolve) => (end = resolve)));
    await expect.poll(() => end).not.toBe(nothing);

    expect(await catchUp(two.session, "alone", hours(0), nothing, { missed: "all" })).toEqual({
      ran: [],
      missed: [],
    });
    end();
    await running;
  });
});

test("the marks of an older version on a cluster with a prefix count", async () => {
  await using cluster = connect({ hosts: two.etcd.endpoints, prefix: "prod/" });
  const [slot] = hours(1).map((each) => String(each).padStart(16, "0"));
  await two.etcd.etcdctl(["put", `prod//leasehold/once/old//${slot}`, JSON.stringify({ state: "done" })]);
  const floor = String(T0).padStart(16, "0");
  await two.etcd.etcdctl(["put", `prod//leasehold/once/old//-${floor}`, ""]);
  const last: (Date | undefined)[] = [];
  const after = (date: Date | undefined) => {
    last.push(date);
    return hours(0, 1, 2, 3);
  };

  expect(await catchUp(cluster, "old", after, nothing, { missed: "last" })).toEqual({
    ran: hours(3),
    missed: hours(2),
  });
  expect(last).toEqual([new Date(T0 + HOUR)]);
});

test("the ticks are closed, however the call ends", async () => {
  let closed = 0;
  function* ticks(slots: readonly number[]) {
    try {
      yield* slots;
      for (;;) yield Date.now() + HOUR;
    } finally {
      closed++;
    }
  }
  const fails = () => Promise.reject(new Error("no disk"));

  await catchUp(two.cluster, "closed", ticks(hours(0)), nothing, { missed: "all" });
  expect(closed).toBe(1);
  await reasonOf(catchUp(two.cluster, "closed", ticks(hours(1)), fails, { missed: "all" }));
  expect(closed).toBe(2);
  await reasonOf(catchUp(two.cluster, "closed", ticks(hours(2, 0)), nothing, { missed: "all" }));
  expect(closed).toBe(3);
});
