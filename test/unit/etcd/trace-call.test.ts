import { expect, test } from "vitest";
import { callChannel } from "../../../src/base/telemetry/channels.js";
import { EtcdRefusedError } from "../../../src/errors.js";
import type { CallPolicy } from "../../../src/etcd/retry.js";
import { UnansweredError } from "../../../src/etcd/port.js";
import { FakeCluster, HEADER } from "../../support/fakes/fake-connection.js";
import { Traced } from "../../support/fixtures/published.js";

const TXN = { queues: ["jobs"], compare: [], success: [], failure: [] };
const ANSWER = { header: HEADER, succeeded: true, ranges: [] };
const POLICY = { what: "test" };

function answering(): FakeCluster {
  const cluster = new FakeCluster();
  cluster.onCall = (call) => call.answer(ANSWER);
  return cluster;
}

/** A message contains what the call is for; the call itself reads that only if it fails. */
test.each([
  ["txn", (cluster: FakeCluster, policy: CallPolicy) => cluster.client.txn(TXN, policy)],
  ["range", (cluster: FakeCluster, policy: CallPolicy) => cluster.client.range({ key: "jobs/1" }, policy)],
  [
    "ranges",
    (cluster: FakeCluster, policy: CallPolicy) => cluster.client.ranges([{ key: "jobs/1" }], policy),
  ],
])("a %s makes no message before the first subscriber and after the last one", async (_, call) => {
  const cluster = answering();
  let made = 0;
  const policy = {
    get what() {
      made++;
      return "test";
    },
  };

  await call(cluster, policy);
  expect(made).toBe(0);
  const trace = new Traced(callChannel);
  await call(cluster, policy);
  trace[Symbol.dispose]();
  expect(made).toBe(1);
  await call(cluster, policy);

  expect(made).toBe(1);
  expect(trace.ended).toMatchObject([{ what: "test", attempts: 1, host: "a:1" }]);
});

test("all attempts are counted and timed, with the pauses between them", async () => {
  const cluster = new FakeCluster();
  cluster.onCall = (call) =>
    cluster.connected.length < 3 ? call.fail(new UnansweredError("connection reset")) : call.answer(ANSWER);
  using trace = new Traced(callChannel);
  const start = cluster.clock.monotonic();

  const calling = cluster.client.txn(TXN, POLICY);
  await cluster.clock.pass(5000);
  await calling;

  expect(trace.ended).toMatchObject([{ attempts: 3, host: "c:1" }]);
  expect(trace.ended[0]).toHaveProperty("durationMs", expect.closeTo(cluster.clock.monotonic() - start, -4));
});

test("a member that rejects a call has answered it", async () => {
  const cluster = new FakeCluster();
  cluster.onCall = (call) => call.fail(new EtcdRefusedError("permission", "a:1", "no"));
  using trace = new Traced(callChannel);

  const error: unknown = await cluster.client.txn(TXN, POLICY).catch((reason: unknown) => reason);

  expect(trace.ended).toMatchObject([{ attempts: 1, host: "a:1", error }]);
  expect(trace.of("error")).toEqual(trace.ended);
});
