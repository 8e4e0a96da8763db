import { once } from "node:events";
import { describe, expect, test } from "vitest";
import { type Hold, LockLostError, Semaphore } from "../../../src/index.js";
import { spaceAlarm } from "../../support/fixtures/space-alarm.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const TTL_SECONDS = 4;

const two = twoSessions(TTL_SECONDS);
const { places, queued } = two;

const semaphoresOf = (name: string, permits: number) =>
  [new Semaphore(two.holder, name, permits), new Semaphore(two.session, name, permits)] as const;
const releaseAll = (holds: readonly Hold[]) => Promise.all(holds.map((hold) => hold.release()));

/** The calls run one after the other; each has its place in etcd before the next one starts. */
async function inLine(name: string, calls: readonly (() => Promise<Hold>)[]): Promise<Promise<Hold>[]> {
  const before = (await places(name)).length;
  const waiting: Promise<Hold>[] = [];
  for (const call of calls) {
    waiting.push(call());
    await queued(name, before + waiting.length);
  }
  return waiting;
}

/** The entry of a client that has joined the queue and died: nobody announces its grant. Returns its lease. */
async function putDead(name: string, permits: number): Promise<string> {
  const { stdout } = await two.etcd.etcdctl(["lease", "grant", "60"]);
  const [, id = ""] = /lease 0*(\w+) granted/.exec(stdout) ?? [];
  const value = { owner: "dead", since: new Date().toISOString(), id: "dead", permits };
  await two.etcd.etcdctl(["put", `${name}/${id}`, JSON.stringify(value), `--lease=${id}`]);
  return id;
}

describe("a semaphore", () => {
  test("has as many holders as permits, of one session and of several, and the others wait in order", async () => {
    const name = "order";
    const [a, b] = semaphoresOf(name, 3);
    const held = [await a.acquire(), ...(await Promise.all([b.acquire(), a.acquire()]))];
    expect(await b.tryAcquire()).toBeUndefined();
    const late = await reasonOf(b.acquire({ timeoutMs: 2000 }));
    expect(late).toMatchObject({ lockName: name, ahead: 3, holder: { key: held[0]!.key } });
    // Its key is deleted in the background.
    await queued(name, 3);
    const served: number[] = [];
    const turns = [b, a, a, b, b, a, b];
    const waiting = await inLine(
      name,
      turns.map((semaphore) => () => semaphore.acquire()),
    );
    waiting.forEach((each, i) => void each.then(() => served.push(i)));

    expect(served).toEqual([]);
    for (let i = 0; i < waiting.length; i++) {
      await (i < 3 ? held[2 - i]! : await waiting[i - 3]!).release();
      await waiting[i];
      expect(served).toEqual([...Array(i + 1).keys()]);
    }

    await releaseAll(await Promise.all(waiting.slice(-3)));
    expect(await places(name)).toEqual([]);
  });

  test("gives every permit that comes free at once to those who wait, however many", async () => {
    const name = "burst";
    const [a, b] = semaphoresOf(name, 4);
    const held = await Promise.all(Array.from({ length: 4 }, () => a.acquire()));
    const waiting = await inLine(
      name,
      Array.from({ length: 8 }, (_, i) => () => [a, b][i % 2]!.acquire()),
    );

    await releaseAll(held);
    const next = await Promise.all(waiting.slice(0, 4));

    expect(next.every(({ held: holds }) => holds)).toBe(true);
    await releaseAll(next);
    await releaseAll(await Promise.all(waiting.slice(4)));
  });

  test("serves who comes after hand-overs by the first permit that comes free, whoever gives it back", async () => {
    const name = "whichever";
    const [a, b] = semaphoresOf(name, 3);
    const first = await Promise.all([a.acquire(), b.acquire(), a.acquire()]);
    const next = await inLine(name, [() => a.acquire(), () => b.acquire(), () => a.acquire()]);
    await releaseAll(first);
    const held = await Promise.all(next);

    for (const oldest of held) {
      const [waiting] = await inLine(name, [() => b.acquire()]);
      await oldest.release();
      await (await waiting!).release();
      await (await b.acquire()).release();
    }

    expect(await places(name)).toEqual([]);
  });

  test("passes a permit on when the lease of a dead waiter ends", async () => {
    const name = "crash of a waiter";
    const [a, b] = semaphoresOf(name, 1);
    const holder = await a.acquire();
    const id = await putDead(name, 1);
    const [waiting] = await inLine(name, [() => b.acquire()]);

    await holder.release();
    expect(await places(name)).toHaveLength(2);
    await two.etcd.etcdctl(["lease", "revoke", id]);

    await (await waiting!).release();
  });
});

describe("the waiter behind a waiter that cannot announce its grant", () => {
  /** Less than the time after which every wait reads. */
  const SOON = { timeoutMs: 15_000 };

  test("gets the next free permit while etcd rejects every put", async () => {
    const name = "not-announced";
    const [a, b] = semaphoresOf(name, 2);
    const old = await Promise.all([a.acquire(), a.acquire()]);
    const waiting = await inLine(name, [() => b.acquire(SOON), () => a.acquire(SOON)]);

    await spaceAlarm(two.etcd.member, "ACTIVATE");
    let granted: Hold[];
    try {
      await releaseAll(old);
      granted = await Promise.all(waiting);
    } finally {
      await spaceAlarm(two.etcd.member, "DEACTIVATE");
    }

    await releaseAll(granted);
    expect(await places(name)).toEqual([]);
  });

  test("gets a free permit although the waiter before it has died", async () => {
    const name = "behind-the-dead";
    const [a, b] = semaphoresOf(name, 2);
    const holders = await Promise.all([a.acquire(), a.acquire()]);
    await putDead(name, 2);
    const [waiting] = await inLine(name, [() => b.acquire(SOON)]);
    // By then the reads that follow the creation of the watches are over.
    await reasonOf(b.acquire({ timeoutMs: 300 }));

    await releaseAll(holders);

    await (await waiting!).release();
  });
});

describe("a permit that expires", () => {
  const EXPIRING = { maxHoldMs: 100 };

  test("is lost to its holder, and goes to the first waiter after the grace; the others keep theirs", async () => {
    const name = "expires/one";
    const [a, b] = semaphoresOf(name, 2);
    const kept = await a.acquire();
    // The grace outlasts the test: the release ends it.
    const options = { ...EXPIRING, maxHoldGraceMs: 3_600_000 };
    const expiring = await new Semaphore(two.holder, name, 2, options).acquire();
    const waiting = await inLine(name, [() => b.acquire(), () => b.acquire()]);
    const served: number[] = [];
    waiting.forEach((each, i) => void each.then(() => served.push(i)));

    const ended = once(expiring.signal, "abort");
    if (!expiring.signal.aborted) await ended;
    expect(expiring.signal.reason).toMatchObject({ code: "LOCK_LOST", loss: "max_hold" });
    expect([expiring.held, kept.held, served]).toEqual([false, true, []]);
    expect(await places(name)).toHaveLength(4);
    const late = await reasonOf(expiring.release());
    const next = await waiting[0]!;

    expect(late).toBeInstanceOf(LockLostError);
    expect([next.held, kept.held, served]).toEqual([true, true, [0]]);
    await kept.release();
    await releaseAll([next, await waiting[1]!]);
    expect(await places(name)).toEqual([]);
  });

  test("goes on by itself when its holder does nothing, from one to the next", async () => {
    const name = "expires/chain";
    const options = { ...EXPIRING, maxHoldGraceMs: 0 };
    const semaphore = new Semaphore(two.holder, name, 2, options);
    const holds = await Promise.all(Array.from({ length: 6 }, () => semaphore.acquire()));

    const reasons = await Promise.all(holds.map((hold) => reasonOf(hold.release())));
    expect(reasons.slice(0, 4)).toMatchObject(Array(4).fill({ code: "LOCK_LOST", loss: "max_hold" }));
    expect([two.holder.state, await places(name)]).toEqual(["live", []]);
  });

  test("has the limit of its own object: that of another one, on the same name, stays", async () => {
    const name = "expires/each";
    const [a] = semaphoresOf(name, 2);
    const unlimited = await a.acquire();
    const options = { ...EXPIRING, maxHoldGraceMs: 0 };
    const work = new Semaphore(two.session, name, 2, options).withPermit(
      ({ signal }) => new Promise((resolve) => signal.addEventListener("abort", resolve)),
    );

    await expect(work).rejects.toMatchObject({ code: "LOCK_LOST", loss: "max_hold" });
    expect(unlimited.held).toBe(true);
    await unlimited.release();
  });
});

describe("while users of a semaphore disagree on the number", () => {
  test("that of the oldest place rules, and nobody who holds loses a permit", async () => {
    const name = "deploy/fewer";
    const [a] = semaphoresOf(name, 3);
    const [, few] = semaphoresOf(name, 1);
    const old = await Promise.all([a.acquire(), a.acquire()]);
    const third = await few.acquire();
    const waiting = await inLine(name, [() => few.acquire(), () => few.acquire()]);

    await old[0].release();
    const fourth = await waiting[0]!;
    expect([old[1].held, third.held, fourth.held]).toEqual([true, true, true]);
    // From here on, the oldest place's limit is 1.
    await old[1].release();
    await third.release();
    expect(await few.tryAcquire()).toBeUndefined();
    await fourth.release();

    await (await waiting[1]!).release();
  });

  test("a larger number lets in all whom it has room for as soon as it rules", async () => {
    const name = "deploy/more";
    const [one] = semaphoresOf(name, 1);
    const [, many] = semaphoresOf(name, 3);
    const old = await one.acquire();
    const waiting = await inLine(
      name,
      Array.from({ length: 5 }, () => () => many.acquire()),
    );

    await old.release();
    const three = await Promise.all(waiting.slice(0, 3));

    expect(await many.tryAcquire()).toBeUndefined();
    await releaseAll(three);
    await releaseAll(await Promise.all(waiting.slice(3)));
  });

  test("who was let in by a number that rules no more is seen holding by those who come later", async () => {
    const name = "deploy/gone";
    const [four] = semaphoresOf(name, 4);
    const [first, second] = semaphoresOf(name, 2);
    const oldest = await four.acquire();
    const held = [await first.acquire(), await first.acquire(), await first.acquire()];
    await oldest.release();
    // Three hold although only two may: the turn comes when one is left, whichever it is.
    const [waiting] = await inLine(name, [() => second.acquire()]);

    await releaseAll(held.slice(0, 2));

    await releaseAll([await waiting!, held[2]!]);
  });
});

describe("tryAcquire", () => {
  test("by many at once gives exactly the permits that are free", async () => {
    const name = "try/many";
    const [a, b] = semaphoresOf(name, 3);

    const holds = await Promise.all(Array.from({ length: 12 }, (_, i) => [a, b][i % 2]!.tryAcquire()));

    const held = holds.filter((hold) => hold !== undefined);
    expect(held.length).toBeGreaterThan(0);
    expect(held.length).toBeLessThanOrEqual(3);
    await queued(name, held.length);
    await releaseAll(held);
  });
});
