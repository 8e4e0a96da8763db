import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, EtcdRefusedError, Mutex, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { placesOf } from "../../support/clients/server-view.js";
import { startEtcdGrpcProxy } from "../../support/etcd/etcd-grpc-proxy.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

/** What happens to the session and to the host at `endpoint`, from now on. */
function eventsAt(endpoint: string) {
  const seen: string[] = [];
  const waiting = new Set<() => void>();
  const note = (what: string) => {
    seen.push(what);
    for (const wake of waiting) wake();
  };
  const listeners = {
    "leasehold.session.renewed": (message: unknown) => {
      if ((message as { hosts: string[] }).hosts[0] === endpoint) note("renewed");
    },
    "leasehold.member": (message: unknown) => {
      const { host, state } = message as { host: string; state: string };
      if (host === endpoint) note(state);
    },
  };
  for (const [channel, listener] of Object.entries(listeners)) subscribe(channel, listener);
  const until = (what: string, also = what) =>
    new Promise<void>((resolve) => {
      const look = () => {
        if (!seen.includes(what) && !seen.includes(also)) return;
        waiting.delete(look);
        resolve();
      };
      waiting.add(look);
      look();
    });
  const stop = () => {
    for (const [channel, listener] of Object.entries(listeners)) unsubscribe(channel, listener);
  };
  return { seen, until, [Symbol.dispose]: stop };
}

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

  test("no session opens and no lock is taken: the error says why, and close() leaves no lease", async () => {
    const cluster = connect({ hosts: proxy.endpoint });

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
    await cluster.close();
    expect(await leases()).toBe(0);
  });

  test("a first lock that meets it before etcd itself is granted by etcd, on one lease that close() revokes", async () => {
    const servers = [{ port: Number(new URL(proxy.endpoint).port) }, { port: etcd.member.clientPort }];
    await using forwarder = await startTcpProxy(servers);
    const cluster = connect({ hosts: forwarder.endpoint });
    using events = eventsAt(forwarder.endpoint);

    const lock = await new Mutex(cluster, "behind/both").lock();

    expect(events.seen).toContain("refused");
    expect(await placesOf(etcd.member, "behind/both")).toMatchObject([
      { key: lock.key, revision: lock.fence },
    ]);
    expect(await leases()).toBe(1);
    await cluster.close({ drainMs: 0 });
    expect(await placesOf(etcd.member, "behind/both")).toEqual([]);
    expect(await leases()).toBe(0);
  });

  test("no session is adopted", async () => {
    await using direct = connect({ hosts: etcd.member.endpoint });
    await using cluster = connect({ hosts: proxy.endpoint });
    const leaseId = await (await Session.open(direct)).orphan();

    await expect(Session.adopt(cluster, leaseId, { timeoutMs: 1000 })).rejects.toThrow("etcd grpc-proxy");
  });

  describe.each(["http2", "etcd3"] as const)("with transport %s,", (transport) => {
    test("a session is not renewed once its address leads to the proxy, and is renewed when it leads to etcd again", async () => {
      const member = { port: etcd.member.clientPort };
      const detour = { port: Number(new URL(proxy.endpoint).port) };
      let target = member;
      await using forwarder = await startTcpProxy(() => target);
      const { endpoint } = forwarder;
      await using cluster = connect({ hosts: endpoint, transport, session: { ttlSeconds: 3 } });
      const lock = await new Mutex(cluster, `moved/${transport}`).lock();
      using events = eventsAt(endpoint);

      target = detour;
      forwarder.reset();
      await events.until("refused", "renewed");
      expect(events.seen.includes("renewed")).toBe(false);

      target = member;
      forwarder.reset();
      await events.until("renewed");
      expect(lock.held).toBe(true);
      await lock.release();
    });

    test("of several servers at one address, only etcd itself grants and renews", async () => {
      const servers = [{ port: etcd.member.clientPort }, { port: Number(new URL(proxy.endpoint).port) }];
      await using forwarder = await startTcpProxy(servers);
      const direct = () => forwarder.connections.filter(({ backend }) => backend === 0).length;
      const { endpoint } = forwarder;
      await using cluster = connect({ hosts: endpoint, transport, session: { ttlSeconds: 3 } });
      const lock = await new Mutex(cluster, `mixed/${transport}`).lock();

      for (let round = 0; round < 2; round++) {
        using events = eventsAt(endpoint);
        forwarder.reset();
        await events.until("renewed");
        expect(direct()).toBeGreaterThan(0);
      }

      expect(lock.held).toBe(true);
      await lock.release();
    });
  });
});
