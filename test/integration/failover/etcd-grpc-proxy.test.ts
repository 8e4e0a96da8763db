import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, EtcdRefusedError, Mutex, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startEtcdGrpcProxy } from "../../support/etcd/etcd-grpc-proxy.js";

describe("behind `etcd grpc-proxy`, which answers renewals by itself,", () => {
  let etcd: EtcdCluster;
  let proxy: Awaited<ReturnType<typeof startEtcdGrpcProxy>>;

  beforeAll(async () => {
    etcd = await startEtcd();
    proxy = await startEtcdGrpcProxy(etcd);
  });
  afterAll(async () => {
    await proxy[Symbol.asyncDispose]();
    await etcd.stop();
  });

  const leases = async () => {
    const { leases: all = [] } = (await etcd.member.gateway("/v3/lease/leases", {})) as { leases?: object[] };
    return all.length;
  };

  test("no session opens and no lock is taken: the error says why, and no lease is left", async () => {
    await using cluster = connect({ hosts: proxy.endpoint });

    const attempts = [Session.open(cluster), new Mutex(cluster, "behind").lock(), cluster.session()];
    const reasons = await Promise.all(
      attempts.map((it) =>
        it.then(
          () => undefined,
          (error: unknown) => error,
        ),
      ),
    );

    for (const reason of reasons) {
      expect(reason).toBeInstanceOf(EtcdRefusedError);
      expect(reason).toMatchObject({ host: proxy.endpoint });
      expect((reason as Error).message).toContain("connect to the members of etcd instead");
    }
    expect(await leases()).toBe(0);
  });

  test("no session is adopted", async () => {
    await using direct = connect({ hosts: etcd.member.endpoint });
    await using cluster = connect({ hosts: proxy.endpoint });
    const leaseId = await (await Session.open(direct)).orphan();

    await expect(Session.adopt(cluster, leaseId, { timeoutMs: 1000 })).rejects.toThrow("etcd grpc-proxy");
  });
});
