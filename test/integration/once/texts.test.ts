// Slots that are strings, such as idempotency keys: the result is kept, and each later call gets it.
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import {
  connect,
  FingerprintMismatchError,
  httpStatusOf,
  Mutex,
  once,
  OnceRunningError,
  type OnceOptions,
  ResultNotKeptError,
} from "../../../src/index.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(4);
const never = (): never => {
  throw new Error("this work must not run");
};
const KEEP = { result: "keep" } as const;

/** Vitest compares bytes one by one: of the most that are kept, that takes longer than the TTL when the machine is busy. */
const comparable = (value: unknown): unknown =>
  value instanceof Uint8Array ? { bytes: Buffer.from(value).toString("base64") } : value;

/** A run that goes on until it is told to end. */
function slow<T>(name: string, slot: string, options: OnceOptions = {}) {
  let end!: (value: T) => void;
  let fail!: (error: Error) => void;
  let begin!: () => void;
  const ended = new Promise<T>((resolve, reject) => ([end, fail] = [resolve, reject]));
  const begun = new Promise<void>((resolve) => (begin = resolve));
  const reply = once(two.holder, name, slot, () => (begin(), ended), { ...options, ...KEEP });
  return { begun, end, fail, reply };
}

/** The keys of the marks of a name, with their leases. */
const marksOf = async (name: string): Promise<Map<string, bigint>> =>
  new Map((await two.places(`/leasehold/once/${name}/`)).map(({ key, leaseId }) => [key, leaseId] as const));

describe("the result of a string", () => {
  const VALUES = {
    undefined,
    null: null,
    "a number": 12.5,
    "a text": "ünï ☃",
    "an object": { id: "ch_1", list: [1, { deep: true }] },
    bytes: Uint8Array.of(0, 255, 128),
    "an empty array of bytes": new Uint8Array(),
    "the longest text": "x".repeat(65_534),
    "the most bytes": new Uint8Array(65_536).fill(7),
  };

  test.each(Object.entries(VALUES))("may be %s: a replay gives the same as the run", async (what, value) => {
    const ran = await once(two.holder, "values", what, () => value, KEEP);
    const replay = await once(two.session, "values", what, never, KEEP);

    expect(ran).toMatchObject({ status: "done", replayed: false, run: undefined });
    expect(replay).toMatchObject({
      status: "done",
      replayed: true,
      run: { owner: "the holder", failed: false },
    });
    for (const { result } of [ran, replay] as { readonly result: unknown }[])
      expect(comparable(result)).toEqual(comparable(value));
  });

  test("is what JSON makes of it, for the call that has run it, too", async () => {
    const work = () => ({ at: new Date(0), left: undefined });
    const results = [
      await once(two.holder, "json", "a", work, KEEP),
      await once(two.session, "json", "a", work, KEEP),
    ].map((reply) => (reply as { result: unknown }).result);

    expect(results).toEqual([{ at: "1970-01-01T00:00:00.000Z" }, { at: "1970-01-01T00:00:00.000Z" }]);
  });

  const circular: Record<string, unknown> = {};
  circular["self"] = circular;
  test.each([
    ["a longer text", "x".repeat(65_535), /its JSON has 65537 bytes, and 65536 are kept/],
    ["more bytes", new Uint8Array(65_537), /it has 65537 bytes/],
    ["a bigint", 1n, /it has no JSON: .*BigInt/],
    ["a circle", circular, /it has no JSON: Converting circular structure/],
    ["a function", never, /a function has no JSON/],
    ["what throws null", { toJSON: () => AbortSignal.abort(null).throwIfAborted() }, /it has no JSON: null/],
  ])("cannot be %s: the run has failed, and the caller gets what was returned", async (what, value, why) => {
    const error = (await reasonOf(
      once(two.holder, "too much", what, () => value, KEEP),
    )) as ResultNotKeptError;

    expect(error).toBeInstanceOf(ResultNotKeptError);
    expect(error.message).toMatch(why);
    expect(error.result).toBe(value);
    expect(await once(two.session, "too much", what, never, KEEP)).toMatchObject({
      status: "failed",
      error: { name: "ResultNotKeptError", code: "RESULT_NOT_KEPT" },
    });
  });

  test("is not there if the call that ran it has kept none; and a call that wants none gets none", async () => {
    await once(two.holder, "none", "a", () => 7);
    await once(two.holder, "none", "b", () => 7, KEEP);

    expect(await once(two.session, "none", "a", never, KEEP)).toMatchObject({
      status: "done",
      result: undefined,
    });
    expect(await once(two.session, "none", "b", never)).toMatchObject({ ran: false, reason: "done" });
  });

  test("may be kept for slots that are numbers, too", async () => {
    await once(two.holder, "numbers", 7, () => "seven", KEEP);

    expect(await once(two.session, "numbers", 7, never, KEEP)).toMatchObject({
      status: "done",
      result: "seven",
    });
  });
});

describe("a string", () => {
  test("runs once for 60 callers at a time, and each gets what the one has returned", async () => {
    let runs = 0;
    const options = { ...KEEP, ifRunning: "wait" } as const;
    const replies = await Promise.all(
      Array.from({ length: 60 }, (_, n) =>
        once(
          n % 2 ? two.holder : two.session,
          "many",
          "a",
          async () => ({ run: await Promise.resolve(++runs) }),
          options,
        ),
      ),
    );

    expect(runs).toBe(1);
    expect(replies.map((reply) => reply.status === "done" && reply.result)).toEqual(
      replies.map(() => ({ run: 1 })),
    );
    expect(replies.filter((reply) => reply.status === "done" && !reply.replayed)).toHaveLength(1);
  });

  test("does not wait for others of its name, and may contain anything", async () => {
    const first = slow("apart", "a/b");
    await first.begun;
    const texts = ["a", "a/b/c", "a%2Fb", "", "☃", "-1", "7", "\n", "..", "//"].filter((text) => text !== "");
    for (const text of texts)
      expect(await once(two.session, "apart", text, () => text, KEEP)).toMatchObject({
        result: text,
        replayed: false,
      });
    for (const text of texts)
      expect(await once(two.session, "apart", text, never, KEEP)).toMatchObject({
        result: text,
        replayed: true,
      });

    first.end("done");
    expect(await first.reply).toMatchObject({ result: "done" });
    const slots = (await once.history(two.cluster, "apart")).map(({ slot }) => slot);
    expect(new Set(slots)).toEqual(new Set(["a/b", ...texts]));
  });

  test("holds the lock NAME/STRING while it runs", async () => {
    const run = slow("locks", "a b");
    await run.begun;

    expect(await new Mutex(two.session, "locks/a%20b").tryLock()).toBeUndefined();
    run.end(0);
    await run.reply;
  });
});

describe("while a string is running, a call", () => {
  test("gets no result, or an error, or waits for the result, as it says", async () => {
    const run = slow("running", "a");
    await run.begun;

    const waiting = once(two.session, "running", "a", never, { ...KEEP, ifRunning: "wait" });
    const failing = reasonOf(once(two.session, "running", "a", never, { ifRunning: "fail" }));
    expect(await once(two.session, "running", "a", never, KEEP)).toMatchObject({
      status: "running",
      run: { owner: "the holder", ended: undefined },
    });
    expect(await failing).toBeInstanceOf(OnceRunningError);
    expect(await failing).toMatchObject({ lockName: "running/a", owner: "the holder" });
    expect(httpStatusOf(await failing)).toBe(409);
    const late = reasonOf(once(two.session, "running", "a", never, { ifRunning: "wait", timeoutMs: 2000 }));
    expect(await late).toMatchObject({
      code: "LOCK_TIMEOUT",
      message: expect.stringContaining("the holder") as string,
    });
    const aborted = reasonOf(
      once(two.session, "running", "a", never, { ifRunning: "wait", signal: AbortSignal.abort() }),
    );
    expect(await aborted).toMatchObject({ name: "AbortError" });

    run.end("result");
    expect(await waiting).toMatchObject({ status: "done", result: "result", replayed: true });
  });

  test("that does not wait for other holders may wait for that run, for longer than it waits for etcd", async () => {
    const run = slow("patient", "a");
    await run.begun;
    const options = { ...KEEP, ifHeld: "skip", ifRunning: "wait" } as const;
    const waiting = once(two.session, "patient", "a", never, options);
    await delay(5500);
    run.end("result");

    expect(await waiting).toMatchObject({ result: "result" });
  });

  test("that waits gets the failure of the run, and the loss, and runs nothing", async () => {
    const failing = slow<never>("waits", "fails");
    const lost = slow("waits", "is lost");
    await Promise.all([failing.begun, lost.begun]);
    const wait = (slot: string) => once(two.session, "waits", slot, never, { ...KEEP, ifRunning: "wait" });
    const waiting = [wait("fails"), wait("is lost")];
    const error = Object.assign(new TypeError("no such card"), { code: "card_declined" });
    const failed = reasonOf(failing.reply);
    failing.fail(error);
    const [holder] = await two.places("waits/is%20lost");
    await two.etcd.member.gateway("/v3/kv/deleterange", { key: Buffer.from(holder!.key).toString("base64") });

    expect(await failed).toBe(error);
    expect(await waiting[0]).toMatchObject({
      status: "failed",
      error: { name: "TypeError", code: "card_declined", message: "no such card" },
    });
    expect(await waiting[1]).toMatchObject({ status: "lost", run: { owner: "the holder" } });
    lost.end(0);
    expect(await reasonOf(lost.reply)).toMatchObject({ code: "LOCK_LOST" });
    expect(await once(two.session, "waits", "is lost", never, KEEP)).toMatchObject({ status: "lost" });
    expect(await once(two.session, "waits", "is lost", () => 2, { ...KEEP, rerun: "if_lost" })).toMatchObject(
      { result: 2 },
    );
    expect(await once(two.session, "waits", "fails", () => 3, { ...KEEP, rerun: "if_failed" })).toMatchObject(
      { result: 3 },
    );
  });

  test("that waits takes over after a loss, if it may: one of all that wait", async () => {
    const lost = slow("takeover", "a");
    await lost.begun;
    let runs = 0;
    const options = { ...KEEP, ifRunning: "wait", rerun: "if_lost" } as const;
    const waiting = Array.from({ length: 10 }, () =>
      once(two.session, "takeover", "a", () => ++runs, options),
    );
    const [holder] = await two.places("takeover/a");
    await two.etcd.member.gateway("/v3/kv/deleterange", { key: Buffer.from(holder!.key).toString("base64") });

    const replies = await Promise.all(waiting);
    expect(replies).toEqual(
      replies.map(() => expect.objectContaining({ status: "done", result: 1 }) as unknown),
    );
    expect(runs).toBe(1);
    lost.end(0);
    await lost.reply.catch(() => undefined);
  });
});

describe("a fingerprint", () => {
  test("of another request is refused, whatever has become of the first, and compared only if both have one", async () => {
    const other = { ...KEEP, fingerprint: Buffer.from("POST /pay 20") } as const;
    const first = { ...KEEP, fingerprint: "POST /pay 10" } as const;
    const run = slow("prints", "a", first);
    await run.begun;
    const refused = async (options: OnceOptions) => {
      const error = await reasonOf(once(two.session, "prints", "a", never, options));
      expect(error).toBeInstanceOf(FingerprintMismatchError);
      expect(httpStatusOf(error)).toBe(422);
    };

    await refused(other);
    await refused({ ...other, ifRunning: "wait" });
    await refused({ ...other, ifRunning: "fail", rerun: "if_failed" });
    run.end(1);
    await run.reply;
    await refused({ ...other, rerun: "if_failed" });
    expect(
      await once(two.session, "prints", "a", never, { ...first, fingerprint: Buffer.from("POST /pay 10") }),
    ).toMatchObject({ result: 1 });
    expect(await once(two.session, "prints", "a", never, KEEP)).toMatchObject({ result: 1 });
  });
});

describe("the mark of a string", () => {
  test("expires by its lease in etcd, which those of an eighth of the time share; one that has not ended stays for an hour", async () => {
    const options = { ...KEEP, keep: { ms: 60_000 } } as const;
    for (let n = 0; n < 20; n++) await once(two.holder, "leases", `${n}`, () => n, options);
    const run = slow("leases", "running", options);
    await run.begun;
    const marks = await marksOf("leases");
    run.end(0);
    await run.reply;
    const ttlOf = async (leaseId: bigint): Promise<number> => {
      const { grantedTTL } = (await two.etcd.member.gateway("/v3/lease/timetolive", {
        ID: String(leaseId),
      })) as { readonly grantedTTL: string };
      return Number(grantedTTL);
    };

    expect(marks.size).toBe(21);
    const leases = [...new Set(marks.values())];
    expect(leases).toHaveLength(2);
    expect((await Promise.all(leases.map(ttlOf))).sort((a, b) => a - b)).toEqual([68, 4050]);
    expect(new Set((await marksOf("leases")).values()).size).toBe(1);
  });

  test("that has expired lets the slot be run anew", async () => {
    const options = { ...KEEP, keep: { ms: 1000 } } as const;
    await once(two.holder, "expires", "a", () => 1, options);
    await expect.poll(() => marksOf("expires"), { timeout: 20_000 }).toEqual(new Map());

    expect(await once(two.session, "expires", "a", () => 2, options)).toMatchObject({
      result: 2,
      replayed: false,
    });
  });

  test("is put with another lease if somebody has revoked that of the others, and the session goes on", async () => {
    const options = { ...KEEP, keep: { ms: 50_000 } } as const;
    const cluster = connect({ hosts: two.etcd.endpoints });
    await once(cluster, "revoked", "a", () => 1, options);
    const lock = await new Mutex(cluster, "revoked lease").lock();
    const revoke = async () => {
      const [leaseId] = (await marksOf("revoked")).values();
      await two.etcd.member.gateway("/v3/lease/revoke", { ID: String(leaseId) });
    };
    await revoke();

    expect(await once(cluster, "revoked", "b", () => 2, options)).toMatchObject({ result: 2 });
    expect(await once(cluster, "revoked", "c", async () => (await revoke(), 3), options)).toMatchObject({
      result: 3,
    });
    expect(await once(cluster, "revoked", "c", never, options)).toMatchObject({ result: 3 });
    expect(lock.held).toBe(true);
    await lock.release();
    await cluster.close();
  });
});

test("the history of a name stands marks of another program whose keys are as long as a mark may be", async () => {
  await once(two.session, "hostile", "mine", () => 1);
  const mark = JSON.stringify({ state: "started", key: `hostile/${"x".repeat(90_000)}`, fence: "1" });
  for (let n = 0; n < 33; n++) await two.etcd.etcdctl(["put", `/leasehold/once/hostile//=${n}`, mark]);

  const records = await once.history(two.cluster, "hostile");
  expect(records).toHaveLength(34);
  expect(records.at(-1)).toMatchObject({ slot: "mine", state: "done" });
});
