import { describe, expect, test } from "vitest";
import { EtcdRefusedError } from "../../../src/errors.js";
import { AuthDisabledError, TokenExpiredError } from "../../../src/etcd/port.js";
import { settle } from "../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER } from "../../support/fakes/fake-connection.js";
import type { FakeCall } from "../../support/fakes/fake-member.js";

const AUTH = { username: "worker", password: "secret" };
const POLICY = { what: "test" };
const RANGE = { key: "jobs/1" };
const ANSWER = { header: HEADER, succeeded: true, ranges: [] };

/** A cluster whose members accept only the token that was issued last. */
class Guarded extends FakeCluster {
  authentications = 0;
  valid = 0;
  /** The token that each call was sent with. */
  readonly sentWith = new Map<FakeCall, number>();

  constructor() {
    super({ auth: AUTH });
    this.onCall = (call) => {
      if (call.method === "authenticate")
        return call.answer(`token ${(this.valid = ++this.authentications)}`);
      const sent = this.authentications;
      setImmediate(() =>
        sent === this.valid ? call.answer(ANSWER) : call.fail(new TokenExpiredError("invalid auth token")),
      );
    };
  }
}

describe("the token for user and password", () => {
  test("is asked for once, however many calls need it first", async () => {
    const cluster = new Guarded();

    await Promise.all(Array.from({ length: 100 }, () => cluster.client.range(RANGE, POLICY)));

    expect(cluster.authentications).toBe(1);
    expect(cluster.member.of("authenticate")[0]!.request).toEqual(AUTH);
  });

  test("is asked for once more when 100 calls find it expired", async () => {
    const cluster = new Guarded();
    await cluster.client.range(RANGE, POLICY);

    cluster.valid = -1;
    const outcomes = Promise.all(Array.from({ length: 100 }, () => cluster.client.range(RANGE, POLICY)));
    await cluster.clock.pass(100);
    await cluster.clock.pass(100);
    await outcomes;

    expect(cluster.authentications).toBe(2);
  });

  test("is no reason to ask for ever when etcd refuses a fresh one as well", async () => {
    const cluster = new FakeCluster({ hosts: "a:1", auth: AUTH });
    cluster.onCall = (call) =>
      call.method === "authenticate"
        ? call.answer("token")
        : call.fail(new TokenExpiredError("invalid auth token"));

    const outcome = cluster.client.range(RANGE, POLICY);
    outcome.catch(() => undefined);
    await cluster.clock.pass(5000);

    await expect(outcome).rejects.toMatchObject({
      code: "ETCD_REFUSED",
      reason: "unauthenticated",
      host: "a:1",
    });
    expect(cluster.member.of("txn").length).toBeLessThan(10);
  });

  test("is not needed by a server that has no authentication", async () => {
    const cluster = new FakeCluster({ auth: AUTH });
    const disabled = new AuthDisabledError("etcdserver: authentication is not enabled");
    cluster.onCall = (call) => (call.method === "authenticate" ? call.fail(disabled) : call.answer(ANSWER));

    await expect(cluster.client.range(RANGE, POLICY)).resolves.toBe(ANSWER);
  });

  test("that no header can carry counts as no answer, and the next one is used", async () => {
    const cluster = new Guarded();
    const guard = cluster.onCall;
    let answers = 0;
    cluster.onCall = (call, host) =>
      call.method === "authenticate" && ++answers === 1 ? call.answer("bad\ntoken") : guard(call, host);

    const outcome = cluster.client.range(RANGE, POLICY);
    await cluster.clock.pass(100);
    await cluster.clock.pass(100);

    expect(await outcome).toEqual(ANSWER);
    expect([answers, cluster.authentications]).toEqual([2, 1]);
  });

  test("that is refused for a wrong password fails the call at once", async () => {
    const cluster = new FakeCluster({ auth: AUTH });
    const wrong = new EtcdRefusedError("unauthenticated", "a:1", "authentication failed");
    cluster.onCall = (call) => call.fail(wrong);

    await expect(cluster.client.range(RANGE, POLICY)).rejects.toMatchObject({ reason: "unauthenticated" });
    expect(cluster.member.calls).toHaveLength(1);
  });

  test("that nobody answers for does not keep a call beyond its time", async () => {
    const cluster = new FakeCluster({ auth: AUTH });
    const start = cluster.clock.now().monotonic;
    let ended = 0;

    const outcome = cluster.client.range(RANGE, { ...POLICY, giveUpMs: 100 });
    outcome.catch(() => (ended = cluster.clock.now().monotonic));
    await cluster.clock.pass(1000);

    await expect(outcome).rejects.toMatchObject({ code: "ETCD_UNAVAILABLE" });
    expect(ended - start).toBeLessThanOrEqual(100);
  });

  test("that nobody answers for does not keep a call whose caller gives up", async () => {
    const cluster = new FakeCluster({ auth: AUTH });
    const caller = new AbortController();

    const outcome = cluster.client.range(RANGE, { ...POLICY, signal: caller.signal });
    await settle();
    caller.abort(new Error("my own"));

    await expect(outcome).rejects.toBe(caller.signal.reason);
  });

  test("is asked for at the next member when one does not answer", async () => {
    const cluster = new FakeCluster({ auth: AUTH });
    cluster.onCall = (call, host) => {
      if (host !== "a:1") call.answer(call.method === "authenticate" ? "token" : ANSWER);
    };

    const outcome = cluster.client.range(RANGE, { ...POLICY, attemptMs: 500 });
    await cluster.clock.pass(600);

    await expect(outcome).resolves.toBe(ANSWER);
  });
});
