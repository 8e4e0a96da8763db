// The suite of waits, for everything that waits in a queue.
import { getEventListeners } from "node:events";
import { setImmediate as tick } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { connect, LockTimeoutError, Mutex, Session } from "../../../src/index.js";
import { settledYet } from "../../support/clients/session-client.js";
import {
  alone,
  etcdOf,
  type Held,
  keyOf,
  promises,
  slug,
  type Subject,
  SUBJECTS,
  titled,
  tried,
} from "../../support/fixtures/subjects.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

/** No renewal falls into a test. */
const TTL_SECONDS = 600;
const two = twoSessions(TTL_SECONDS);
const { places } = two;
const { deleteKey, left, putKey, queued, revision, revoke, until } = etcdOf(two);

const nameOf = (what: string, subject: Subject) => `${what}/${slug(subject.what)}`;
/** When the session's next hold has been granted and released, it has handled all earlier notifications. */
const settle = (session: Session, name: string) =>
  new Mutex(session, `settled/${name}`).withLock(() => undefined);
/** Subjects that hold together are not granted in an order. */
const granted = (subject: Subject, order: readonly string[]) =>
  promises(subject, "alone") ? order : order.toSorted();

describe.concurrent.each(titled(SUBJECTS))("a wait for %s", { timeout: 40_000 }, (_, subject) => {
  const { take, block, release } = subject;

  test("that is aborted rejects with the caller's own reason and leaves no key, and those behind it are served in their order", async ({
    expect,
  }) => {
    const name = nameOf("abort", subject);
    for (const position of [0, 1, 2]) {
      const blocker = await block(two.holder, name);
      const caller = new AbortController();
      const served: string[] = [];
      const waits: Promise<unknown>[] = [];
      for (const who of ["1", "2", "3", "4"]) {
        const waiting = take(two.session, name, waits.length === position ? { signal: caller.signal } : {});
        waits.push(reasonOf(waiting.then((hold) => (served.push(who), release(hold)))));
        await queued(name, waits.length + 1);
      }

      caller.abort("enough");
      expect(await waits[position]).toBe("enough");
      await queued(name, 4);
      await settle(two.session, name);
      expect(served).toEqual([]);
      await blocker.release();
      await Promise.all(waits);

      expect(granted(subject, served)).toEqual(["1", "2", "3", "4"].toSpliced(position, 1));
      expect(await left(subject, name)).toEqual([]);
    }
  });

  test("that is aborted as it is granted, or before its request is answered, releases the lock", async () => {
    const name = nameOf("abort-race", subject);
    const blocker = await block(two.holder, name);
    const give = async (turn: () => Promise<unknown>) => {
      const caller = new AbortController();
      const waiting = reasonOf(take(two.session, name, { signal: caller.signal }).then(release));
      await turn();
      caller.abort();
      await waiting;
    };
    for (let n = 0; n < 10; n++) await give(() => tick());
    await give(() => blocker.release());
    await give(() => tick());

    await release(await take(two.holder, name, { timeoutMs: 20_000 }));
    await until(async () => (await left(subject, name)).length === 0);
  });

  test("has limits that end with the grant: neither signal nor time limit ends the hold", async ({
    expect,
  }) => {
    const caller = new AbortController();
    const limits = { signal: caller.signal, timeoutMs: 1000 };
    const hold = await take(two.session, nameOf("granted", subject), limits);

    caller.abort();
    await until(() => hold.remainingMs() < 0.9 * 1000 * TTL_SECONDS - 1000);

    expect([hold.held, hold.signal.aborted]).toEqual([true, false]);
    await release(hold);
  });

  test("that takes too long tells who holds and how many are ahead, and leaves no key", async ({
    expect,
  }) => {
    const name = nameOf("timeout", subject);
    const blocker = await block(two.holder, name);
    const between = block(two.holder, name);
    await queued(name, 2);

    const timeoutMs = 3000;
    const error = await reasonOf(take(two.session, name, { timeoutMs }));

    expect(error).toBeInstanceOf(LockTimeoutError);
    const owner = promises(subject, "owner") ? "the holder" : undefined;
    expect(error).toMatchObject({
      code: "LOCK_TIMEOUT",
      ...{ lockName: name, timeoutMs, ahead: 2 },
      holder: {
        ...{ key: keyOf(blocker), state: "holding", revision: blocker.revision, owner },
        leaseId: two.holder.leaseId,
      },
    });
    await queued(name, 2);
    await blocker.release();
    await (await between).release();
    expect(await left(subject, name)).toEqual([]);
  });

  test("joins anew when its key is deleted, behind those that came meanwhile, and is served", async ({
    expect,
  }) => {
    const name = nameOf("deleted", subject);
    const blocker = await block(two.holder, name);
    const waiting = take(two.session, name);
    await queued(name, 2);
    const { key, revision } = (await places(name))[1]!;
    const behind = take(two.holder, name);
    await queued(name, 3);

    await deleteKey(key);
    await until(async () => {
      const own = (await places(name)).find(({ leaseId }) => leaseId === two.session.leaseId);
      return own !== undefined && own.revision > revision;
    });
    await blocker.release();
    const first = await behind;
    await release(first);
    const hold = await waiting;

    expect(first.revision).toBeGreaterThan(revision);
    expect(hold.revision).toBeGreaterThan(first.revision);
    await release(hold);
    expect(await left(subject, name)).toEqual([]);
  });

  test("rejects when its session is lost; the next call uses the cluster's next session", async ({
    expect,
  }) => {
    const name = nameOf("revoked", subject);
    await using cluster = connect({ hosts: two.etcd.endpoints, session: { ttlSeconds: TTL_SECONDS } });
    const session = await cluster.session();
    const blocker = await block(two.holder, name);
    const waiting = reasonOf(take(cluster, name));
    await queued(name, 2);
    const behind = take(two.session, name);
    const turn = settledYet(behind);
    await queued(name, 3);

    await revoke(session);
    const reason = await waiting;
    expect(reason).toBe(session.signal.reason);
    expect(reason).toMatchObject({ code: "SESSION_LOST", loss: "revoked", leaseId: session.leaseId });
    const again = take(cluster, name);
    await queued(name, 3);
    await settle(two.session, name);
    expect(turn()).toBe(false);
    await blocker.release();
    await release(await behind);

    await release(await again);
    expect((await cluster.session()).leaseId).not.toBe(session.leaseId);
    expect(await left(subject, name)).toEqual([]);
  });

  test("rejects when its session is closed, and never gets what is released a moment later", async ({
    expect,
  }) => {
    const name = nameOf("closed", subject);
    const own = await Session.open(two.cluster, { ttlSeconds: TTL_SECONDS });
    const blocker = await block(two.holder, name);
    const waiting = reasonOf(take(own, name));
    await queued(name, 2);

    const closed = own.close();
    await blocker.release();

    expect(await waiting).toMatchObject({ code: "SESSION_CLOSED", leaseId: own.leaseId });
    await closed;
    expect(await left(subject, name)).toEqual([]);
  });

  test("that still joins when its session is closed or orphaned rejects, and leaves no key, whatever else the session holds", async ({
    expect,
  }) => {
    const name = nameOf("joining", subject);
    for (const end of ["close", "orphan"] as const) {
      const own = await Session.open(two.cluster, { ttlSeconds: TTL_SECONDS });
      const kept = await new Mutex(own, `kept/${end}/${name}`).lock();
      const waiting = reasonOf(take(own, name));
      await tick();

      const ended = end === "close" ? own.close({ drainMs: 60_000 }) : own.orphan();

      expect(await waiting).toMatchObject({ code: "SESSION_CLOSED" });
      await until(async () => (await left(subject, name)).length === 0);
      if (end === "close") {
        expect(kept.held).toBe(true);
        await kept.release();
      }
      await ended;
    }
  });

  test("inside the work of a holder of the name is refused as a deadlock, in any session, and leaves no key", async ({
    expect,
  }) => {
    const name = nameOf("deadlock", subject);
    const inside = () =>
      Promise.all([two.session, two.holder].map((session) => reasonOf(take(session, name))));
    const { run = SUBJECTS[0]!.run! } = subject;

    const reasons = await run(two.session, name, inside);

    const deadlock = { code: "DEADLOCK", lockName: name };
    expect(reasons).toMatchObject([deadlock, deadlock]);
    expect(await left(subject, name)).toEqual([]);
  });

  test("is not held up by keys and holders whose names only begin alike", async ({ expect }) => {
    const name = nameOf("alike", subject);
    const alike = await Promise.all([`${name}a`, `${name}-3`].map((other) => block(two.holder, other)));
    for (const key of [name, `${name}a`, name.slice(0, -1)]) await putKey(key, "somebody's data");

    const hold = await take(two.session, name);

    expect([hold, ...alike].map(({ held }) => held)).toEqual([true, true, true]);
    await Promise.all([hold, ...alike].map((each) => each.release()));
  });
});

describe.concurrent.each(titled(alone))("a wait for %s, which one holds at a time,", (_, subject) => {
  const { take, release } = subject;

  test("ends in the order of the places, one at a time", async ({ expect }) => {
    const name = nameOf("order", subject);
    const holds: Held[] = [];
    let ended = 0;
    const calls = Array.from({ length: 20 }, async () => {
      const hold = await take(two.session, name);
      holds.push(hold);
      await tick();
      expect(holds.length - ended++).toBe(1);
      await release(hold);
    });

    await Promise.all(calls);

    const revisions = holds.map(({ revision }) => revision);
    expect(revisions).toEqual(revisions.toSorted((a, b) => (a < b ? -1 : 1)));
    expect(await left(subject, name)).toEqual([]);
  });

  test("that gives up, or waits, disturbs no hold of its own session, which has another key", async ({
    expect,
  }) => {
    const name = nameOf("twins", subject);
    const first = await take(two.session, name);
    const late = await reasonOf(take(two.session, name, { timeoutMs: 1000 }));
    expect(late).toMatchObject({ code: "LOCK_TIMEOUT" });
    const waiting = take(two.session, name);
    const turn = settledYet(waiting);
    await until(async () => (await left(subject, name)).length === 2 * subject.names(name).length);
    await settle(two.session, name);
    expect([first.held, first.signal.aborted, turn()]).toEqual([true, false, false]);

    await release(first);
    const second = await waiting;

    expect(second.revision).toBeGreaterThan(first.revision);
    // The key of a wait with a priority is not that of its hold, which may be the one that is free again.
    if (subject.kind !== "priority") expect(keyOf(second)).not.toBe(keyOf(first));
    await release(second);
  });
});

// One after the other: they compare etcd's revisions.
describe.each(titled(SUBJECTS))("a call for %s", (_, subject) => {
  test("whose signal was aborted already sends nothing, though nobody holds", async () => {
    const name = nameOf("already", subject);
    const signal = AbortSignal.abort(new Error("too late"));
    const before = await revision();
    let works = 0;

    const calls = [
      subject.take(two.session, name, { signal }),
      subject.tryTake?.(two.session, name, { signal }),
      subject.run?.(two.session, name, () => void works++, { signal }),
    ].filter((call) => call !== undefined);

    for (const reason of await Promise.all(calls.map(reasonOf))) expect(reason).toBe(signal.reason);
    expect([works, await revision()]).toEqual([0, before]);
  });
});

describe.each(titled(tried))("a try for %s", (_, subject) => {
  const { block, tryTake, release } = subject;

  test("gets a free lock, also right after a release; returns undefined and leaves no key when the lock is taken", async () => {
    const name = nameOf("try", subject);
    const blocker = await block(two.holder, name);
    const before = await revision();

    const refused = [await tryTake(two.session, name), await tryTake(two.holder, name)];
    expect(refused).toEqual([undefined, undefined]);
    expect(await revision()).toBe(before);
    await blocker.release();

    for (let n = 0; n < 5; n++) {
      const hold = await tryTake(two.session, name);
      expect(hold?.held).toBe(true);
      void release(hold!);
    }
    await queued(name, 0);
  });
});

describe.each(titled(tried.filter((each) => alone.includes(each))))("a try for %s", (_, subject) => {
  const { tryTake, release } = subject;

  test("made many times at once gets the lock once", async () => {
    const name = nameOf("try-many", subject);

    const holds = await Promise.all(
      Array.from({ length: 20 }, (_, n) => tryTake(n % 2 ? two.session : two.holder, name)),
    );

    const held = holds.filter((hold) => hold !== undefined);
    expect(held.map((hold) => hold.held)).toEqual([true]);
    await queued(name, 1);
    expect(await tryTake(two.holder, name)).toBeUndefined();
    await release(held[0]!);
  });
});

describe("what subjects do not promise", () => {
  test.each(titled(SUBJECTS))("is lacking in %s, and nothing else", async (_, subject) => {
    const [name, lock] = [nameOf("lacks", subject), { maxHoldMs: 60_000 }];
    const hold = await subject.take(two.session, name);
    const beside = reasonOf(subject.take(two.holder, name, { timeoutMs: 200 }));
    const limit = await reasonOf((async () => subject.take(two.session, `${name}-x`, {}, lock))());
    const shared = (await beside) === undefined;

    const offered = (word: RegExp) => subject.methods().some((method) => word.test(method));
    expect("fence" in hold).toBe(promises(subject, "fence"));
    expect(shared).toBe(!promises(subject, "alone"));
    expect([offered(/^try/), subject.tryTake !== undefined]).toEqual(Array(2).fill(promises(subject, "try")));
    expect([offered(/^with/), subject.run !== undefined]).toEqual(Array(2).fill(promises(subject, "work")));
    expect(limit instanceof TypeError).toBe(!promises(subject, "maxHoldMs"));
    if (promises(subject, "fence")) expect(hold).toMatchObject({ fence: hold.revision });
    await subject.release(hold);
  });
});

describe("two mutexes of one session", () => {
  test("hand the lock on in the order of the calls", async () => {
    const served: number[] = [];
    const mutexes = [new Mutex(two.session, "order"), new Mutex(two.session, "order")];

    await Promise.all(
      Array.from({ length: 20 }, (_, i) => mutexes[i % 2]!.withLock(() => void served.push(i))),
    );

    expect(served).toEqual([...Array(20).keys()]);
    expect(await places("order")).toEqual([]);
  });
});

describe("a key that this session would use", () => {
  test("is somebody else's when it has another value, lease or not: the next number queues behind it", async () => {
    const name = "stranger";
    const id = two.session.leaseId.toString(16);
    await two.etcd.etcdctl(["put", `--lease=${id}`, `${name}/${id}`, ""]);
    const mutex = new Mutex(two.session, name);
    const waiting = mutex.lock();
    const turn = settledYet(waiting);
    await queued(name, 2);

    expect(await mutex.tryLock()).toBeUndefined();
    expect(turn()).toBe(false);
    await deleteKey(`${name}/${id}`);
    const lock = await waiting;

    expect(lock.key).toBe(`${name}/${id}-2`);
    await lock.release();
    expect(await places(name)).toEqual([]);
  });
});

describe("the signal of many waits", () => {
  test("carries one listener of ours while they wait, and none afterwards", async () => {
    const name = "listeners";
    const { signal } = new AbortController();
    const lock = await new Mutex(two.holder, name).lock();
    const mutex = new Mutex(two.session, name);

    const all = Array.from({ length: 200 }, () =>
      mutex.withLock(() => undefined, { signal, timeoutMs: 60_000 }),
    );
    await queued(name, 101);
    const during = getEventListeners(signal, "abort").length;
    await lock.release();
    await Promise.all(all);

    expect(during).toBe(1);
    expect(getEventListeners(signal, "abort")).toEqual([]);
  });

  test("opens and adopts no session when it was aborted already", async () => {
    const signal = AbortSignal.abort(new Error("too late"));

    const calls = [
      two.cluster.session({ signal }),
      Session.open(two.cluster, { signal }),
      Session.adopt(two.cluster, 7n, { signal }),
    ];

    expect(await Promise.all(calls.map(reasonOf))).toEqual(Array(3).fill(signal.reason));
  });
});

describe("a LockTimeoutError", () => {
  test("has a message for people, the holder's time, and a form for JSON", async () => {
    const name = "timeout/told";
    const lock = await new Mutex(two.holder, name).lock();

    const error = (await reasonOf(
      new Mutex(two.session, name).lock({ timeoutMs: 2000 }),
    )) as LockTimeoutError;

    const { holder, message } = error;
    expect(message).toBe(
      `Lock "${name}" not acquired within 2000 ms, held by the holder, 1 ahead in the queue`,
    );
    expect(holder!.since!.getTime()).toBeLessThanOrEqual(Date.now());
    expect(holder!.ttlRemainingMs).toBeGreaterThan(0);
    expect(holder!.ttlRemainingMs).toBeLessThanOrEqual(TTL_SECONDS * 1000);
    expect(JSON.parse(JSON.stringify(error))).toMatchObject({ holder: { revision: String(lock.fence) } });
    await lock.release();
  });

  test("names the holder where each answer of etcd takes longer than half a second", async () => {
    const name = "timeout/far";
    await using far = await startTcpProxy({ port: two.etcd.member.clientPort });
    await using cluster = connect({ hosts: far.endpoint });
    const session = await Session.open(cluster, { ttlSeconds: 30 });
    const lock = await new Mutex(two.holder, name).lock();
    far.delay(350);
    await new Mutex(session, "timeout/nearby").withLock(() => undefined);

    const timeout = (await reasonOf(new Mutex(session, name).lock({ timeoutMs: 5000 }))) as LockTimeoutError;
    // On a busy machine, one answer may take three times as long as the last one.
    const again = timeout.holder
      ? timeout
      : await reasonOf(new Mutex(session, name).lock({ timeoutMs: 5000 }));

    expect(again).toMatchObject({ code: "LOCK_TIMEOUT", holder: { key: lock.key } });
    far.delay(0);
    await lock.release();
  });

  test("names the key of a holder of another client", async () => {
    const name = "timeout/foreign";
    await putKey(`${name}/1234`, "");

    const error = await reasonOf(new Mutex(two.session, name).lock({ timeoutMs: 2000 }));

    expect(error).toMatchObject({
      ahead: 1,
      holder: { key: `${name}/1234`, owner: undefined, since: undefined },
    });
    await deleteKey(`${name}/1234`);
  });
});
