// The suite of releases and losses, for everything that can be held.
import { setImmediate as tick } from "node:timers/promises";
import { describe, onTestFinished, test } from "vitest";
import { lockAll, LockLostError, Mutex, Session } from "../../../src/index.js";
import { abortOf, openClient } from "../../support/clients/session-client.js";
import {
  etcdOf,
  type Held,
  keyOf,
  promises,
  slug,
  type Subject,
  SUBJECTS,
  titled,
  worked,
} from "../../support/fixtures/subjects.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

/** No renewal falls into a test. */
const TTL_SECONDS = 600;
const two = twoSessions(TTL_SECONDS);
const { deleteKey, left, putKey, queued, revision, revoke } = etcdOf(two);

type Work = (hold: Held) => Promise<unknown>;
type Form = (name: string, work: Work) => Promise<unknown>;

/** The forms in which a subject runs work. */
const formsOf = ({ take, run, release }: Subject): Record<string, Form> => ({
  ...(run && { "the form with work": (name, work) => run(two.session, name, work) }),
  "await using": async (name, work) => {
    await using hold = await take(two.session, name);
    return await work(hold);
  },
  "try and finally": async (name, work) => {
    const hold = await take(two.session, name);
    try {
      return await work(hold);
    } finally {
      await release(hold);
    }
  },
});
const FORMS = SUBJECTS.flatMap((subject) =>
  Object.entries(formsOf(subject)).map(([form, run]) => {
    const nameOf = (what: string) => `${slug(form)}/${slug(subject.what)}/${what}`;
    return [`${form} for ${subject.what}`, { form, run, subject, nameOf }] as const;
  }),
);

const FAILURE = new Error("the work failed");
const succeed: Work = () => Promise.resolve("done");
const fail: Work = () => Promise.reject(FAILURE);
/** The key is deleted before `work` continues. */
const losing =
  (work: Work): Work =>
  async (hold) => {
    await deleteKey(keyOf(hold));
    return work(hold);
  };
const lostAs = (lockName: string) => ({ code: "LOCK_LOST", loss: "deleted", lockName });

describe.concurrent.each(FORMS)("work in %s", (_, { form, run, subject, nameOf }) => {
  test.for([
    ["well", succeed, { value: "done" }],
    ["badly", fail, { error: FAILURE }],
  ] as const)(
    "that ends %s gives its value or rejects with that very error, holds until then, and the key is gone",
    async ([how, work, ended], { expect }) => {
      const name = nameOf(how);
      const order: unknown[] = [];
      let enter = () => {};
      const entered = new Promise<void>((resolve) => (enter = resolve));

      const running = run(name, async (hold) => {
        enter();
        await queued(name, 2);
        order.push(hold.held);
        return work(hold);
      }).then(
        (value) => ({ value }),
        (error: unknown) => ({ error }),
      );
      await entered;
      const next = await subject.block(two.holder, name);
      order.push("next");
      await next.release();
      const result = await running;

      expect(result).toEqual(ended);
      expect(order).toEqual([true, "next"]);
      expect(await left(subject, name)).toEqual([]);
    },
  );

  test("that ends well after the loss rejects with the loss", async ({ expect }) => {
    const name = nameOf("well-lost");

    const error = await reasonOf(run(name, losing(succeed)));

    expect(error).toBeInstanceOf(LockLostError);
    expect(error).toMatchObject(lostAs(name));
  });

  test("that fails after the loss rejects as JavaScript does in that form", async ({ expect }) => {
    const name = nameOf("both");

    const error = await reasonOf(run(name, losing(fail)));

    if (form === "the form with work") expect(error).toBe(FAILURE);
    else if (form === "await using") {
      expect(error).toMatchObject({ name: "SuppressedError", error: lostAs(name) });
      expect((error as { suppressed: unknown }).suppressed).toBe(FAILURE);
    } else expect(error).toMatchObject(lostAs(name));
  });
});

describe.concurrent.each(titled(worked))("work with %s", (_, subject) => {
  test("that has released by itself is no error", async ({ expect }) => {
    const work = async (hold: Held) => {
      await hold.release();
      return "early";
    };

    expect(await subject.run(two.session, `early/${slug(subject.what)}`, work)).toBe("early");
  });
});

/** The ways in which a hold ends, and what its signal says then. */
const ENDS: Record<string, [end: (hold: Held, session: Session) => Promise<unknown>, reason: object]> = {
  "its release": [(hold) => hold.release(), { code: "LOCK_RELEASED" }],
  "the deletion of its key": [(hold) => deleteKey(keyOf(hold)), { code: "LOCK_LOST", loss: "deleted" }],
  "the revocation of its lease": [(_, session) => revoke(session), { code: "LOCK_LOST", loss: "revoked" }],
  "the closing of its session": [
    (_, session) => session.close({ drainMs: 0 }),
    { code: "LOCK_LOST", loss: "closed" },
  ],
};

describe.concurrent.each(titled(SUBJECTS))("%s that is held", (_, subject) => {
  const { take, block, release } = subject;
  const nameOf = (what: string) => `${what.replaceAll(" ", "-")}/${slug(subject.what)}`;

  test.for(Object.entries(ENDS))(
    "is told its end once, by %s, and the next one gets it, whatever comes after",
    async ([what, [end, why]], { expect }) => {
      const name = nameOf(what);
      await using client = await openClient(two.etcd.endpoints, TTL_SECONDS);
      const hold = await take(client.session, name);
      const told: unknown[] = [];
      hold.signal.addEventListener("abort", () => told.push([hold.signal.reason, hold.held]));
      const next = block(two.holder, name);
      await queued(name, 2);

      await end(hold, client.session);
      const reason = await abortOf(hold.signal);
      await (await next).release();
      await reasonOf(release(hold));
      await client.cluster.close({ drainMs: 0 });

      // Why a key is gone is known a moment after the signal has told that it is.
      await expect.poll(() => reason).toMatchObject(why);
      expect(subject.names(name).some((each) => (reason as LockLostError).lockName.includes(each))).toBe(
        true,
      );
      expect(told).toEqual([[reason, false]]);
      expect([hold.signal.reason, hold.held, hold.remainingMs()]).toEqual([reason, false, 0]);
      expect(() => hold.assertHeld()).toThrow(reason);
      expect(await left(subject, name)).toEqual([]);
    },
  );

  test("never deletes a key that somebody has put in place of its own, and gives back the rest", async ({
    expect,
  }) => {
    const name = nameOf("guarded");
    const hold = await take(two.session, name);
    await deleteKey(keyOf(hold));
    await putKey(keyOf(hold), "somebody else's");

    await expect(release(hold)).rejects.toMatchObject(lostAs(name));

    await expect.poll(() => left(subject, name)).toEqual([keyOf(hold)]);
    await deleteKey(keyOf(hold));
  });

  test("is drained when its session closes, while those who wait in the session are rejected at once", async ({
    expect,
  }) => {
    const name = nameOf("drain");
    const own = await Session.open(two.cluster, { ttlSeconds: TTL_SECONDS });
    const hold = await take(own, name);
    const waiting = reasonOf(block(own, name));
    await queued(name, 2);

    const closed = own.close();

    expect(await waiting).toMatchObject({ code: "SESSION_CLOSED", leaseId: own.leaseId });
    expect([hold.held, hold.signal.aborted]).toEqual([true, false]);
    await release(hold);
    await closed;
    expect(await left(subject, name)).toEqual([]);
  });

  const adopts = promises(subject, "adoption");
  test(`is ${adopts ? "" : "not "}taken over by a call on the session that adopts its lease`, async ({
    expect,
  }) => {
    const name = nameOf("adopted");
    const session = await Session.open(two.cluster, { ttlSeconds: TTL_SECONDS });
    const hold = await take(session, name);
    const behind = block(two.holder, name);
    await queued(name, 2);
    await using adopted = await Session.adopt(two.cluster, await session.orphan());

    if (!adopts) {
      expect(await reasonOf(take(adopted, name, { timeoutMs: 1500 }))).toMatchObject({
        code: "LOCK_TIMEOUT",
      });
      await adopted.close();
      return (await behind).release();
    }
    const again = await take(adopted, name, { timeoutMs: 20_000 });

    expect([keyOf(again), again.revision]).toEqual([keyOf(hold), hold.revision]);
    expect([hold.held, again.held]).toEqual([false, true]);
    await release(again);
    await (await behind).release();
  });
});

// One after the other: they compare etcd's revisions, and listen to the process.
describe.each(titled(SUBJECTS))("the release of %s", (_, subject) => {
  const { take, release } = subject;

  test("is done once, whoever calls it and how often", async ({ expect }) => {
    const name = `often/${slug(subject.what)}`;
    const hold = await take(two.session, name);
    const before = await revision();

    await Promise.all([release(hold), hold.release(), hold[Symbol.asyncDispose]()]);
    await release(hold);

    // The deletions of several names share a request.
    expect(await revision()).toBe(before + 1n);
    expect(await left(subject, name)).toEqual([]);
  });

  test("after a loss that nobody awaits makes no unhandled rejection", async ({ expect }) => {
    const unhandled: unknown[] = [];
    const note = (reason: unknown) => void unhandled.push(reason);
    process.on("unhandledRejection", note);
    onTestFinished(() => void process.off("unhandledRejection", note));
    const hold = await take(two.session, `unawaited/${slug(subject.what)}`);
    await deleteKey(keyOf(hold));

    void release(hold);
    void hold[Symbol.asyncDispose]().catch(() => undefined);
    await expect(release(hold)).rejects.toBeInstanceOf(LockLostError);
    await tick();

    expect(unhandled).toEqual([]);
  });
});

describe.concurrent.each(titled(SUBJECTS.filter(({ tryTake }) => tryTake)))(
  "a listener of the signal of %s",
  (_, { what, take, tryTake, release }) => {
    test.for(["released", "lost"])(
      "that tries again when it is %s finds it free",
      async (how, { expect }) => {
        const name = `again/${how}/${slug(what)}`;
        const hold = await take(two.session, name);
        const tried = new Promise((resolve) => {
          hold.signal.addEventListener("abort", () => resolve(tryTake?.(two.session, name)));
        });

        if (how === "released") await release(hold);
        else await deleteKey(keyOf(hold));

        const again = (await tried) as Held | undefined;
        expect(again?.held).toBe(true);
        await again?.release();
      },
    );
  },
);

test("a listener of the signal of lockAll that tries again when it is released finds both names free", async ({
  expect,
}) => {
  const names = ["again/all/a", "again/all/b"];
  const locks = await lockAll(two.session, names);
  const tried = new Promise((resolve) => {
    const again = () => Promise.all(names.map((name) => new Mutex(two.session, name).tryLock()));
    locks.signal.addEventListener("abort", () => resolve(again()));
  });

  await locks.release();

  const again = (await tried) as (Held | undefined)[];
  expect(again.map((hold) => hold?.held)).toEqual([true, true]);
  for (const hold of again) await hold?.release();
});
