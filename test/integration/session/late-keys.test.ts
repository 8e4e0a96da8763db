// A request that arrives after the session that sent it has ended.
import { expect, test } from "vitest";
import { connect, Mutex, Session } from "../../../src/index.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { takesPlace } from "../../support/clients/request-shape.js";
import { placesOf } from "../../support/clients/server-view.js";

const TXN = "/etcdserverpb.KV/Txn";
test("a put that arrives when its session was orphaned and adopted is deleted by the adopter", async () => {
  await using etcd = await startEtcd();
  await using proxy = await startGrpcProxy({ port: etcd.member.clientPort });
  await using first = connect({ hosts: proxy.endpoint, requestTimeoutMs: 300 });
  await using second = connect({ hosts: etcd.endpoints });
  const orphaned = await Session.open(first, { ttlSeconds: 10 });
  const late = proxy.rule({ path: TXN, act: "hold", when: takesPlace, times: 1 });
  await new Mutex(orphaned, "jobs").withLock(() => undefined);
  const adopted = await Session.adopt(second, await orphaned.orphan());

  late.release();
  await late.answered();
  expect(await placesOf(etcd.member, "jobs")).toHaveLength(1);

  await expect.poll(() => placesOf(etcd.member, "jobs"), { timeout: 20_000 }).toEqual([]);
  expect(adopted.state).toBe("live");
});
