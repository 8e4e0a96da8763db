// What a call does that meets an entry of another kind, or of a nested name: the table of docs/kinds.md, and the rest of it.
import { tracingChannel } from "node:diagnostics_channel";
import { readFileSync } from "node:fs";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  type Cluster,
  connect,
  Election,
  inspect,
  join,
  KindMismatchError,
  lead,
  lockAll,
  Mutex,
  RwLock,
  Semaphore,
  Session,
} from "../../../src/index.js";
import { CHANNELS } from "../../../src/base/telemetry/channels.js";
import { encode } from "../../support/clients/gateway-text.js";
import { V3Candidate } from "../../support/clients/v3election.js";
import { V3Lock } from "../../support/clients/v3lock.js";
import { ASKING, FOUND, queueName } from "../../support/fixtures/kinds.js";
import { nextLeader } from "../../support/fixtures/next-leader.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { ROOT, startWithUsers } from "../../support/fixtures/users.js";

const two = twoSessions(10);
const { places, queued } = two;

const mismatch = (
  kind: string,
  found: string,
  [lockName, foundName = lockName]: readonly [string, string?],
): unknown => expect.objectContaining({ code: "KIND_MISMATCH", kind, found, lockName, foundName });

/** The pairs in the cells of the table, whose heads are lists of names: what asks, what it finds, and what happens. */
function cells(): [asking: string, found: string, happens: string][] {
  const page = readFileSync(new URL("../../../docs/kinds.md", import.meta.url), "utf8");
  const rows = page.split("\n").filter((line) => line.startsWith("| "));
  const [head = [], , ...body] = rows.map((row) =>
    row
      .split("|")
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
  return body.flatMap(([askers = "", ...rest]) =>
    rest.flatMap((cell, n) =>
      askers
        .split(", ")
        .flatMap((asking) =>
          (head[n + 1] ?? "").split(", ").map((found): [string, string, string] => [asking, found, cell]),
        ),
    ),
  );
}

describe("the table of docs/kinds.md", () => {
  test("has each class that asks with each entry that it can find, once", () => {
    const all = Object.keys(ASKING).flatMap((asking) => Object.keys(FOUND).map((found) => [asking, found]));

    const pairs = cells().map(([asking, found]) => [asking, found]);
    expect(pairs.sort()).toEqual(all.sort());
  });

  test.each(cells())("says what %s does that finds %s: %s", async (asking, found, happens) => {
    const text = `${asking}/${found}`;
    const end = await FOUND[found]!(two, text);
    let settled = false;
    const asked = reasonOf(ASKING[asking]!(two, text)).finally(() => (settled = true));

    if (happens === "waits") {
      await queued(queueName(text), 2);
      expect(settled).toBe(false);
      await end();
    }
    const error = await asked;
    if (happens === "error") {
      expect(error).toBeInstanceOf(KindMismatchError);
      await queued(queueName(text), 1);
    } else expect(error).toBeUndefined();
    if (happens !== "waits") await end();
    await queued(queueName(text), 0);
  });
});

describe("a call that finds an entry of another kind", () => {
  test.each([
    ["a Semaphore's", (name: string) => new Semaphore(two.holder, name, 2).acquire(), "permit"],
    ["a candidate's", (name: string) => new Election(two.holder, name).campaign("v"), "leadership"],
  ])("names both names and both kinds: %s", async (_, hold, found) => {
    const name = `named/${found}`;
    const held = await hold(name);

    const error = await reasonOf(new Mutex(two.session, name).lock());

    expect(error).toEqual(mismatch("mutex", found, [name]));
    expect((error as Error).message).toMatch(
      new RegExp(`"${name}" for a Mutex: it is in use by .*${name}/.*Rename one of them`),
    );
    expect((error as Error).stack).toContain("kinds.test");
    expect(held.held).toBe(true);
    await held.release();
  });

  test("of a nested name is told the nested name, also if Go's client has it; the nested one asks freely", async () => {
    const name = "nested";
    const writing = await new RwLock(two.holder, `${name}/17`).writeLock();
    expect(await reasonOf(new Mutex(two.session, name).lock())).toEqual(
      mismatch("mutex", "writer", [name, `${name}/17`]),
    );
    await writing.release();
    const go = await V3Lock.ask(two.etcd.member, `${name}/18`);
    await go.held;
    expect(await reasonOf(new Election(two.session, name).campaign("x"))).toEqual(
      mismatch("leadership", "unknown", [name, `${name}/18`]),
    );
    await go.unlock();

    const lock = await new Mutex(two.holder, name).lock();
    await new Mutex(two.session, `${name}/17`).withLock(() => undefined);
    expect(lock.held).toBe(true);
    await lock.release();
  });

  test("of the name of a group is told the members of the group, until these have left", async () => {
    const name = "group";
    const place = await join(two.holder, name, "here");
    const error = await reasonOf(new Mutex(two.session, name).lock());
    expect(error).toMatchObject({ code: "KIND_MISMATCH", lockName: name, foundName: `${name}/members` });

    await place.leave();
    await new Mutex(two.session, name).withLock(() => undefined);
  });

  test("leaves nothing behind, and the next call of the right kind holds when the holder is gone", async () => {
    const name = "left";
    const permit = await new Semaphore(two.holder, name, 1).acquire();
    const refused = await Promise.all(
      Array.from({ length: 20 }, () => reasonOf(new Mutex(two.session, name).lock())),
    );
    expect(new Set(refused.map((error) => (error as KindMismatchError).code))).toEqual(
      new Set(["KIND_MISMATCH"]),
    );
    await queued(name, 1);

    const next = new Semaphore(two.session, name, 1).acquire();
    await queued(name, 2);
    await permit.release();

    await (await next).release();
    await queued(name, 0);
    expect(two.cluster.snapshot().waits).toEqual([]);
  });

  test("does not disturb the waiters of the queue's own kind that join behind it", async () => {
    const name = "between";
    const first = await new Mutex(two.holder, name).lock();
    const errors: unknown[] = [];
    const served: number[] = [];
    const calls = Array.from({ length: 20 }, async (_, n) => {
      if (n % 2 === 0) await new Mutex(two.session, name).withLock(() => served.push(n));
      else errors.push(await reasonOf(new Election(two.holder, name).campaign("x")));
    });
    await expect.poll(() => errors.length).toBe(10);
    await queued(name, 11);

    await first.release();
    await Promise.all(calls);

    expect(errors.every((error) => error instanceof KindMismatchError)).toBe(true);
    expect(served).toHaveLength(10);
    await queued(name, 0);
  });

  test("is rejected without a request if the entry is one of its own session", async () => {
    const name = "own";
    const permit = await new Semaphore(two.session, name, 2).acquire();
    const { revision } = await two.etcd.member.status();

    const asked = [new Mutex(two.session, name).lock(), new Election(two.session, name).campaign("x")];

    const [mutex, election] = await Promise.all(asked.map(reasonOf));
    expect(mutex).toEqual(mismatch("mutex", "permit", [name]));
    expect(election).toEqual(mismatch("leadership", "permit", [name]));
    expect((await two.etcd.member.status()).revision).toBe(revision);
    await permit.release();
  });

  test.each<[string, (name: string) => Promise<unknown>]>([
    ["mutex", (name) => new Mutex(two.session, name).lock()],
    ["writer", (name) => new RwLock(two.session, name).writeLock()],
    ["reader", (name) => new RwLock(two.session, name).readLock()],
    ["permit", (name) => new Semaphore(two.session, name, 2).acquire()],
    ["all", (name) => lockAll(two.session, [name])],
  ])(
    "is rejected (%s), also if another client has put that entry on the session's own lease",
    async (kind, ask) => {
      const name = `kinds/own-lease/${kind}`;
      const id = two.session.leaseId.toString(16);
      await two.etcd.etcdctl(["put", `${name}/${id}`, "what a candidate says", `--lease=${id}`]);

      expect(await reasonOf(ask(name))).toEqual(mismatch(kind, "leadership", [name]));
      await queued(name, 1);
      await two.etcd.etcdctl(["del", `${name}/${id}`]);
    },
  );

  test("is the later one, if two calls of one session begin together", async () => {
    const name = "together";
    const campaigning = new Election(two.session, name).campaign("x");
    const locking = reasonOf(new Mutex(two.session, name).lock());

    expect(await locking).toEqual(mismatch("mutex", "leadership", [name]));
    await (await campaigning).resign();
    await queued(name, 0);
  });

  test("is one of two, if calls of two sessions begin together", async () => {
    for (let n = 0; n < 20; n++) {
      const name = `race/${n}`;
      const ways = [
        new Mutex(two.holder, name).withLock(() => "mutex"),
        new Election(two.session, name).campaign("x").then((it) => it.resign()),
      ];

      const [locking, campaigning] = await Promise.all(ways.map(reasonOf));

      const errors = [locking, campaigning].filter((error) => error !== undefined);
      expect(errors.length).toBeLessThan(2);
      expect(errors.every((error) => error instanceof KindMismatchError)).toBe(true);
    }
  });

  test("is not one that the same session is about to leave", async () => {
    const name = "leaving";
    const lock = await new Mutex(two.session, name).lock();
    const released = lock.release();

    const leadership = await new Election(two.session, name).campaign("x");

    await released;
    await leadership.resign();
  });

  test("is told later if its predecessor was of its kind, as a waiter of an older version is", async () => {
    const name = "later";
    const permit = await new Semaphore(two.holder, name, 1).acquire();
    const old = await putOld(name);
    const waiting = reasonOf(new Mutex(two.session, name).lock());
    await queued(name, 3);

    await old.revoke();

    expect(await waiting).toEqual(mismatch("mutex", "permit", [name]));
    expect(permit.held).toBe(true);
    await permit.release();
  });

  test("is a lockAll as a whole", async () => {
    const leadership = await new Election(two.holder, "all/b").campaign("x");

    const error = await reasonOf(lockAll(two.session, ["all/a", "all/b", "all/c"]));

    expect(error).toEqual(mismatch("all", "leadership", ["all/b"]));
    await queued("all/a", 0);
    await queued("all/b", 1);
    await queued("all/c", 0);
    await leadership.resign();
  });

  test("is a call of lead(), which says so once where nobody listens, and leads when the name is free", async () => {
    const name = "led";
    const lock = await new Mutex(two.holder, name).lock();
    const stop = new AbortController();
    const { signal } = stop;
    const warnings = warningsOf("KIND_MISMATCH");
    const retries: unknown[] = [];
    const led: string[] = [];

    const ends = [
      lead(two.cluster, name, () => led.push("one"), { signal, onRetry: (error) => retries.push(error) }),
      lead(two.cluster, name, () => led.push("other"), { signal }),
    ];
    await expect.poll(() => [retries.length > 0, warnings.length]).toEqual([true, 1]);
    expect(retries[0]).toEqual(mismatch("leadership", "mutex", [name]));
    expect(led).toEqual([]);
    await lock.release();

    await expect.poll(() => new Set(led), { timeout: 10_000 }).toEqual(new Set(["one", "other"]));
    stop.abort();
    await Promise.all(ends);
    expect(warnings).toEqual([expect.stringMatching(/"led" for an Election: .*lead\(\) tries again/)]);
  });
});

describe("a long hold below a name that is in use", () => {
  type Hold = (name: string) => Promise<{ release: () => Promise<void> }>;
  const campaign = (name: string) => new Election(two.holder, name).campaign("older");
  const HOLDS: readonly [title: string, older: Hold, nested: (cluster: Cluster) => Hold][] = [
    ["a leader's, of a leader", campaign, (own) => (name) => new Election(own, name).campaign("nested")],
    [
      "a mutex's, of a reader",
      (name) => new RwLock(two.holder, name).readLock(),
      (own) => (name) => new Mutex(own, name).lock(),
    ],
    ["a reader's, of a leader", campaign, (own) => (name) => new RwLock(own, name).readLock()],
  ];

  test.each(HOLDS)("warns, once: %s", async (title, hold, nested) => {
    const warnings = warningsOf("NESTED_NAME");
    const above = `above/${title.replaceAll(" ", "-")}`;
    const older = await hold(above);
    await using cluster = connect({ hosts: two.etcd.endpoints });

    const holds = await Promise.all(
      ["daily/a", "daily/b"].map((name) => nested(cluster)(`${above}/${name}`)),
    );

    const text = `"${above}/daily/[ab]" is held, and "${above}", above it, is in use.*KIND_MISMATCH`;
    await expect.poll(() => warnings, { timeout: 10_000 }).toEqual([expect.stringMatching(text)]);
    await Promise.all([...holds, older].map((each) => each.release()));
  });

  test("says nothing where the name above has nested names only, or this user may not read it", async () => {
    const server = await startWithUsers();
    onTestFinished(() => server.stop());
    const warnings = warningsOf("NESTED_NAME");
    await using root = connect({ hosts: server.etcd.endpoints, auth: ROOT });
    const user = { username: "narrow", password: "narrow-secret" };
    await server.addUser(user, "used/a/");
    await using worker = connect({ hosts: server.etcd.endpoints, auth: user });
    const asked: string[] = [];
    const hear = (message: unknown): void => {
      const { what, error } = message as { what: string; error?: Error };
      if (what.startsWith("ask whether")) asked.push(`${what}: ${String(error)}`);
    };
    tracingChannel(CHANNELS.call).asyncEnd.subscribe(hear);
    onTestFinished(() => void tracingChannel(CHANNELS.call).asyncEnd.unsubscribe(hear));

    const allowed = [await new Mutex(root, "free/a").lock(), await new Mutex(root, "free/b").lock()];
    const above = await new Mutex(root, "used").lock();
    const denied = await new Mutex(worker, "used/a/1").lock();

    await expect
      .poll(() => [...asked].sort(), { timeout: 10_000 })
      .toEqual([
        'ask whether "free" is in use: undefined',
        expect.stringMatching(/^ask whether "used" is in use: EtcdRefusedError/),
        'ask whether "used/a" is in use: undefined',
      ]);
    expect(denied.held).toBe(true);
    expect(warnings).toEqual([]);
    await Promise.all([...allowed, above, denied].map((each) => each.release()));
  });
});

/** The texts of the warnings of a code, from now on. */
function warningsOf(code: string): readonly string[] {
  const texts: string[] = [];
  const listen = (warning: Error & { code?: string }): void => {
    if (warning.code === code) texts.push(warning.message);
  };
  process.on("warning", listen);
  onTestFinished(() => void process.off("warning", listen));
  return texts;
}

/** The entry of a mutex of an older version that waits behind another kind: it is never rejected. */
async function putOld(name: string) {
  const { member } = two.etcd;
  const { ID } = (await member.gateway("/v3/lease/grant", { TTL: 60 })) as { ID: string };
  const value = { owner: "an older version", since: new Date().toISOString(), id: "0a1b2c" };
  const key = encode(`${name}/${BigInt(ID).toString(16)}`);
  await member.gateway("/v3/kv/put", { key, value: encode(JSON.stringify(value)), lease: ID });
  return { revoke: () => member.gateway("/v3/lease/revoke", { ID }) };
}

describe("calls that do not wait", () => {
  test("return undefined for an entry of another kind, except tryAcquire, which reads it", async () => {
    const name = "try";
    const leadership = await new Election(two.holder, name).campaign("x");
    const rw = new RwLock(two.session, name);

    expect(await new Mutex(two.session, name).tryLock()).toBeUndefined();
    expect(await rw.tryReadLock()).toBeUndefined();
    expect(await rw.tryWriteLock()).toBeUndefined();
    expect(await reasonOf(new Semaphore(two.session, name, 2).tryAcquire())).toEqual(
      mismatch("permit", "leadership", [name]),
    );

    await leadership.resign();
    await queued(name, 0);
  });
});

describe("an adopted entry", () => {
  test("of another kind is not taken over, and remains for a call of its own kind", async () => {
    const name = "adopted";
    const session = await Session.open(two.cluster, { ttlSeconds: 10 });
    const { key, fence } = await new Mutex(session, name).lock();
    const adopted = await Session.adopt(two.cluster, await session.orphan());

    expect(await reasonOf(new Election(adopted, name).campaign("x"))).toEqual(
      mismatch("leadership", "mutex", [name]),
    );

    const lock = await new Mutex(adopted, name).lock();
    expect([lock.key, lock.fence]).toEqual([key, fence]);
    await lock.release();
    await adopted.close();
  });
});

describe("a legitimate call is never rejected", () => {
  test("behind readers and writers, numbered keys, proclamations and other numbers of permits", async () => {
    const [reader, other] = [new RwLock(two.holder, "legit/rw"), new RwLock(two.session, "legit/rw")];
    const reading = [await reader.readLock(), await reader.readLock()];
    const writing = other.writeLock();
    await queued("legit/rw", 3);
    await Promise.all(reading.map((hold) => hold.release()));
    await (await writing).release();

    const permits = [await new Semaphore(two.holder, "legit/s", 2).acquire()];
    permits.push(await new Semaphore(two.session, "legit/s", 3).acquire());
    await Promise.all(permits.map((hold) => hold.release()));

    const first = await new Election(two.holder, "legit/e").campaign("");
    await first.proclaim('{"owner":"me","since":"today","id":"7","role":"primary"}');
    const second = new Election(two.session, "legit/e").campaign("[1]");
    await queued("legit/e", 2);
    await first.resign();
    await (await second).resign();
  });

  test.each([
    ["has no value", ""],
    [
      "has the fields of an entry, and one more",
      '{"owner":"me","since":"2026-01-01T00:00:00.000Z","id":"7","x":1}',
    ],
  ])("behind a candidate of Go's whose value %s: no kind is certain", async (_, value) => {
    const name = `candidate/${value.length}`;
    const other = await V3Candidate.campaign(two.etcd.member, name, value);
    await other.key();
    const locking = new Mutex(two.session, name).withLock(() => "held");
    await queued(name, 2);

    await other.resign();

    expect(await locking).toBe("held");
  });
});

describe("a queue of several kinds", () => {
  test("has no leader while a lock is first in it; an observer hears of the candidate that follows", async () => {
    const name = "leader";
    const election = new Election(two.session, name);
    const lock = await new Mutex(two.holder, name).lock();
    const observer = election.observe();
    expect(await election.leader()).toBeUndefined();
    expect(await nextLeader(observer)).toBeUndefined();
    const other = await V3Candidate.campaign(two.etcd.member, name, "theirs");
    await queued(name, 2);

    await lock.release();

    expect(await nextLeader(observer)).toMatchObject({ value: "theirs" });
    await observer.return?.();
    await other.resign();
  });

  test("is shown by inspect as its holder's kind, with each entry's own key and owner", async () => {
    const name = "shown";
    const permit = await new Semaphore(two.holder, name, 1).acquire();
    const old = await putOld(name);

    const state = await inspect(two.cluster, name);

    expect(state).toMatchObject({ kind: "semaphore", total: { holders: 1, waiters: 1 } });
    expect([...state.holders, ...state.waiters].map(({ owner }) => owner)).toEqual([
      "the holder",
      "an older version",
    ]);
    expect((await places(name)).map(({ key }) => key)).toEqual([
      ...state.holders.map(({ key }) => key),
      ...state.waiters.map(({ key }) => key),
    ]);
    await old.revoke();
    await permit.release();
  });
});
