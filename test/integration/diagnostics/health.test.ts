import { afterAll, beforeAll, describe, test } from "vitest";
import { connect, lead, Mutex, type ClusterHealth } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

const TTL_SECONDS = 3;
let etcd: EtcdCluster;

beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd?.stop());

describe.concurrent("cluster.health()", { timeout: 60_000 }, () => {
  test("follows a session through a black hole: live, jeopardy, lost, and live again", async ({ expect }) => {
    await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint, session: { ttlSeconds: TTL_SECONDS } });
    const seen: string[] = [];
    const look = () => {
      const { ok, state } = cluster.health();
      const now = `${state} ${ok}`;
      if (seen.at(-1) !== now) seen.push(now);
      return now;
    };
    expect(look()).toBe("none true");
    await cluster.session();
    expect(look()).toBe("live true");
    expect(cluster.health().remainingMs).toBeGreaterThan(0);

    await proxy.mode("blackhole");
    await expect.poll(look, { timeout: 30_000, interval: 20 }).toBe("lost false");
    expect(seen.slice(2)).toContain("jeopardy false");
    expect(cluster.health()).toMatchObject({
      remainingMs: 0,
      members: [{ host: proxy.endpoint, ok: false }],
    });

    await proxy.mode("pass");
    await cluster.session({ timeoutMs: 30_000 });
    expect(look()).toBe("live true");
    await cluster.close();
    expect(look()).toBe("closed false");
  });

  test("says which host is in use, and why another one is not", async ({ expect }) => {
    await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
    await using other = await startTcpProxy({ port: etcd.member.clientPort });
    await using cluster = connect({ hosts: [proxy.endpoint, other.endpoint] });
    const mutex = new Mutex(cluster, "in-use");
    await mutex.withLock(() => {});
    const used = cluster.health().members.find(({ inUse }) => inUse)!;
    expect(cluster.health().ok).toBe(true);

    const broken = used.host === proxy.endpoint ? proxy : other;
    await broken.mode("refuse");
    await mutex.withLock(() => {});

    const { ok, members } = cluster.health();
    expect(ok).toBe(true);
    const left = members.find(({ host }) => host === used.host)!;
    expect(left).toMatchObject({ state: "failed", inUse: false, ok: false });
    expect(members.find(({ host }) => host !== used.host)).toMatchObject({ state: "in_use", ok: true });
    expect(left.failedMs).toBeGreaterThanOrEqual(0);
    expect(cluster.health().members.find(({ host }) => host === used.host)?.failedMs).toBeGreaterThan(
      left.failedMs!,
    );
  });

  test("is live in a process that only leads", async ({ expect }) => {
    await using cluster = connect({ hosts: etcd.endpoints });
    const before = cluster.health().state;
    const stop = new AbortController();
    let during: ClusterHealth | undefined;
    const work = (): void => {
      during = cluster.health();
      stop.abort();
    };
    await lead(cluster, "only-leads", work, { signal: stop.signal });

    expect(during).toMatchObject({ ok: true, state: "live" });
    expect(during?.remainingMs).toBeGreaterThan(0);
    expect([before, cluster.health().state]).toEqual(["none", "none"]);
  });
});
