// `timeoutMs` against an etcd that is slow, down, or does not answer: what a call rejects with, and when.
import { describe, expect, test } from "vitest";
import {
  type Cluster,
  connect,
  Election,
  type EtcdUnavailableError,
  lockAll,
  Mutex,
  once,
  RwLock,
  Semaphore,
  Session,
  type SessionSource,
  type WaitOptions,
} from "../../../src/index.js";
import { callChannel } from "../../../src/base/telemetry/channels.js";
import type { CallMessage } from "../../../src/base/telemetry/messages.js";
import { type EtcdMember, startEtcd } from "../../support/etcd/etcd.js";
import { placesOf } from "../../support/clients/server-view.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { controlTimer } from "../../support/fixtures/control-timer.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";

type Call = (source: SessionSource, wait: WaitOptions) => Promise<unknown>;

const NAME = "limited";
const WAITS: readonly (readonly [string, Call])[] = [
  ["lock", (source, wait) => new Mutex(source, NAME).lock(wait)],
  ["withLock", (source, wait) => new Mutex(source, NAME).withLock(() => undefined, wait)],
  ["lockAll", (source, wait) => lockAll(source, [NAME, "limited-too"], wait)],
  ["writeLock", (source, wait) => new RwLock(source, NAME).writeLock(wait)],
  ["readLock", (source, wait) => new RwLock(source, NAME).readLock(wait)],
  ["acquire", (source, wait) => new Semaphore(source, NAME, 1).acquire(wait)],
  ["campaign", (source, wait) => new Election(source, NAME).campaign("me", wait)],
  ["once", (source, wait) => once(source, NAME, 1, () => undefined, wait)],
];
/** What each of them waits for. */
const HOLDER: Readonly<Record<string, Call>> = {
  withLock: (source) => new Mutex(source, NAME).lock(),
  readLock: (source) => new RwLock(source, NAME).writeLock(),
  once: (source) => new Mutex(source, NAME).lock(),
};

/** Long enough for an answer of an etcd nearby: `locks/short-limits` has those that are not. */
const SHORT_MS = 100;

describe.concurrent("a time limit that ends before the first session is open", { timeout: 40_000 }, () => {
  test.for(WAITS)(
    "is no timeout of a lock for %s: nobody has said that it is taken",
    async ([, call], { expect }) => {
      await using etcd = await startEtcd();
      await using slow = await startTcpProxy({ port: etcd.member.clientPort });
      slow.delay(300);
      await using cluster = connect({ hosts: slow.endpoint });

      const reason = await reasonOf(call(cluster, { timeoutMs: SHORT_MS }));

      expect(reason).toMatchObject({
        code: "ETCD_UNAVAILABLE",
        message: expect.stringContaining(`open a session within ${SHORT_MS} ms`) as string,
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

  test("ends a tryLock, or the opening of a session, with EtcdUnavailableError", async ({ expect }) => {
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
const OUTAGES = [
  ["stands still", (member: EtcdMember) => member.pause(), (member: EtcdMember) => member.resume()],
  ["is down", (member: EtcdMember) => member.kill(), (member: EtcdMember) => member.restart()],
] as const;

/**
 * Resolves when the queue and the lease of its holder were read in the second half of a time limit that begins now: before
 * that, the wait itself reads.
 */
async function lateRead({ hosts }: Cluster): Promise<void> {
  const start = performance.now();
  let reads = 0;
  await new Promise<void>((resolve) => {
    const asyncEnd = (call: CallMessage): void => {
      const isIt = call.hosts === hosts && call.what === "read the queue" && call.error === undefined;
      if (!isIt || performance.now() - start < TIMEOUT_MS / 2 || ++reads < 2) return;
      callChannel.unsubscribe(listeners);
      resolve();
    };
    const none = (): void => undefined;
    const listeners = { start: none, end: none, asyncStart: none, error: none, asyncEnd };
    callChannel.subscribe(listeners);
  });
}

describe.concurrent.each(OUTAGES)(
  "a time limit that ends while etcd %s",
  { timeout: 40_000 },
  (_, begin, end) => {
    test.for(ENDING)(
      "is no timeout of a lock for %s, whose name may be free, and nothing is asked after it",
      async ([, call], { expect }) => {
        await using etcd = await startEtcd();
        await using cluster = connect({ hosts: etcd.endpoints });
        const session = await Session.open(cluster, { ttlSeconds: 60 });
        await begin(etcd.member);

        using limit = controlTimer(1.2 * TIMEOUT_MS);
        const reason = await reasonOf(call(session, { timeoutMs: TIMEOUT_MS }));

        // A request to etcd would take another 500 ms.
        expect(limit.passed).toBe(false);
        expect(reason).toMatchObject({ code: "ETCD_UNAVAILABLE" });
        const { members, cause } = reason as EtcdUnavailableError;
        expect([...members.keys()]).toEqual(etcd.endpoints);
        const said = (errors: Iterable<Error>) => [...errors].map(({ message }) => message);
        expect(said(cause.errors as Error[])).toEqual(said(members.values()));
        await end(etcd.member);
        await expect.poll(() => placesOf(etcd.member, NAME), { timeout: 20_000 }).toEqual([]);
      },
    );

    test.for(WAITS)(
      "is no timeout of a lock for %s, who has a place, but has heard nothing since",
      async ([name, call], { expect }) => {
        for (let timeoutMs = TIMEOUT_MS; ; timeoutMs *= 2) {
          await using etcd = await startEtcd();
          await using cluster = connect({ hosts: etcd.endpoints });
          const [holder, session] = await Promise.all(
            [1, 2].map(() => Session.open(cluster, { ttlSeconds: 60 })),
          );
          await (HOLDER[name] ?? call)(holder!, {});
          const start = performance.now();
          using limit = controlTimer(1.2 * timeoutMs);
          const reason = reasonOf(call(session!, { timeoutMs }));
          await expect.poll(() => placesOf(etcd.member, NAME)).toHaveLength(2);

          await begin(etcd.member);
          // In its second half, the call reads again. A machine that was too slow for the first half gets more time.
          const isLate = performance.now() - start > timeoutMs / 2;
          const said = await reason;
          const inTime = !limit.passed;
          await end(etcd.member);
          await cluster.close({ drainMs: 0 });

          if (isLate) continue;
          expect(said).toMatchObject({ code: "ETCD_UNAVAILABLE" });
          expect(inTime).toBe(true);
          return;
        }
      },
    );

    test("is a timeout of a lock if etcd has said just before that it is taken", async ({ expect }) => {
      await using etcd = await startEtcd();
      await using cluster = connect({ hosts: etcd.endpoints });
      const [holder, session] = await Promise.all(
        [1, 2].map(() => Session.open(cluster, { ttlSeconds: 60 })),
      );
      await new Mutex(holder!, NAME).lock();
      const asked = lateRead(cluster);
      const reason = reasonOf(new Mutex(session!, NAME).lock({ timeoutMs: TIMEOUT_MS }));
      await asked;

      await begin(etcd.member);

      expect(await reason).toMatchObject({ code: "LOCK_TIMEOUT", ahead: 1 });
      await end(etcd.member);
      await cluster.close({ drainMs: 0 });
    });
  },
);

test("a time limit is a timeout of a lock where every answer takes longer than the last question has time", async () => {
  await using etcd = await startEtcd();
  await using slow = await startTcpProxy({ port: etcd.member.clientPort });
  await using near = connect({ hosts: etcd.endpoints });
  await using far = connect({ hosts: slow.endpoint, requestTimeoutMs: 10_000 });
  const session = await Session.open(far, { ttlSeconds: 60 });
  const held = await new Mutex(near, NAME).lock();
  slow.delay(600);

  const reason = await reasonOf(new Mutex(session, NAME).lock({ timeoutMs: 2 * TIMEOUT_MS }));

  expect(reason).toMatchObject({ code: "LOCK_TIMEOUT", ahead: undefined });
  slow.delay(0);
  await held.release();
});

describe.concurrent("a time limit that ends while etcd stands still", { timeout: 40_000 }, () => {
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
    for (const reason of reasons) expect(reason).toMatchObject({ code: "ETCD_UNAVAILABLE" });
    etcd.member.resume();
  });
});
