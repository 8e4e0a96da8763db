import { afterEach, describe, expect, test, vi } from "vitest";
import { EtcdRefusedError, EtcdUnavailableError } from "../../../src/errors.js";
import type { CallPolicy } from "../../../src/etcd/retry.js";
import { type Txn, UnansweredError } from "../../../src/etcd/port.js";
import { settle } from "../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER } from "../../support/fakes/fake-connection.js";
import type { FakeCall } from "../../support/fakes/fake-member.js";

const TXN: Txn = { queues: ["jobs"], compare: [], success: [], failure: [] };
const ANSWER = { header: HEADER, succeeded: true, ranges: [] };
const NO_ANSWER = new UnansweredError("connection reset");

const answering = (call: FakeCall) => call.answer(ANSWER);
const failing = (call: FakeCall) => call.fail(NO_ANSWER);
const hostsOf = ({ connected }: FakeCluster) => connected.map(({ host }) => host);
/** All calls of all connections, in the order they were sent. */
const callsOf = ({ connected }: FakeCluster) => connected.flatMap(({ calls }) => calls);

function txn(cluster: FakeCluster, policy: Partial<CallPolicy> = {}) {
  const outcome = cluster.client.txn(TXN, { what: "test", ...policy });
  outcome.catch(() => undefined);
  return outcome;
}

function range(cluster: FakeCluster, policy: Partial<CallPolicy> = {}) {
  const outcome = cluster.client.range({ key: "jobs/1" }, { what: "test", ...policy });
  outcome.catch(() => undefined);
  return outcome;
}

afterEach(() => vi.restoreAllMocks());

describe("a call to the cluster", () => {
  test("stays on one member while that answers", async () => {
    const cluster = new FakeCluster();
    cluster.onCall = answering;

    for (let i = 0; i < 3; i++) await txn(cluster);

    expect(hostsOf(cluster)).toEqual(["a:1"]);
  });

  test("that gets no answer is repeated on the next member, around the list, until one answers", async () => {
    const cluster = new FakeCluster();
    cluster.onCall = (call) => (callsOf(cluster).length < 5 ? failing(call) : answering(call));
    let unanswered = 0;

    const outcome = txn(cluster, { onUnanswered: () => unanswered++ });
    await cluster.clock.pass(5000);

    await expect(outcome).resolves.toBe(ANSWER);
    expect(hostsOf(cluster)).toEqual(["a:1", "b:1", "c:1", "a:1", "b:1"]);
    expect(unanswered).toBe(4);
  });

  test("is not sent before its transport is loaded, which no time limit covers", async () => {
    const cluster = new FakeCluster({ requestTimeoutMs: 700 });
    let loaded = () => {};
    cluster.loading = new Promise<void>((resolve) => (loaded = resolve));
    cluster.onCall = answering;

    const outcome = txn(cluster);
    await cluster.clock.pass(5000);
    expect(callsOf(cluster)).toEqual([]);

    cluster.member.loading = undefined;
    loaded();
    await expect(outcome).resolves.toBe(ANSWER);
    expect(hostsOf(cluster)).toEqual(["a:1"]);
  });

  test("rejects at once with what its transport lacks", async () => {
    const cluster = new FakeCluster();
    const missing = new Error("not installed");
    cluster.loading = Promise.reject(missing);

    await expect(txn(cluster)).rejects.toBe(missing);
    await expect(range(cluster)).rejects.toBe(missing);
    await expect(cluster.client.loaded()).rejects.toBe(missing);
    expect(callsOf(cluster)).toEqual([]);
  });

  test("in a crowd is not sent before others are answered: its time limit runs from its sending", async () => {
    const cluster = new FakeCluster();
    const crowd = Promise.all(Array.from({ length: 1000 }, () => range(cluster)));

    await settle();
    const sent = callsOf(cluster);
    expect(sent.length).toBeLessThan(1000);

    cluster.onCall = answering;
    for (const call of sent) answering(call);
    await crowd;
    expect(callsOf(cluster)).toHaveLength(1000);
  });

  test("whose caller left while a crowd was before it is never sent", async () => {
    const cluster = new FakeCluster();
    const crowd = Promise.all(Array.from({ length: 1000 }, () => range(cluster)));
    const [reason, caller] = [new Error("gone"), new AbortController()];
    const aborted = range(cluster, { signal: caller.signal });
    const unwanted = range(cluster, { again: () => false });
    cluster.onCall = answering;

    caller.abort(reason);
    for (const call of callsOf(cluster)) answering(call);

    await crowd;
    await expect(aborted).rejects.toBe(reason);
    await expect(unwanted).rejects.toThrow(EtcdUnavailableError);
    expect(callsOf(cluster)).toHaveLength(1000);
  });

  test("takes a new connection for the next attempt also when there is one address only", async () => {
    const cluster = new FakeCluster({ hosts: "a:1" });
    cluster.onCall = (call) => (callsOf(cluster).length < 2 ? failing(call) : answering(call));

    const outcome = txn(cluster);
    await cluster.clock.pass(1000);

    await expect(outcome).resolves.toBe(ANSWER);
    expect(hostsOf(cluster)).toEqual(["a:1", "a:1"]);
    expect(cluster.connected[0]!.retired).toBe(true);
  });

  test("that etcd refuses is not repeated; the error tells who refused what, and why", async () => {
    const cluster = new FakeCluster();
    cluster.onCall = (call, host) => call.fail(new EtcdRefusedError("permission", host, "permission denied"));

    const outcome = txn(cluster, { what: "join the queue" });
    await cluster.clock.pass(5000);

    await expect(outcome).rejects.toMatchObject({
      code: "ETCD_REFUSED",
      reason: "permission",
      host: "a:1",
      message: "etcd at a:1 refused to join the queue (permission): permission denied",
    });
    expect(callsOf(cluster)).toHaveLength(1);
  });

  test("waits between attempts for a random time that grows and never exceeds a second", async () => {
    const cluster = new FakeCluster();
    cluster.clock.nextRandom = 0.5;
    cluster.onCall = failing;
    void txn(cluster);
    await cluster.clock.pass(5000);
    const times = callsOf(cluster)
      .map(({ sentAt }) => sentAt)
      .sort((a, b) => a - b);

    const gaps = times.slice(1).map((at, i) => at - times[i]!);
    expect(gaps.slice(0, 8)).toEqual([15, 30, 60, 120, 240, 480, 750, 750]);
  });

  test("gives up within its time, and tells what each member last said", async () => {
    const cluster = new FakeCluster();
    cluster.onCall = (call, host) => call.fail(new UnansweredError(`${host} is down`));
    const start = cluster.clock.now().monotonic;
    let ended = 0;

    const outcome = txn(cluster, { giveUpMs: 3000 });
    outcome.catch(() => (ended = cluster.clock.now().monotonic));
    await cluster.clock.pass(5000);

    const error = await outcome.then(
      () => undefined,
      (reason: unknown) => reason as EtcdUnavailableError,
    );
    expect(error).toBeInstanceOf(EtcdUnavailableError);
    expect([...error!.members.keys()].sort()).toEqual(["a:1", "b:1", "c:1"]);
    expect(error!.cause.errors).toHaveLength(3);
    expect(error!.message).toContain("b:1: b:1 is down");
    expect(ended - start).toBeLessThanOrEqual(3000);
    expect(ended - start).toBeGreaterThan(1000);
  });

  test("limits each attempt by requestTimeoutMs, by its own limit and by what is left", async () => {
    const limits: number[] = [];
    const cluster = new FakeCluster({ requestTimeoutMs: 700 });
    cluster.onCall = ({ options }) => limits.push(options.timeoutMs);

    void range(cluster, { giveUpMs: 1000 });
    void range(cluster, { attemptMs: 400, giveUpMs: 1000 });
    await cluster.clock.pass(3000);

    expect(limits.slice(0, 2)).toEqual([700, 400]);
    expect(Math.max(...limits.slice(2))).toBeLessThanOrEqual(600);
  });

  test("is not repeated when nobody wants it any more", async () => {
    const cluster = new FakeCluster();
    cluster.onCall = failing;

    const outcome = txn(cluster, { again: () => callsOf(cluster).length < 2 });
    await cluster.clock.pass(5000);

    await expect(outcome).rejects.toBeInstanceOf(EtcdUnavailableError);
    expect(callsOf(cluster)).toHaveLength(2);
  });

  test.each(["while an attempt is in flight", "between two attempts"])(
    "rejects with the caller's own reason at once when aborted %s",
    async (when) => {
      const cluster = new FakeCluster();
      const caller = new AbortController();
      if (when === "between two attempts") cluster.onCall = failing;

      const outcome = txn(cluster, { signal: caller.signal });
      await settle();
      const sent = callsOf(cluster).length;
      caller.abort(new Error("my own"));

      await expect(outcome).rejects.toBe(caller.signal.reason);
      expect(callsOf(cluster)).toHaveLength(sent);
      expect(cluster.clock.timers).toBe(0);
    },
  );
});

describe("a member that failed twice in a row", () => {
  /** On `a` two calls in a row got no answer, `b` answers, and a stream has just found `b` dead as well. */
  async function brokenA(hosts: string[]) {
    const cluster = new FakeCluster({ hosts });
    const answers = [failing, answering, failing, answering];
    cluster.onCall = (call) => (answers.shift() ?? answering)(call);
    for (let i = 0; i < 2; i++) {
      const outcome = txn(cluster);
      await cluster.clock.pass(500);
      await outcome;
      cluster.client.pool.fail(cluster.member);
    }
    return cluster;
  }

  test("is the last choice for a while", async () => {
    const cluster = await brokenA(["a:1", "b:1"]);

    await txn(cluster);
    expect(hostsOf(cluster)).toEqual(["a:1", "b:1", "a:1", "b:1", "b:1"]);

    cluster.client.pool.fail(cluster.member);
    await cluster.clock.pass(2000);
    await txn(cluster);
    expect(hostsOf(cluster).at(-1)).toBe("a:1");
  });

  test("is asked all the same when there is no other", async () => {
    const cluster = new FakeCluster({ hosts: "a:1" });
    cluster.onCall = (call) => (callsOf(cluster).length < 5 ? failing(call) : answering(call));

    const outcome = txn(cluster, { giveUpMs: 3000 });
    await cluster.clock.pass(3000);

    await expect(outcome).resolves.toBe(ANSWER);
  });
});

test("a call of a closed cluster ends at once, and is not in doubt", async () => {
  const cluster = new FakeCluster();
  const onUnanswered = vi.fn();
  cluster.client.close();

  await expect(txn(cluster, { onUnanswered })).rejects.toThrow("the cluster is closed");
  await expect(range(cluster, { onUnanswered })).rejects.toThrow("the cluster is closed");
  expect(onUnanswered).not.toHaveBeenCalled();
});
