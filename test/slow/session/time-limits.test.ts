// `timeoutMs` against an etcd that is slow, down, or does not answer: what a call rejects with, and when.
import { describe, test } from "vitest";
import {
  connect,
  Election,
  lockAll,
  LockTimeoutError,
  Mutex,
  RwLock,
  Semaphore,
  Session,
  type SessionSource,
  type WaitOptions,
} from "../../../src/index.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { placesOf } from "../../support/clients/server-view.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { controlTimer } from "../../support/fixtures/control-timer.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";

type Call = (source: SessionSource, wait: WaitOptions) => Promise<unknown>;

const NAME = "limited";
const WAITS: readonly (readonly [string, Call])[] = [
  ["lock", (source, wait) => new Mutex(source, NAME).lock(wait)],
  ["lockAll", (source, wait) => lockAll(source, [NAME, "limited-too"], wait)],
  ["writeLock", (source, wait) => new RwLock(source, NAME).writeLock(wait)],
  ["acquire", (source, wait) => new Semaphore(source, NAME, 1).acquire(wait)],
  ["campaign", (source, wait) => new Election(source, NAME).campaign("me", wait)],
];

describe.concurrent("a time limit that ends before the first session is open", { timeout: 40_000 }, () => {
  test.for(WAITS)(
    "is a timeout of %s that says so, when nothing has failed",
    async ([, call], { expect }) => {
      await using etcd = await startEtcd();
      await using slow = await startTcpProxy({ port: etcd.member.clientPort });
      slow.delay(300);
      await using cluster = connect({ hosts: slow.endpoint });

      const reason = await reasonOf(call(cluster, { timeoutMs: 35 }));

      expect(reason).toBeInstanceOf(LockTimeoutError);
      expect(reason).toMatchObject({
        lockName: NAME,
        timeoutMs: 35,
        holder: undefined,
        ahead: undefined,
        message: `Lock "${NAME}" not acquired within 35 ms: its session was still being opened`,
      });
      // The session is still opened for the next caller.
      slow.delay(0);
      await (await new Mutex(cluster, NAME).lock()).release();
    },
  );

  test.for(WAITS)("rejects %s with what has failed, when something has", async ([, call], { expect }) => {
    await using etcd = await startEtcd();
    await etcd.member.kill();
    await using cluster = connect({ hosts: etcd.endpoints });

    const reason = await reasonOf(call(cluster, { timeoutMs: 2000 }));

    expect(reason).toMatchObject({ code: "ETCD_UNAVAILABLE" });
    const { members } = reason as { members: Map<string, Error> };
    expect([...members.keys()]).toEqual(etcd.endpoints);
    expect([...members.values()].map(({ message }) => message)).not.toContain("no answer yet");
  });

  test("is no timeout of a lock for who only tries, or opens a session", async ({ expect }) => {
    await using etcd = await startEtcd();
    await using slow = await startTcpProxy({ port: etcd.member.clientPort });
    slow.delay(300);
    await using cluster = connect({ hosts: slow.endpoint });

    const calls = [
      new Mutex(cluster, NAME).tryLock({ timeoutMs: 35 }),
      cluster.session({ timeoutMs: 35 }),
      Session.open(cluster, { timeoutMs: 35 }),
    ];

    for (const reason of await Promise.all(calls.map(reasonOf)))
      expect(reason).toMatchObject({ code: "ETCD_UNAVAILABLE" });
  });
});

const TIMEOUT_MS = 2000;
const ENDING: readonly (readonly [string, Call])[] = [
  ...WAITS,
  ["tryLock", (source, wait) => new Mutex(source, NAME).tryLock(wait)],
];

describe.concurrent("a time limit that ends while etcd stands still", { timeout: 40_000 }, () => {
  test.for(ENDING)("is the end of %s, with nothing asked after it", async ([, call], { expect }) => {
    await using etcd = await startEtcd();
    await using cluster = connect({ hosts: etcd.endpoints });
    const session = await Session.open(cluster, { ttlSeconds: 60 });
    etcd.member.pause();

    using limit = controlTimer(1.2 * TIMEOUT_MS);
    const reason = await reasonOf(call(session, { timeoutMs: TIMEOUT_MS }));

    expect((reason as { code: string }).code).toMatch(/^(LOCK_TIMEOUT|ETCD_UNAVAILABLE)$/);
    // A request to etcd would take another 500 ms.
    expect(limit.passed).toBe(false);
    etcd.member.resume();
    await expect.poll(() => placesOf(etcd.member, NAME), { timeout: 20_000 }).toEqual([]);
  });

  test.for(WAITS)("is the end of %s that had a place in the queue", async ([, call], { expect }) => {
    await using etcd = await startEtcd();
    await using cluster = connect({ hosts: etcd.endpoints });
    const [holder, session] = await Promise.all([1, 2].map(() => Session.open(cluster, { ttlSeconds: 60 })));
    await call(holder!, {});
    using limit = controlTimer(1.2 * TIMEOUT_MS);
    const reason = reasonOf(call(session!, { timeoutMs: TIMEOUT_MS }));
    await expect.poll(() => placesOf(etcd.member, NAME)).toHaveLength(2);

    etcd.member.pause();

    expect(await reason).toMatchObject({ code: "LOCK_TIMEOUT" });
    expect(limit.passed).toBe(false);
    etcd.member.resume();
  });

  test("is the end of the opening of a session", async ({ expect }) => {
    await using etcd = await startEtcd();
    await using cluster = connect({ hosts: etcd.endpoints });
    etcd.member.pause();

    using limit = controlTimer(1.2 * TIMEOUT_MS);
    const waits = { timeoutMs: TIMEOUT_MS };
    const calls = [
      cluster.session(waits),
      Session.open(cluster, waits),
      new Mutex(cluster, NAME).lock(waits),
      new Mutex(cluster, NAME).tryLock(waits),
    ];
    const reasons = await Promise.all(calls.map(reasonOf));

    expect(limit.passed).toBe(false);
    for (const reason of reasons)
      expect((reason as { code: string }).code).toMatch(/^(LOCK_TIMEOUT|ETCD_UNAVAILABLE)$/);
    etcd.member.resume();
  });
});
