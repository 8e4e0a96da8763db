// The channel `leasehold.call`: every call to etcd, with the member that answered and the number of attempts.
import { inspect } from "node:util";
import { expect, test } from "vitest";
import { connect, Election, Mutex } from "../../../src/index.js";
import { callChannel } from "../../../src/base/telemetry/channels.js";
import type { CallMessage } from "../../../src/base/telemetry/messages.js";
import { Traced } from "../../support/fixtures/published.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { freePorts } from "../../support/servers/ports.js";
import { startWithUsers, WORKER } from "../../support/fixtures/users.js";

const two = twoSessions(10);
const traced = () => new Traced<CallMessage>(callChannel);

test("a call publishes what it is for, who answered, and how long it took", async () => {
  using trace = traced();
  const before = performance.now();

  await new Mutex(two.session, "jobs").withLock(() => undefined);
  await new Election(two.session, "jobs").leader();
  const tookMs = performance.now() - before;

  expect(trace.ended.map(({ what }) => what)).toEqual([
    'join the queue of "jobs"',
    'leave the queue of "jobs"',
    'ask for the leader of "jobs"',
  ]);
  for (const message of trace.ended) {
    expect(message).toMatchObject({ host: two.etcd.endpoints[0], attempts: 1 });
    expect(message.hosts).toBe(two.cluster.hosts);
    expect(message.durationMs).toBeGreaterThan(0);
    expect(message.durationMs).toBeLessThan(tookMs);
    expect(Object.keys(message)).not.toContain("error");
    // The answer of etcd is for the library alone.
    expect(message).not.toHaveProperty("result");
  }
  expect(trace.of("error")).toEqual([]);
});

test("calls that share a request are published one by one", async () => {
  using trace = traced();
  const names = Array.from({ length: 20 }, (_, n) => `shared/${n}`);

  await Promise.all(names.map((name) => new Mutex(two.session, name).withLock(() => undefined)));

  const of = (verb: string) => names.map((name) => `${verb} the queue of "${name}"`);
  expect(trace.ended.map(({ what }) => what).sort()).toEqual([...of("join"), ...of("leave")].sort());
  expect(new Set(trace.ended.map(({ host }) => host))).toEqual(new Set(two.etcd.endpoints));
});

test("a call that a dead member did not answer publishes its attempts, and the one that did", async () => {
  const [dead] = await freePorts(1);
  await using cluster = connect({ hosts: [`http://127.0.0.1:${dead}`, ...two.etcd.endpoints] });
  using trace = traced();

  // Each cluster begins with a member of its own choice.
  const hosts = cluster.hosts;
  await new Mutex(cluster, "two-hosts").withLock(() => undefined);

  expect(trace.ended.every(({ host }) => host === two.etcd.endpoints[0])).toBe(true);
  expect(trace.ended.every(({ attempts }) => attempts <= 2)).toBe(true);
  expect(trace.ended.every((message) => message.hosts === hosts)).toBe(true);
});

test("a call without an answer publishes its error and all attempts", async () => {
  const [dead] = await freePorts(1);
  await using cluster = connect({ hosts: `http://127.0.0.1:${dead}` });
  using trace = traced();

  const error = await reasonOf(new Election(cluster, "away").leader({ timeoutMs: 2000 }));
  await expect.poll(() => trace.ended).toHaveLength(1);

  expect(error).toMatchObject({ code: "ETCD_UNAVAILABLE" });
  expect(trace.of("error")).toEqual(trace.ended);
  expect(trace.ended).toMatchObject([{ host: undefined, error: { code: "ETCD_UNAVAILABLE" } }]);
  expect(trace.ended[0]?.attempts).toBeGreaterThan(1);
});

test("a call that etcd rejects publishes which member did", async () => {
  const users = await startWithUsers();
  const cluster = connect({ hosts: users.endpoints, auth: WORKER });
  using trace = traced();

  const error = await reasonOf(new Election(cluster, "forbidden/name").leader());

  expect(error).toMatchObject({ code: "ETCD_REFUSED", reason: "permission" });
  expect(inspect(trace.events, { depth: 9 })).not.toContain(WORKER.password);
  await cluster.close();
  await users.stop();
});
