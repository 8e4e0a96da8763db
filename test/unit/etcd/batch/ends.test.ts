import { describe, expect, test } from "vitest";
import { EtcdRefusedError, EtcdUnavailableError } from "../../../../src/errors.js";
import type { CallPolicy } from "../../../../src/etcd/retry.js";
import { LeaseNotFoundError, TokenExpiredError, UnansweredError } from "../../../../src/etcd/port.js";
import { Airport, namesOf, numbered, txnsOf } from "../../../support/fakes/airport.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import type { FakeCall } from "../../../support/fakes/fake-member.js";

const NO_ANSWER = new UnansweredError("connection reset");

describe("a batch that etcd refuses", () => {
  const REFUSED = new EtcdRefusedError("quota", "a:1", "no space");

  test("is asked again one by one, in order, before all that came later; only the guilty one is told", async () => {
    const airport = new Airport();
    const sent = [...(await airport.sendFirst("z")), ...airport.send(["a", "b", "c"])];
    await airport.turn();
    void airport.send(["a", "b", "later"]);

    await airport.fail(airport.out[1]!, new LeaseNotFoundError("requested lease not found"));
    expect(airport.out.map(namesOf)).toEqual([["z"], ["a"], ["b"], ["c"]]);
    await airport.fail(airport.out[2]!, new LeaseNotFoundError("requested lease not found"));
    await airport.landAll();
    await Promise.all(sent);

    expect(airport.ends.slice(0, 2)).toEqual(["b failed", "z"]);
    expect(airport.errors.get("b")).toBeInstanceOf(LeaseNotFoundError);
    expect(airport.ends.toSorted()).toEqual(["a", "a", "b", "b failed", "c", "later", "z"]);
  });

  test("for want of space lets the deletes in it through", async () => {
    const airport = new Airport();
    const sent = [
      ...(await airport.sendFirst("z")),
      ...airport.send(["a", "b"]),
      ...airport.send(["c", "d"], {}, "leave"),
    ];
    const hasPut = (call: FakeCall) => txnsOf(call).some(({ success }) => success[0]?.kind === "put");
    await airport.turn();
    await airport.land(airport.out[0]!);

    while (airport.out.length > 0)
      for (const call of airport.out) await (hasPut(call) ? airport.fail(call, REFUSED) : airport.land(call));
    await Promise.all(sent);

    expect(airport.ends).toEqual(["z", "a failed", "b failed", "c", "d"]);
    expect(airport.errors.get("a")).toMatchObject({ code: "ETCD_REFUSED", reason: "quota" });
  });

  test("is not asked again for a join whose caller has left, but for a delete it is", async () => {
    const airport = new Airport();
    let gaveUp = false;
    const joins = [...(await airport.sendFirst("a")), ...airport.send(["b"], { again: () => !gaveUp })];
    const others = airport.send(["c"], {}, "leave");
    await airport.turn();
    gaveUp = true;

    await airport.fail(airport.out[1]!, REFUSED);
    await airport.landAll();
    await Promise.all([...joins, ...others]);

    expect(airport.sent.map(namesOf)).toEqual([["a"], ["b", "c"], ["c"]]);
    expect(airport.errors.get("b")).toBeInstanceOf(EtcdUnavailableError);
    expect(airport.ends.toSorted()).toEqual(["a", "b failed", "c"]);
  });
});

describe("a batch without an answer", () => {
  test("counts for each of its transactions as unanswered, once, and each is repeated by itself", async () => {
    const airport = new Airport({ hosts: ["a:1", "b:1"] });
    const unanswered = new Map<string, number>();
    const count = (name: string) => () => void unanswered.set(name, (unanswered.get(name) ?? 0) + 1);
    const sent = await airport.sendFirst("z");
    sent.push(...["a", "b", "c"].flatMap((name) => airport.send([name], { onUnanswered: count(name) })));
    await airport.turn();
    await airport.land(airport.out[0]!);

    await airport.fail(airport.out[0]!, NO_ANSWER);
    // These requests keep a, b and c waiting, all at the same time.
    for (const name of numbered(4)) {
      sent.push(...airport.send([name]));
      await airport.turn();
    }
    await airport.cluster.clock.pass(1000);
    await airport.landAll();
    await Promise.all(sent);

    expect(Object.fromEntries(unanswered)).toEqual({ a: 1, b: 1, c: 1 });
    expect(
      airport.sent
        .slice(2 + 4)
        .map(namesOf)
        .toSorted(),
    ).toEqual([["a"], ["b"], ["c"]]);
    expect(airport.cluster.connected.map(({ host }) => host)).toEqual(expect.arrayContaining(["a:1", "b:1"]));
    expect(airport.ends.toSorted()).toEqual(["a", "b", "c", ...numbered(4), "z"]);
  });

  test("of which one part was refused before is repeated like any other", async () => {
    const airport = new Airport({ hosts: ["a:1", "b:1"] });
    const sent = [...(await airport.sendFirst("z")), ...airport.send(["a", "b"])];
    await airport.turn();
    await airport.fail(airport.out[1]!, new EtcdRefusedError("other", "a:1", "too many operations"));

    for (const call of airport.out) await airport.fail(call, NO_ANSWER);
    await airport.cluster.clock.pass(1000);
    await airport.landAll();
    await Promise.all(sent);

    expect(airport.ends.toSorted()).toEqual(["a", "b", "z"]);
  });

  test("of one each, as with a password: a token that the server no longer knows is asked for anew once", async () => {
    const auth = { username: "u", password: "p" };
    const airport = new Airport({ hosts: "a:1", auth });
    void airport.send(["z"]);
    await airport.turn();
    await airport.landAll();
    const sent = airport.send(["first", ...numbered(96)]);
    await airport.turn();
    expect(airport.out.map(namesOf).every(({ length }) => length === 1)).toBe(true);

    await airport.fail(airport.out[1]!, new TokenExpiredError("invalid auth token"));
    await airport.landAll();
    await airport.cluster.clock.pass(2000);
    while (airport.out.length > 0) {
      await airport.landAll();
      await airport.cluster.clock.pass(2000);
    }
    await Promise.all(sent);

    expect(airport.errors).toEqual(new Map());
    expect(airport.cluster.member.of("authenticate")).toHaveLength(2);
    expect(airport.ends).toHaveLength(1 + 1 + 96);
  });
});

describe("the end of one of a batch", () => {
  async function batchOf(names: readonly string[], policies: readonly Partial<CallPolicy>[]) {
    const airport = new Airport();
    void (await airport.sendFirst("z"));
    const ended = names.flatMap((name, n) => airport.send([name], policies[n]));
    await airport.turn();
    await airport.land(airport.out[0]!);
    const [batch] = airport.out as [FakeCall];
    return { airport, ended, batch };
  }

  test("by its caller: it rejects at once with the caller's reason, and the others get their answers", async () => {
    const caller = new AbortController();
    const unanswered: string[] = [];
    const { airport, ended, batch } = await batchOf(
      ["a", "b", "c"],
      [{}, { signal: caller.signal, onUnanswered: () => unanswered.push("b") }, {}],
    );

    caller.abort(new Error("my own"));
    await ended[1];
    expect(airport.errors.get("b")).toBe(caller.signal.reason);
    expect(unanswered).toEqual(["b"]);
    expect(batch.options.signal?.aborted).toBe(false);
    await airport.land(batch);
    await Promise.all(ended);

    expect(airport.ends).toEqual(["z", "b failed", "a", "c"]);
    expect(airport.sent).toHaveLength(2);
  });

  test("cancels the request only when no other one is left in it", async () => {
    const callers = [new AbortController(), new AbortController()];
    const { airport, ended, batch } = await batchOf(
      ["a", "b"],
      callers.map(({ signal }) => ({ signal })),
    );

    callers[0]?.abort();
    await airport.turn();
    expect(batch.options.signal?.aborted).toBe(false);
    callers[1]?.abort();
    await Promise.all(ended);

    expect(batch.options.signal?.aborted).toBe(true);
    expect(airport.cluster.clock.timers).toBe(0);
  });

  test("before the request is sent leaves it in doubt, for the others take it along: all but the last one", async () => {
    const airport = new Airport();
    airport.cluster.reachable = false;
    const callers = [new AbortController(), new AbortController()];
    const unanswered: string[] = [];
    const policyOf = (name: string) => ({ onUnanswered: () => void unanswered.push(name) });
    const ended = [
      ...airport.send(["a"], { ...policyOf("a"), signal: callers[0]!.signal }),
      ...airport.send(["b"], { ...policyOf("b"), giveUpMs: 100, attemptMs: 100 }),
      ...airport.send(["c"], { ...policyOf("c"), signal: callers[1]!.signal }),
    ];
    await airport.turn();
    expect(airport.out.map(namesOf)).toEqual([["a", "b", "c"]]);

    callers[0]!.abort();
    await airport.cluster.clock.pass(100);
    expect(unanswered).toEqual(["a", "b"]);
    callers[1]!.abort();
    await Promise.all(ended);

    expect([unanswered, airport.out[0]!.options.signal?.aborted]).toEqual([["a", "b"], true]);
  });

  test("by its own time limit leaves the others theirs; its repetition does not wait for them", async () => {
    let unanswered = 0;
    const { airport, ended, batch } = await batchOf(
      ["a", "b", "c"],
      [{}, { attemptMs: 100, onUnanswered: () => unanswered++ }, { attemptMs: 1000 }],
    );

    await airport.cluster.clock.pass(400);
    await airport.turn();
    expect(unanswered).toBe(1);
    expect(airport.out.map(namesOf)).toEqual([["a", "b", "c"], ["b"]]);
    await airport.land(airport.out[1]!);
    expect(airport.ends).toEqual(["z", "b"]);
    await airport.land(batch);
    await Promise.all(ended);

    expect(airport.ends).toEqual(["z", "b", "a", "c"]);
    expect(unanswered).toBe(1);
    expect(airport.cluster.clock.timers).toBe(0);
  });

  test("while it waits to be sent: nobody ever hears of it", async () => {
    const caller = new AbortController();
    const airport = new Airport();
    const sent = [
      ...(await airport.sendFirst("z")),
      ...airport.send(["a"], { signal: caller.signal }),
      ...airport.send(["b"]),
    ];

    caller.abort(new Error("my own"));
    await airport.turn();
    await airport.landAll();
    await Promise.all(sent);

    expect(airport.errors.get("a")).toBe(caller.signal.reason);
    expect(airport.sent.map(namesOf)).toEqual([["z"], ["b"]]);
  });
});

test("nothing is left when all callers have left: no request, no timer, and no name that somebody would wait for", async () => {
  const airport = new Airport();
  const caller = new AbortController();
  const sent = airport.send([...numbered(500), ...numbered(500), "a", "a/b"], { signal: caller.signal });
  await airport.turn();

  caller.abort(new Error("closed"));
  await Promise.all(sent);
  await settle();

  expect(airport.sent.every(({ options }) => options.signal?.aborted)).toBe(true);
  expect(airport.cluster.clock.timers).toBe(0);
  for (const call of airport.out) airport.forget(call);
  const before = airport.sent.length;
  void airport.send(numbered(50));
  await airport.turn();
  expect(airport.sent.slice(before).flatMap(namesOf)).toEqual(numbered(50));
});
