// The range of one session's keys under a name also contains the queue of a nested name: the sweep must spare that.
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect, Mutex, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { encode } from "../../support/clients/gateway-text.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { takesPlace } from "../../support/clients/request-shape.js";

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());

test("the sweep of one name deletes no key of a name that is nested in it", async () => {
  await using proxy = await startGrpcProxy({ port: etcd.member.clientPort });
  await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 300 });
  const session = await Session.open(cluster, { ttlSeconds: 10 });
  const nested = await new Mutex(session, `jobs/${session.leaseId.toString(16)}-2`).lock();
  // "jobs" itself waits for names nested in it, so its unanswered attempt belongs to a tryLock that is refused.
  proxy.rule({ path: "/etcdserverpb.KV/Txn", act: "drop-answer", when: takesPlace, times: 1 });

  expect(await new Mutex(session, "jobs").tryLock()).toBeUndefined();
  await proxy.seen("/etcdserverpb.KV/Range");
  // All requests that this check for late keys causes are answered before this one is.
  for (let i = 0; i < 3; i++) await new Mutex(session, "other").withLock(() => i);

  const { kvs } = (await etcd.member.gateway("/v3/kv/range", { key: encode(nested.key) })) as {
    kvs?: unknown[];
  };
  expect(kvs).toHaveLength(1);
  expect([nested.held, nested.signal.reason]).toEqual([true, undefined]);
});
