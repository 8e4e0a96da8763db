// The promises of idempotency keys and of packages that let one caller compute for all, kept by `once`. What follows "From" above a case
// is where the promise is written down, or where its absence was reported.
import { describe, expect, test } from "vitest";
import { httpStatusOf, Mutex, once, type OnceOptions, Session } from "../../../src/index.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(4);
const KEEP = { result: "keep" } as const;
const never = (): never => {
  throw new Error("this work must not run");
};

/** A promise that the test settles. */
function gate<T = void>() {
  let open!: (value: T) => void;
  let fail!: (reason: unknown) => void;
  const opened = new Promise<T>((resolve, reject) => ([open, fail] = [resolve, reject]));
  return { opened, open, fail };
}

/** A request that runs until the test ends it. */
function running<T>(source: Session, name: string, key: string, options: OnceOptions = {}) {
  const [begun, end] = [gate(), gate<T>()];
  const work = () => (begun.open(), end.opened);
  const reply = once(source, name, key, work, { ...options, ...KEEP });
  reply.catch(() => undefined);
  return { begun: begun.opened, end: end.open, fail: end.fail, reply };
}

/** The status with which a server refuses the request. */
const refusalOf = async (call: Promise<unknown>): Promise<number | undefined> =>
  httpStatusOf(await reasonOf(call));

/** The mark of a key as etcd has it: `version` counts its puts. */
async function markOf(name: string, key: string) {
  const at = Buffer.from(`/leasehold/once/${name}//=${encodeURIComponent(key)}`).toString("base64");
  const { kvs = [] } = (await two.etcd.member.gateway("/v3/kv/range", { key: at })) as {
    readonly kvs?: readonly { readonly version: string; readonly lease: string }[];
  };
  return kvs[0];
}

const revoke = (leaseId: bigint | string) =>
  two.etcd.member.gateway("/v3/lease/revoke", { ID: String(leaseId) });

describe("requests with one key at the same moment", () => {
  // From square1-io/laravel-idempotency#1, where both ran; from idempot-dev/idempot-js#181, where the others got 503.
  test("run once: all others get 409, and nothing else, while it runs", async () => {
    let [runs, refused] = [0, 0];
    const end = gate();
    const work = async () => {
      runs++;
      await end.opened;
    };
    const request = async (source: Session): Promise<string | number | undefined> => {
      try {
        return (await once(source, "moment", "a", work, { ...KEEP, ifRunning: "fail" })).status;
      } catch (error) {
        if (++refused === 19) end.open();
        return httpStatusOf(error);
      }
    };
    const statuses = await Promise.all(
      Array.from({ length: 20 }, (_, n) => request(n % 2 ? two.holder : two.session)),
    );

    expect(runs).toBe(1);
    expect(statuses.sort()).toEqual([...Array.from({ length: 19 }, () => 409), "done"]);
  });

  // From draft-ietf-httpapi-idempotency-key-header, section 2.6; from the suite of express-idempotency, "returns 409 while a request is
  // still in progress".
  test("get 409 as long as the first one runs, and then its reply", async () => {
    const first = running(two.holder, "second", "a");
    await first.begun;
    const second = () => once(two.session, "second", "a", never, { ...KEEP, ifRunning: "fail" });

    expect([await refusalOf(second()), await refusalOf(second())]).toEqual([409, 409]);
    first.end("paid");
    await first.reply;
    expect(await second()).toMatchObject({ status: "done", result: "paid", replayed: true });
  });

  // From idempot-dev/idempot-js#182, where the last one to start replaced the record; from aws-powertools/powertools-lambda-typescript#5678,
  // where a record without a deadline counted as an orphan.
  test("leave the record of the one that runs as it is, whatever they ask for", async () => {
    const first = running(two.holder, "record", "a", { fingerprint: "10" });
    await first.begun;
    const before = await markOf("record", "a");
    const gone = new AbortController();
    const late: OnceOptions[] = [
      { ifRunning: "skip" },
      { ifRunning: "fail", rerun: "if_failed" },
      { ifHeld: "skip", rerun: "if_lost" },
      { fingerprint: "20", ifRunning: "wait" },
      { ifRunning: "wait", signal: gone.signal },
      { rerun: "if_failed", signal: gone.signal },
    ];
    const calls = late.map((options) =>
      reasonOf(once(two.session, "record", "a", never, { ...options, ...KEEP })),
    );
    await two.queued("record/a", 2);
    gone.abort();
    await Promise.all(calls);

    expect(before?.version).toBe("1");
    expect(await markOf("record", "a")).toEqual(before);
    first.end(10);
    await first.reply;
    expect((await markOf("record", "a"))?.version).toBe("2");
  });

  // From KanishJebaMathewM/Truxify#4696 and formbricks/formbricks#7697, where a second request had looked before the first one had put its record.
  test("run once, even if all of them have found the key new before", async () => {
    const others = await new Mutex(two.holder, "looked/a").lock();
    let runs = 0;
    const calls = [two.holder, two.session].map((source) =>
      once(source, "looked", "a", () => ++runs, { ...KEEP, ifRunning: "wait" }),
    );
    await two.queued("looked/a", 3);
    await others.release();

    const replies = await Promise.all(calls);
    expect(replies.map((reply) => reply.status === "done" && reply.result)).toEqual([1, 1]);
    expect((await markOf("looked", "a"))?.version).toBe("2");
  });
});

describe("the same key with another body", () => {
  // From draft-ietf-httpapi-idempotency-key-header, section 2.6; from Stripe, whose layer "compares incoming parameters".
  test("gets 422, while the first one runs and afterwards, and the first one keeps its reply", async () => {
    const first = running(two.holder, "body", "a", { fingerprint: "10" });
    await first.begun;
    const other = (options: OnceOptions = {}) =>
      refusalOf(once(two.session, "body", "a", never, { fingerprint: "20", ...options, ...KEEP }));

    expect(await other()).toBe(422);
    expect(await other({ ifRunning: "wait" })).toBe(422);
    first.end("paid 10");
    await first.reply;
    expect(await other()).toBe(422);
    expect(await other({ rerun: "if_failed" })).toBe(422);
    expect(await once(two.session, "body", "a", never, { ...KEEP, fingerprint: "10" })).toMatchObject({
      result: "paid 10",
    });
  });

  // From margince/margince#423, where the one that lost the race for a new key was told "in progress" instead.
  test("gets 422, even if it has found the key new before", async () => {
    const others = await new Mutex(two.holder, "body race/a").lock();
    const first = once(two.holder, "body race", "a", () => 10, { ...KEEP, fingerprint: "10" });
    await two.queued("body race/a", 2);
    const second = refusalOf(once(two.session, "body race", "a", never, { ...KEEP, fingerprint: "20" }));
    await two.queued("body race/a", 3);
    await others.release();

    expect(await first).toMatchObject({ result: 10, replayed: false });
    expect(await second).toBe(422);
  });
});

describe("a replay", () => {
  const ANSWERS = {
    JSON: { status: 201, type: "application/json; charset=utf-8", body: '{"id":"ch_1"}' },
    "a page": { status: 200, type: "text/html; charset=utf-8", body: "<p>ünï ☃\u0000\ud83d\ude00</p>" },
    "no content": { status: 204, type: undefined, body: "" },
    "a refusal": { status: 402, type: "application/problem+json", body: '{"title":"card declined"}' },
    "an image": { status: 200, type: "image/png", body: Buffer.of(137, 80, 0, 255).toString("base64") },
  };

  // From Stripe, which saves "the resulting status code and body"; from fullstackhero/dotnet-starter-kit#1333, where 201 came back as 200.
  test.each(Object.entries(ANSWERS))("has status, content type and body: %s", async (what, answer) => {
    await once(two.holder, "answers", what, () => answer, KEEP);

    const replay = await once(two.session, "answers", what, never, KEEP);
    expect(replay).toMatchObject({ status: "done", replayed: true });
    expect(replay).toHaveProperty("result", JSON.parse(JSON.stringify(answer)));
  });

  // From arun0009/idempotent#127 and p-memoize, whose test is "cache the value undefined".
  test.each([undefined, null, "", 0, false])("may be %j, which is a reply as any other", async (value) => {
    const key = `nothing ${JSON.stringify(value)}`;
    await once(two.holder, "answers", key, () => value, KEEP);

    const replay = await once(two.session, "answers", key, never, KEEP);
    expect(replay).toMatchObject({ status: "done", replayed: true });
    expect((replay as { readonly result: unknown }).result).toBe(value);
  });

  // From dataloader and p-memoize, whose callers share one object.
  test("is a copy: whoever changes one changes no other", async () => {
    const made = { items: [1] };
    const replies = await Promise.all(
      [two.holder, two.session, two.session].map((source) =>
        once(source, "copies", "a", () => made, { ...KEEP, ifRunning: "wait" }),
      ),
    );
    const results = replies.map((reply) => (reply as { readonly result: typeof made }).result);
    for (const { items } of [made, ...results]) items.push(2);

    expect(results).toEqual([{ items: [1, 2] }, { items: [1, 2] }, { items: [1, 2] }]);
    expect(await once(two.session, "copies", "a", never, KEEP)).toMatchObject({ result: { items: [1] } });
  });
});

describe("a key", () => {
  // From ietf-wg-httpapi/idempotency#3: the key of a client counts together with its identity.
  test("of one user or path never gives the reply of another", async () => {
    const names = ["pay/ann", "pay/Ann", "pay/bob", "refund/ann", "pay"];
    for (const name of names)
      expect(await once(two.holder, name, "key-1", () => name, KEEP)).toMatchObject({ replayed: false });

    for (const name of names)
      expect(await once(two.session, name, "key-1", never, KEEP)).toMatchObject({ result: name });
  });

  // From draft-ietf-httpapi-idempotency-key-header, section 2.1, where it is an opaque string; from vercel-labs/emulate#239, "prototype-safe keys".
  test("that differs in case, encoding or quotes only is another one", async () => {
    const keys = [
      ...["k", "K", "k ", " k", '"k"', "k%20", "%6b", "k+", "k/", "/k", "k\\", "k\u0000"],
      ...["é", "e\u0301", "ｋ", "__proto__", "constructor", "0", "00", "-0"],
    ];
    const request = (source: Session, key: string, work: () => string) =>
      once(source, "keys", key, work, KEEP);
    for (const key of keys)
      expect(await request(two.holder, key, () => key)).toMatchObject({ replayed: false });

    for (const key of keys) expect(await request(two.session, key, never)).toMatchObject({ result: key });
  });

  // From the suite of Go's singleflight, where keys do not wait for each other.
  test("does not wait for the requests of another one", async () => {
    const first = running(two.holder, "apart", "a");
    await first.begun;

    expect(await once(two.session, "apart", "b", () => "b", KEEP)).toMatchObject({ result: "b" });
    first.end("a");
    await first.reply;
  });

  // From Stripe: "We generate a new request if a key is reused after the original is pruned."
  test("that has expired is as new, for another body, too", async () => {
    await once(two.holder, "expired", "a", () => 10, { ...KEEP, fingerprint: "10" });
    await revoke((await markOf("expired", "a"))!.lease);

    const again = await once(two.session, "expired", "a", () => 20, { ...KEEP, fingerprint: "20" });
    expect(again).toMatchObject({ result: 20, replayed: false });
  });

  // From aws-powertools/powertools-lambda-typescript#5678 and margince/margince#423, where an expired record let two requests run at the same time.
  test("that expires while its request runs is not run by a second one", async () => {
    const first = running(two.holder, "expiring", "a");
    await first.begun;
    await revoke((await markOf("expiring", "a"))!.lease);
    const second = once(two.session, "expiring", "a", never, { ...KEEP, ifRunning: "wait" });
    const skipped = await once(two.session, "expiring", "a", never, { ...KEEP, ifHeld: "skip" });
    await two.queued("expiring/a", 2);
    first.end("paid");

    expect(skipped).toMatchObject({ status: "held" });
    expect(await first.reply).toMatchObject({ result: "paid" });
    expect(await second).toMatchObject({ status: "done", result: "paid", replayed: true });
  });

  // From Stripe: "If incoming parameters fail validation, or the request conflicts with another … we don't save the idempotent result".
  test("stays new if the request gave up before its work began", async () => {
    const others = await new Mutex(two.holder, "unbegun/a").lock();
    const gone = new AbortController();
    const calls = [{ ifHeld: "skip" }, { signal: gone.signal }, { timeoutMs: 1 }] as const;
    const given = calls.map((options) => reasonOf(once(two.session, "unbegun", "a", never, options)));
    gone.abort();
    await Promise.all(given);
    await others.release();

    expect(await markOf("unbegun", "a")).toBeUndefined();
    expect(await once(two.session, "unbegun", "a", () => 1, KEEP)).toMatchObject({
      result: 1,
      replayed: false,
    });
  });
});

describe("a crash between the work and its reply", () => {
  const crashing = () => Session.open(two.cluster, { ttlSeconds: 60, owner: "crashed" });

  // From VilledeMontreal/express-idempotency#32, where the key stayed "in progress" for its whole TTL; from caura-ai/caura#1629, where
  // it was run again silently.
  test("lets the key be lost: it is neither running nor run again, unless the caller asks for that", async () => {
    const crashed = await crashing();
    const first = running(crashed, "crash", "a");
    await first.begun;
    const waiting = once(two.session, "crash", "a", never, { ...KEEP, ifRunning: "wait" });
    await revoke(crashed.leaseId);

    for (const options of [{}, { ifRunning: "fail" }, { ifRunning: "wait" }] as const)
      expect(await once(two.session, "crash", "a", never, { ...KEEP, ...options })).toMatchObject({
        status: "lost",
        run: { owner: "crashed", ended: undefined },
      });
    expect(await waiting).toMatchObject({ status: "lost" });
    const again = await once(two.session, "crash", "a", () => 2, { ...KEEP, rerun: "if_lost" });
    expect(again).toMatchObject({ result: 2, replayed: false });
    first.end(1);
    await first.reply.catch(() => undefined);
    await crashed.close();
  });

  // From the suite of express-idempotency: a request that was taken over "guards against the zombie write".
  test("that was none: what the first one returns late replaces nothing", async () => {
    const suspended = await crashing();
    const first = running(suspended, "zombie", "a");
    await first.begun;
    await revoke(suspended.leaseId);
    await once(two.session, "zombie", "a", () => "second", { ...KEEP, rerun: "if_lost" });
    const before = await markOf("zombie", "a");
    first.end("first");

    expect(await reasonOf(first.reply)).toMatchObject({ code: "LOCK_LOST" });
    expect(await markOf("zombie", "a")).toEqual(before);
    expect(await once(two.session, "zombie", "a", never, KEEP)).toMatchObject({ result: "second" });
    await suspended.close();
  });
});

describe("a request that fails", () => {
  const broken = () => Promise.reject(Object.assign(new Error("no such card"), { code: "card_declined" }));

  // From Stripe, which gives "the same result, including 500 errors"; from useautumn/autumn#1851 and p-memoize, which keep no failure.
  test("is told to the retries, and runs again only if they ask for that", async () => {
    await reasonOf(once(two.holder, "fails", "a", broken, KEEP));

    expect(await once(two.session, "fails", "a", never, KEEP)).toMatchObject({
      status: "failed",
      error: { code: "card_declined", message: "no such card" },
    });
    const again = await once(two.session, "fails", "a", () => "paid", { ...KEEP, rerun: "if_failed" });
    expect(again).toMatchObject({ result: "paid", replayed: false });
    const options = { ...KEEP, rerun: "if_failed" } as const;
    expect(await once(two.session, "fails", "a", never, options)).toMatchObject({ result: "paid" });
  });

  // From jaredwray/cacheable#888: after a failure, all that have waited computed at the same time.
  test("lets one of all that have waited run, and the others get what that one returns", async () => {
    const first = running(two.holder, "retries", "a");
    await first.begun;
    let runs = 0;
    const options = { ...KEEP, ifRunning: "wait", rerun: "if_failed" } as const;
    const waiting = Array.from({ length: 10 }, () =>
      once(two.session, "retries", "a", () => ++runs, options),
    );
    first.fail(new Error("no answer from the bank"));

    const replies = await Promise.all(waiting);
    expect(replies.map((reply) => reply.status === "done" && reply.result)).toEqual(waiting.map(() => 1));
  });

  const hostile = { toString: never };
  const unreadable = Object.defineProperty(new Error("unreadable"), "message", { get: never });
  // From golang/go#67087 and janos/singleflight#13, where a caller that ended in no usual way left the others waiting.
  test.each([
    ["undefined", undefined],
    ["a text", "no"],
    ["an object without a prototype", Object.create(null) as unknown],
    ["an object that cannot be printed", hostile],
    ["an error that cannot be read", unreadable],
  ])("with %s leaves nobody waiting", async (what, thrown) => {
    const first = running(two.holder, "thrown", what);
    await first.begun;
    const waiting = once(two.session, "thrown", what, never, { ...KEEP, ifRunning: "wait" });
    first.fail(thrown);

    expect(await first.reply.catch((reason: unknown) => reason)).toBe(thrown);
    expect(await waiting).toMatchObject({ status: "failed" });
  });

  // From KanishJebaMathewM/Truxify#4622: what the layer could not keep left the key locked, and told nobody.
  test("as its result is too large is no success for anybody, and the first one still gets that result", async () => {
    const large = "x".repeat(70_000);
    const first = running<string>(two.holder, "large", "a");
    await first.begun;
    const waiting = once(two.session, "large", "a", never, { ...KEEP, ifRunning: "wait" });
    first.end(large);

    expect(await reasonOf(first.reply)).toMatchObject({ code: "RESULT_NOT_KEPT", result: large });
    const failed = { status: "failed", error: { code: "RESULT_NOT_KEPT" } };
    expect(await waiting).toMatchObject(failed);
    expect(await once(two.session, "large", "a", never, KEEP)).toMatchObject(failed);
  });
});

describe("a client that disconnects", () => {
  // From caura-ai/caura#1629, where the record was lost with the connection.
  test("does not end the run that it has begun: its retry gets the reply", async () => {
    const gone = new AbortController();
    const first = running(two.holder, "gone", "a", { signal: gone.signal });
    await first.begun;
    gone.abort();
    const retry = once(two.session, "gone", "a", never, { ...KEEP, ifRunning: "wait" });
    first.end("paid");

    expect(await first.reply).toMatchObject({ result: "paid" });
    expect(await retry).toMatchObject({ status: "done", result: "paid", replayed: true });
  });

  // From tailscale/tailscale#18919 and janos/singleflight#4, where the cancellation of one caller reached the others, or let a second run begin.
  test("while it waits ends its own wait only", async () => {
    const first = running(two.holder, "waits", "a");
    await first.begun;
    const gone = new AbortController();
    const wait = (options: OnceOptions = {}) =>
      once(two.session, "waits", "a", never, { ...options, ...KEEP, ifRunning: "wait" });
    const leaving = reasonOf(wait({ signal: gone.signal }));
    const staying = wait();
    gone.abort();

    expect(await leaving).toMatchObject({ name: "AbortError" });
    const late = wait();
    first.end("paid");
    for (const reply of [await staying, await late])
      expect(reply).toMatchObject({ status: "done", result: "paid" });
  });
});
