// The channel `leasehold.acquire`: every call that takes a lock, each way in which it can end.
import { AsyncLocalStorage } from "node:async_hooks";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  ClusterLockManager,
  connect,
  lead,
  Mutex,
  Session,
  type SessionSource,
  type WaitOptions,
} from "../../../src/index.js";
import { acquireChannel, holdEndChannel } from "../../../src/base/telemetry/channels.js";
import type { AcquireMessage } from "../../../src/base/telemetry/messages.js";
import { servicesOf } from "../../../src/lock/session/cluster.js";
import { isShared, LABEL, TRYING, WAITING, holdFor } from "../../support/fixtures/acquiring.js";
import { Published, Traced } from "../../support/fixtures/published.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(10);
const traced = () => new Traced<AcquireMessage>(acquireChannel);
const openSession = () => Session.open(two.cluster, { ttlSeconds: 10, owner: "the loser" });

describe.each([...WAITING, ...TRYING])("%s", (call, kind, take) => {
  const name = (what: string) => `${call}/${what}`;
  const tries = call.includes("try");

  test("that is granted publishes what it got, from whom, and how long it took", async () => {
    using trace = traced();
    const before = performance.now();

    const taking = take(two.session, name("granted"));
    expect(trace.events.map(({ event }) => event)).toEqual(["start", "end"]);
    expect(trace.events[0]?.message).toMatchObject({ kind, name: name("granted"), tries, label: LABEL });
    expect(trace.events[0]?.message).toMatchObject({
      outcome: undefined,
      waitedMs: undefined,
      key: undefined,
    });
    await taking;
    const tookMs = performance.now() - before;

    expect(trace.events.map(({ event }) => event)).toEqual(["start", "end", "asyncStart", "asyncEnd"]);
    expect(new Set(trace.events.map(({ message }) => message)).size).toBe(1);
    const [message] = trace.ended;
    expect(message).toMatchObject({ outcome: "granted", ahead: 0, holder: undefined });
    expect(message).toMatchObject({ owner: two.session.owner, leaseId: two.session.leaseId });
    expect(message?.hosts).toBe(two.cluster.hosts);
    expect(message?.names).toEqual(
      kind === "all" ? [name("granted"), `${name("granted")}-2`] : [message?.name],
    );
    expect(message?.key).toMatch(`${name("granted")}/`);
    expect(message?.revision).toBeGreaterThan(0n);
    expect(message?.fence).toBe(isShared(kind) ? undefined : message?.revision);
    expect(message?.waitedMs).toBeGreaterThan(0);
    expect(message?.waitedMs).toBeLessThan(tookMs);
    expect(message).not.toHaveProperty("error");
  });

  test("that is aborted before publishes that", async () => {
    using trace = traced();
    const reason = new Error("no longer needed");

    await expect(take(two.session, name("aborted"), { signal: AbortSignal.abort(reason) })).rejects.toBe(
      reason,
    );

    expect(trace.ended).toEqual(trace.of("error"));
    expect(trace.ended).toMatchObject([{ outcome: "aborted", error: reason, key: undefined }]);
  });

  test("with bad options publishes nothing", async () => {
    using trace = traced();

    await expect(take(two.session, name("bad"), { timeoutMs: 0 })).rejects.toThrow(RangeError);

    expect(trace.events).toEqual([]);
  });
});

test.each(TRYING)("%s that finds the lock taken publishes that it was busy", async (call, kind, take) => {
  using trace = traced();
  const lock = await holdFor(kind, two.holder, `${call}/busy`);

  expect(await take(two.session, `${call}/busy`)).toBeUndefined();

  expect(trace.ended.at(-1)).toMatchObject({
    outcome: "busy",
    ahead: undefined,
    key: undefined,
    tries: true,
  });
  await lock.release();
});

describe.each(WAITING)("%s that waits", (call, kind, take) => {
  const name = (what: string) => `${call}/${what}`;
  const taken = (what: string) => holdFor(kind, two.holder, name(what));
  // The trace begins after the lock of the holder.
  const waiting = async (what: string, source: SessionSource, wait?: WaitOptions) => {
    const lock = await taken(what);
    const trace = traced();
    const outcome = reasonOf(take(source, name(what), wait));
    await two.queued(name(what), 2);
    return { lock, trace, outcome, [Symbol.dispose]: () => trace[Symbol.dispose]() };
  };

  test("publishes how many were before it", async () => {
    using it = await waiting("ahead", two.session);

    await it.lock.release();
    expect(await it.outcome).toBeUndefined();

    expect(it.trace.ended).toMatchObject([{ outcome: "granted", ahead: kind === "all" ? undefined : 1 }]);
  });

  test("publishes the holder if the time limit ends it", async () => {
    using it = await waiting("timeout", two.session, { timeoutMs: 2000 });

    expect(await it.outcome).toMatchObject({ code: "LOCK_TIMEOUT" });

    expect(it.trace.ended).toMatchObject([
      {
        outcome: "timeout",
        // The value of a candidate is its proclamation, which names no owner.
        holder: { owner: kind === "leadership" ? undefined : "the holder", key: it.lock.key },
      },
    ]);
    expect(it.trace.ended[0]?.waitedMs).toBeGreaterThan(1990);
    await it.lock.release();
  });

  test("publishes that its caller gave up", async () => {
    const giveUp = new AbortController();
    using it = await waiting("gave-up", two.session, { signal: giveUp.signal });

    giveUp.abort();
    await it.outcome;

    expect(it.trace.ended).toMatchObject([{ outcome: "aborted", error: giveUp.signal.reason as unknown }]);
    await it.lock.release();
  });

  test("publishes that its session is lost, or closed", async () => {
    const [lost, closed] = await Promise.all([openSession(), openSession()]);
    using first = await waiting("lost", lost);
    await two.etcd.etcdctl(["lease", "revoke", lost.leaseId.toString(16)]);
    await first.outcome;
    expect(first.trace.ended).toMatchObject([
      { outcome: "session_lost", owner: "the loser", leaseId: lost.leaseId, error: { code: "SESSION_LOST" } },
    ]);
    first.trace[Symbol.dispose]();

    using second = await waiting("closed", closed);
    await closed.close();
    await second.outcome;
    expect(second.trace.ended).toMatchObject([{ outcome: "session_closed", leaseId: closed.leaseId }]);

    await Promise.all([first.lock.release(), second.lock.release()]);
  });
});

describe("a request of a Web Lock", () => {
  const manager = () => new ClusterLockManager(two.cluster);

  test("publishes the name that the caller gave, and a fence if it is exclusive", async () => {
    await using locks = manager();
    using trace = traced();

    const revision = await locks.request("a name", (lock) => lock?.revision);
    await locks.request("a name", { mode: "shared" }, () => undefined);

    expect(trace.ended).toMatchObject([
      { kind: "web_lock", name: "a name", names: ["a name"], outcome: "granted", fence: revision, ahead: 0 },
      { kind: "web_lock", name: "a name", outcome: "granted", fence: undefined },
    ]);
  });

  test("publishes that it found the lock taken, was aborted, or ended with its manager", async () => {
    await using locks = manager();
    await using others = manager();
    using trace = traced();
    const giveUp = new AbortController();

    await locks.request("taken", async () => {
      await others.request("taken", { ifAvailable: true }, (lock) => expect(lock).toBeNull());
      const aborted = reasonOf(others.request("taken", { signal: giveUp.signal }, () => undefined));
      giveUp.abort();
      await aborted;
      const ended = reasonOf(others.request("taken", () => undefined));
      await others.close();
      await ended;
    });

    expect(trace.ended.map(({ outcome, tries }) => [outcome, tries])).toEqual([
      ["granted", false],
      ["busy", true],
      ["aborted", false],
      ["session_closed", false],
    ]);
  });
});

test("a campaign of lead is published, too", async () => {
  using trace = traced();
  const stop = new AbortController();

  await lead(two.cluster, "lead", () => stop.abort(), { signal: stop.signal, owner: "a leader" });

  expect(trace.ended).toMatchObject([
    { kind: "leadership", name: "lead", owner: "a leader", outcome: "granted" },
  ]);
});

test("a call that would wait for itself publishes an error, and one that enters again publishes nothing", async () => {
  using trace = traced();
  const mutex = new Mutex(two.session, "inner");

  await mutex.withLock(async () => {
    await expect(mutex.lock()).rejects.toMatchObject({ code: "DEADLOCK" });
    await mutex.withLock((lock) => lock.fence, { reentrant: true });
  });

  expect(trace.ended.map(({ outcome }) => outcome)).toEqual(["granted", "error"]);
  expect(trace.of("error")).toMatchObject([{ error: { code: "DEADLOCK" } }]);
});

test("a call that gets no answer publishes an error", async () => {
  await using away = connect({ hosts: "127.0.0.1:1" });
  using trace = traced();

  await reasonOf(new Mutex(away, "away").tryLock({ timeoutMs: 200 }));

  expect(trace.ended).toMatchObject([
    { outcome: "error", error: { code: "ETCD_UNAVAILABLE" }, owner: undefined },
  ]);
});

test("start is published in the async context of the caller, and can set one for the call", async () => {
  const callers = new AsyncLocalStorage<string>();
  const spans = new AsyncLocalStorage<AcquireMessage>();
  const seen: unknown[] = [];
  const onStart = () => void seen.push(callers.getStore());
  const onAsyncEnd = () => void seen.push([callers.getStore(), spans.getStore()?.name]);
  onTestFinished(() => {
    acquireChannel.start.unbindStore(spans);
    acquireChannel.start.unsubscribe(onStart);
    acquireChannel.asyncEnd.unsubscribe(onAsyncEnd);
  });
  acquireChannel.start.bindStore(spans, (message) => message);
  acquireChannel.start.subscribe(onStart);
  acquireChannel.asyncEnd.subscribe(onAsyncEnd);

  const after = await callers.run("the caller", () =>
    new Mutex(two.session, "context").withLock(() => spans.getStore()),
  );

  expect(seen).toEqual(["the caller", ["the caller", "context"]]);
  expect(after).toBeUndefined();
});

/** Every message contains the hosts, so whoever reads them makes a message. */
test("no message is created before the first subscriber, or after the last one", async () => {
  await using own = connect({ hosts: two.etcd.endpoints });
  const session = await Session.open(own, { ttlSeconds: 10 });
  const { hosts } = own;
  let made = 0;
  let round = 0;
  Object.defineProperty(servicesOf(own).options, "hosts", { get: () => (made++, hosts) });
  const everything = async () => {
    round++;
    for (const [call, , take] of [...WAITING, ...TRYING]) await take(session, `unseen/${call}/${round}`);
    await new ClusterLockManager(own).request("unseen", () => undefined);
    await (await new Mutex(session, "unseen/released").lock()).release();
    return made;
  };

  expect(await everything()).toBe(0);
  const subscribers = [traced(), new Published(holdEndChannel)];
  const unsubscribe = () => subscribers.forEach((subscriber) => subscriber[Symbol.dispose]());
  const withSubscribers = await everything().finally(unsubscribe);
  // One message for each call, and one for each hold that ended.
  expect(withSubscribers).toBeGreaterThan(WAITING.length + TRYING.length);
  expect(await everything()).toBe(withSubscribers);
}, 60_000);
