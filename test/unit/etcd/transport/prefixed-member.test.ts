import { describe, expect, test } from "vitest";
import { memberOf, PrefixedMember } from "../../../../src/etcd/transport.js";
import type { Range, Txn, WatchAnswer, WatchRequest } from "../../../../src/etcd/port.js";
import { checkConnect } from "../../../../src/options/connect.js";
import { FakeClock } from "../../../support/fakes/fake-clock.js";
import { HEADER } from "../../../support/fakes/fake-connection.js";
import { FakeMember, keyValue } from "../../../support/fakes/fake-member.js";

const LIMIT = { timeoutMs: 1000 };
const FOREIGN = [keyValue({ key: "prod" }), keyValue({ key: "prod/" }), keyValue({ key: "test/jobs/1" })];

/** A member behind the prefix, which answers every call with `answer`. */
function world(answer: unknown = undefined) {
  const inner = new FakeMember("a:1", new FakeClock(), HEADER, (call) => call.answer(answer));
  return { inner, member: new PrefixedMember(inner, "prod/") };
}

describe("a member with a prefix", () => {
  test("adds it to the keys of a transaction, and removes it from those of the answer", async () => {
    const own = keyValue({ key: "prod/jobs/1", value: "prod/", createRevision: 7n });
    const range = { kvs: [own, ...FOREIGN], more: true, count: 4 };
    const { inner, member } = world({ header: HEADER, succeeded: true, ranges: [undefined, range] });
    const txn: Txn = {
      queues: ["jobs"],
      compare: [
        { kind: "created at", key: "jobs/1", revision: 0n },
        { kind: "modified at", key: "jobs/1", revision: 0n },
        { kind: "value is", key: "jobs/1", value: "jobs/1" },
        { kind: "nothing in", key: "jobs/", end: "jobs0" },
      ],
      success: [
        { kind: "put", key: "jobs/1", value: "jobs/1", leaseId: 9n },
        { kind: "range", key: "jobs/", end: "jobs0", limit: 4 },
      ],
      failure: [{ kind: "delete", key: Buffer.from([0xff]) }],
    };

    const [answer] = await member.txns([txn], LIMIT);

    expect(inner.of("txn")[0]?.request).toEqual({
      queues: ["jobs"],
      compare: [
        { kind: "created at", key: "prod/jobs/1", revision: 0n },
        { kind: "modified at", key: "prod/jobs/1", revision: 0n },
        { kind: "value is", key: "prod/jobs/1", value: "jobs/1" },
        { kind: "nothing in", key: "prod/jobs/", end: "prod/jobs0" },
      ],
      success: [
        { kind: "put", key: "prod/jobs/1", value: "jobs/1", leaseId: 9n },
        { kind: "range", key: "prod/jobs/", end: "prod/jobs0", limit: 4 },
      ],
      failure: [{ kind: "delete", key: Buffer.from("prod/\xff", "latin1") }],
    });
    expect(answer).toEqual({
      header: HEADER,
      succeeded: true,
      ranges: [undefined, { kvs: [{ ...own, key: Buffer.from("jobs/1") }], more: true, count: 4 }],
    });
  });

  test("leaves keys alone that say that they are complete, in requests and in answers", async () => {
    const range = { kvs: FOREIGN, more: false, count: 3 };
    const { inner, member } = world({ header: HEADER, succeeded: false, ranges: [range, range], ...range });
    const own: Range = { key: "jobs/", end: "jobs0" };
    const complete: Range = { key: "marks/", end: "marks0", complete: true };
    const txn: Txn = {
      queues: ["jobs"],
      compare: [{ kind: "created at", key: "marks/1", revision: 0n, complete: true }],
      success: [{ kind: "put", key: "marks/1", value: "", leaseId: 0n, complete: true }],
      failure: [complete, own].map((each) => ({ kind: "range", ...each })),
    };

    const [answer] = await member.txns([txn], LIMIT);
    const read = await member.range(complete, LIMIT);

    const ownSent = { kind: "range", key: "prod/jobs/", end: "prod/jobs0" };
    expect(inner.of("txn")[0]?.request).toEqual({ ...txn, failure: [txn.failure[0], ownSent] });
    expect(answer?.ranges).toEqual([range, { ...range, kvs: [] }]);
    expect(inner.of("range")[0]?.request).toEqual(complete);
    expect(read.kvs).toEqual(FOREIGN);
  });

  test("reads a range between bytes under the prefix", async () => {
    const own = keyValue({ key: "prod/jobs/1" });
    const { inner, member } = world({ header: HEADER, kvs: [own, ...FOREIGN], more: false, count: 1 });
    const range = { key: Buffer.of(0), end: Buffer.of(0xff), keysOnly: true };

    const { kvs } = await member.range(range, LIMIT);

    expect(inner.of("range")[0]?.request).toEqual({
      key: Buffer.from("prod/\0"),
      end: Buffer.from("prod/\xff", "latin1"),
      keysOnly: true,
    });
    expect(kvs).toEqual([{ ...own, key: Buffer.from("jobs/1") }]);
  });

  test("lists the keys of a lease that begin with the prefix, and no others", async () => {
    const keys = ["prod/jobs/77", "prod/", "prod", "jobs/77", "test/prod/77"].map((key) => Buffer.from(key));
    const { member } = world({ header: HEADER, leaseId: 0x77n, ttlSeconds: 9, keys });

    expect(await member.timeToLive(0x77n, LIMIT)).toMatchObject({
      ttlSeconds: 9,
      keys: [Buffer.from("jobs/77")],
    });
  });

  test("watches keys under the prefix, and reports them without it", () => {
    const { inner, member } = world();
    const answers: WatchAnswer[] = [];
    const ends: Error[] = [];
    const stream = member.watch({ answer: (each) => answers.push(each), ended: (error) => ends.push(error) });
    const request: WatchRequest = {
      watchId: 3,
      key: "jobs/",
      end: "jobs0",
      startRevision: 5n,
      events: "ALL",
    };

    stream.create(request);
    stream.create({ ...request, watchId: 4, key: "jobs/1", end: undefined } as unknown as WatchRequest);
    stream.probe();
    stream.cancel(3);
    const [watch] = inner.watches;
    watch!.answer({ watchId: 3, created: true });
    const kv = keyValue({ key: "prod/jobs/1" });
    watch!.answer({ watchId: 3, events: [kv, ...FOREIGN].map((each) => ({ kind: "PUT", kv: each })) });
    watch!.end();
    stream.close();

    expect(watch!.creates).toMatchObject([
      { key: "prod/jobs/", end: "prod/jobs0", watchId: 3, startRevision: 5n },
      { key: "prod/jobs/1", end: undefined },
    ]);
    expect([watch!.probes, watch!.cancels, watch!.closed]).toEqual([1, [3], true]);
    expect(answers[0]).toMatchObject({ watchId: 3, created: true, events: [] });
    expect(answers[1]!.events).toEqual([{ kind: "PUT", kv: { ...kv, key: Buffer.from("jobs/1") } }]);
    expect(ends).toHaveLength(1);
  });

  test("passes on everything that has no key", async () => {
    const { inner, member } = world("the answer");
    inner.loading = Promise.resolve();

    const answers = [
      await member.grant(7n, 10, LIMIT),
      await member.revoke(7n, LIMIT),
      await member.authenticate("root", "secret", LIMIT),
    ];
    member.keepalive({ answer: () => {}, ended: () => {} }).renew(7n);
    member.retire();

    expect(answers).toEqual(["the answer", "the answer", "the answer"]);
    expect(inner.calls.map(({ options }) => options)).toEqual([LIMIT, LIMIT, LIMIT]);
    expect(inner.keepalives[0]?.renewals).toEqual([7n]);
    expect(member.failure("no").message).toBe(inner.failure("no").message);
    expect([member.host, member.loading, inner.retired]).toEqual(["a:1", inner.loading, true]);
  });
});

test.each([
  ["prod/", true],
  [undefined, false],
])("with the prefix %s, connections are wrapped: %s", (prefix, wrapped) => {
  const options = checkConnect({ hosts: "a:1", prefix });
  const setting = { token: () => undefined, pingMs: 6000 };

  const member = memberOf("a:1", setting, { options, clock: new FakeClock() });

  expect(member instanceof PrefixedMember).toBe(wrapped);
  member.retire();
});
