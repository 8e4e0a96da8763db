import { describe, expect, test } from "vitest";
import { Airport, namesOf, numbered, txnOf, txnsOf } from "../../../support/fakes/airport.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { HEADER } from "../../../support/fakes/fake-connection.js";
import type { FakeCall } from "../../../support/fakes/fake-member.js";

const MAX_BATCH = 96;
const MAX_FLIGHTS = 4;

describe("a transaction", () => {
  test("that is sent when nothing is in flight waits for nothing", async () => {
    const airport = new Airport();

    void airport.send(["a"]);
    await settle();

    expect(airport.sent.map(namesOf)).toEqual([["a"]]);
  });

  test("shares a request with all others of its turn", async () => {
    const airport = new Airport();

    void airport.send(["a", "b"]);
    void airport.send(["c"]);
    await settle();

    expect(airport.sent.map(namesOf)).toEqual([["a", "b", "c"]]);
  });

  test("that is sent while others are in flight leaves with all that were sent meanwhile", async () => {
    const airport = new Airport();

    const sent = [...(await airport.sendFirst("a")), ...airport.send(["b", "c", "d"])];
    await airport.turn();
    await airport.landAll();
    await Promise.all(sent);

    expect(airport.sent.map(namesOf)).toEqual([["a"], ["b", "c", "d"]]);
    expect(airport.ends).toEqual(["a", "b", "c", "d"]);
  });

  test("gets the answer at its own place in that of its batch", async () => {
    const { cluster, sent, turn } = bound(new Airport());
    const first = cluster.client.txn(txnOf(["z"]), { what: "test" });
    await settle();
    const others = numbered(3).map((name) => cluster.client.txn(txnOf([name]), { what: "test" }));
    await turn();

    const answers = numbered(3).map((_, n) => ({ header: HEADER, succeeded: n === 1, ranges: [] }));
    sent[1]?.answer(answers);
    sent[0]?.answer(answers[0]);

    expect(await Promise.all(others)).toEqual(answers);
    expect(await first).toBe(answers[0]);
  });

  test("shares its request with 95 others at most, and with three others the way to the member", async () => {
    const airport = new Airport();

    const sent = airport.send(numbered(1000));
    await airport.turn();
    expect(airport.sent.map((call) => txnsOf(call).length)).toEqual(Array(MAX_FLIGHTS).fill(MAX_BATCH));
    await airport.landAll();
    await Promise.all(sent);

    expect(airport.most).toBe(MAX_FLIGHTS);
    expect(Math.max(...airport.sent.map((call) => txnsOf(call).length))).toBe(MAX_BATCH);
    expect(airport.sent).toHaveLength(Math.ceil(1000 / MAX_BATCH));
    expect(airport.ends).toHaveLength(1000);
  });

  test("leaves in the order of its coming, among those of one name", async () => {
    const airport = new Airport();
    const order: number[] = [];
    const send = (n: number) =>
      airport.cluster.client
        .txn({ ...txnOf(["a"]), compare: [at(n)] }, { what: "test" })
        .then(() => order.push(n));

    const sent = Array.from({ length: 20 }, (_, n) => send(n));
    await airport.turn();
    await airport.landAll();
    await Promise.all(sent);

    expect(airport.sent.map((call) => revisionIn(call))).toEqual(Array.from({ length: 20 }, (_, n) => n));
    expect(order).toEqual(Array.from({ length: 20 }, (_, n) => n));
  });
});

const at = (n: number) => ({ kind: "created at", key: "a/1", revision: BigInt(n) }) as const;
const revisionIn = (call: FakeCall) => {
  const compare = txnsOf(call)[0]?.compare[0];
  return compare?.kind === "created at" ? Number(compare.revision) : undefined;
};

/** The methods bound, for tests that destructure them. */
function bound(airport: Airport) {
  return { cluster: airport.cluster, sent: airport.sent, turn: () => airport.turn() };
}

describe("transactions whose queues have keys in common", () => {
  const PAIRS = [
    { why: "equal names", one: "a", other: "a" },
    { why: "a name and one under it", one: "a", other: "a/b" },
    { why: "a name and one above it", one: "a/b/c", other: "a" },
    { why: "one of several names", one: "x+a/b", other: "y+a" },
  ];

  test.each(PAIRS)("share no request, and may be in flight together: $why", async ({ one, other }) => {
    const airport = new Airport();

    const sent = [...(await airport.sendFirst("z")), ...airport.send([one, other])];
    await airport.turn();

    expect(airport.out.map(namesOf)).toEqual([["z"], [one], [other]]);
    await airport.landAll();
    await Promise.all(sent);
  });

  test("do not keep one another waiting when one is a part of the other's text only", async () => {
    const airport = new Airport();

    void (await airport.sendFirst("z"));
    void airport.send(["a", "ab", "a-b/c"]);
    await airport.turn();

    expect(airport.out.map(namesOf)).toEqual([["z"], ["a", "ab", "a-b/c"]]);
  });

  test("are served in turn: those of one name let the other one in between", async () => {
    const airport = new Airport();

    const sent = [...(await airport.sendFirst("a")), ...airport.send(["a", "a", "a/b"])];
    await airport.turn();
    await airport.landAll();
    await Promise.all(sent);

    expect(airport.ends).toEqual(["a", "a", "a/b", "a"]);
  });

  test("are served in turn: an endless stream of `a/1`, `a/2`, … does not keep `a` waiting", async () => {
    const airport = new Airport();
    void airport.send(["a/0", "a/1", "a"]);

    for (let n = 2; n < 20 && !airport.ends.includes("a"); n++) {
      void airport.send([`a/${n}`]);
      await airport.turn();
      // The older one is answered after the younger one was sent: a request under `a` is always in flight.
      await airport.land(airport.out[0]!);
    }

    expect(airport.ends).toEqual(["a/0", "a/1", "a"]);
  });

  test("are served in turn also when others of the same name are given up all the time", async () => {
    const airport = new Airport();
    const [signals, given] = [numbered(20).map(() => new AbortController()), [] as Promise<unknown>[]];
    void airport.send(["a/0", "a/1", "a"]);

    for (let n = 2; n < 20 && !airport.ends.includes("a"); n++) {
      void airport.send([`a/${n}`]);
      given.push(...airport.send(["a"], { signal: signals[n]!.signal }));
      signals[n]!.abort(new Error("given up"));
      await airport.turn();
      await airport.land(airport.out[0]!);
    }
    await Promise.all(given);

    expect(airport.ends.filter((end) => end !== "a failed")).toEqual(["a/0", "a/1", "a"]);
  });
});

describe("a member that is left", () => {
  test("does not keep those waiting that have not been sent to it", async () => {
    const airport = new Airport({ hosts: ["a:1", "b:1"] });
    const flying = airport.send(numbered(5 * MAX_BATCH));
    await airport.turn();
    expect(airport.out).toHaveLength(MAX_FLIGHTS);

    airport.cluster.client.pool.fail(airport.cluster.member);
    await airport.turn();

    const onB = airport.cluster.connected[1]!;
    expect(onB.calls.map((call) => txnsOf(call).length)).toEqual([MAX_BATCH]);
    await airport.landAll();
    await Promise.all(flying);
  });

  test("and is left again by a stream that noticed later, lets no more requests go to the next one", async () => {
    const airport = new Airport({ hosts: ["a:1", "b:1"] });
    void (await airport.sendFirst("z"));
    const old = airport.cluster.member;
    airport.cluster.client.pool.fail(old);
    const sent = airport.send(numbered(1000));
    await airport.turn();
    expect(airport.cluster.member.calls).toHaveLength(MAX_FLIGHTS);

    airport.cluster.client.pool.fail(old);
    await airport.turn();

    expect(airport.cluster.member.calls).toHaveLength(MAX_FLIGHTS);
    await airport.landAll();
    await Promise.all(sent);
    expect(airport.most).toBe(MAX_FLIGHTS);
  });
});
