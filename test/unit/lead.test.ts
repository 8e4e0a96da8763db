import { expect, test } from "vitest";
import type { Cluster } from "../../src/cluster.js";
import { register } from "../../src/connection.js";
import type { Txn } from "../../src/etcd/rpc.js";
import { lead } from "../../src/lead.js";
import { settle } from "../support/fake-clock.js";
import { FakeCluster, HEADER } from "../support/fake-connection.js";
import { type FakeCall, keyValue } from "../support/fake-member.js";

/** An etcd that has room for one candidate, who never waits. */
function lonelyEtcd(fake: FakeCluster): void {
  let revision = 100n;
  const own = { key: "", leaseId: 0n };
  const kv = () => keyValue({ ...own, createRevision: revision, modRevision: revision });
  const range = () => ({ kvs: [kv()], more: false, count: 1 });
  const answers: Partial<Record<FakeCall["method"], (request: unknown) => unknown>> = {
    grant: (request) => ({ header: HEADER, ...(request as object) }),
    revoke: () => undefined,
    range: () => ({ header: { ...HEADER, revision }, ...range() }),
    timeToLive: () => ({
      header: HEADER,
      leaseId: own.leaseId,
      ttlSeconds: 86_400,
      keys: [Buffer.from(own.key)],
    }),
    txn: (request) => {
      const { then } = request as Txn;
      revision++;
      for (const each of then) if (each.kind === "put") Object.assign(own, each);
      const ranges = then.map(({ kind }) => (kind === "range" ? range() : undefined));
      return { header: { ...HEADER, revision }, succeeded: true, ranges };
    },
  };
  fake.onCall = (call) => {
    const answer = answers[call.method];
    if (answer) call.answer(answer(call.request));
  };
}

test("after a term that ends by itself the next one begins 1 s later, then 2, 4 … 30 s, and 1 s after a long one", async () => {
  const fake = new FakeCluster();
  lonelyEtcd(fake);
  const cluster = {};
  register(cluster, fake.connection);
  const { clock } = fake;
  const stop = new AbortController();
  let termMs = 0;
  let ended = 0;
  const pauses: number[] = [];
  const work = async () => {
    if (ended > 0) pauses.push(Math.round((clock.monotonic() - ended) / 1000));
    if (termMs > 0) await new Promise<void>((resolve) => clock.after(termMs, resolve));
    ended = clock.monotonic();
  };

  const done = lead(cluster as Cluster, "jobs", work, { ttlSeconds: 86_400, signal: stop.signal });
  const pass = async (count: number) => {
    for (let steps = 0; pauses.length < count && steps < 1000; steps++) await clock.pass(250);
  };
  await pass(7);
  termMs = 31_000;
  await pass(8);
  termMs = 0;
  await pass(11);
  stop.abort();
  await settle();
  await clock.pass(10_000);
  await done;

  expect(pauses.slice(0, 8)).toEqual([1, 2, 4, 8, 16, 30, 30, 30]);
  expect(pauses.slice(8, 11)).toEqual([1, 2, 4]);
});
