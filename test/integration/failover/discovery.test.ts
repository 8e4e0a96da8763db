import dns from "node:dns/promises";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { connect, fromEnv, Mutex } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { placesOf } from "../../support/clients/server-view.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { DnsServer } from "../../support/servers/dns.js";

const NAME = "_etcd-client._tcp.etcd.test";

let etcd: EtcdCluster;
let server: DnsServer;
const before = dns.getServers();
const recordsOf = (...members: EtcdCluster["members"]) =>
  members.map(({ clientPort }) => ({ name: "localhost", port: clientPort }));

beforeAll(async () => void (etcd = await startEtcd({ members: 3 })), 60_000);
afterAll(() => etcd?.stop());
beforeEach(async () => {
  server = await new DnsServer().listen();
  dns.setServers([server.address]);
  server.records.set(NAME, recordsOf(...etcd.members));
});
afterEach(() => {
  dns.setServers(before);
  server.close();
});

describe("members by SRV records", () => {
  test("are found before the first lock, and named by the cluster from then on", async () => {
    await using cluster = connect({ hosts: "srv:etcd.test" });
    expect(cluster.hosts).toEqual([`srv:${NAME}`]);

    await new Mutex(cluster, "a").withLock(() => undefined);

    expect([...cluster.hosts].sort()).toEqual(
      etcd.members.map(({ clientPort }) => `http://localhost:${clientPort}`).sort(),
    );
    expect(server.asked).toEqual([NAME]);
  });

  test("are found by the variables of etcdctl", async () => {
    const name = "_etcd-client-blue._tcp.etcd.test";
    server.records.set(name, recordsOf(etcd.member));
    const env = { ETCDCTL_DISCOVERY_SRV: "etcd.test", ETCDCTL_DISCOVERY_SRV_NAME: "blue" };
    await using cluster = connect(fromEnv(env));

    await new Mutex(cluster, "a").withLock(() => undefined);

    expect(cluster.hosts).toEqual([`http://localhost:${etcd.member.clientPort}`]);
  });

  test("that are not there are the reason of the first error", async () => {
    server.records.delete(NAME);
    await using cluster = connect({ hosts: "srv:etcd.test" });

    const lock = new Mutex(cluster, "a").lock();

    await expect(lock).rejects.toMatchObject({ code: "ETCD_UNAVAILABLE" });
    await expect(lock).rejects.toThrow(`srv:${NAME}: querySrv ENOTFOUND ${NAME}`);
  });

  test("that appear later are found by a call that waits", async () => {
    server.records.delete(NAME);
    await using cluster = connect({ hosts: "srv:etcd.test" });
    const lock = new Mutex(cluster, "a").lock({ timeoutMs: 60_000 });
    await expect.poll(() => server.asked.length, { timeout: 30_000 }).toBeGreaterThan(1);

    server.records.set(NAME, recordsOf(etcd.member));

    await (await lock).release();
  });

  test("are asked for again after a failure, and a held lock goes on over the new ones", async () => {
    const [first, second] = etcd.members as [EtcdCluster["member"], EtcdCluster["member"]];
    server.records.set(NAME, recordsOf(first));
    await using cluster = connect({ hosts: "srv:etcd.test" });
    const lock = await new Mutex(cluster, "b").lock();
    server.records.set(NAME, recordsOf(second));
    onTestFinished(() => first.restart());

    await first.kill();

    await expect
      .poll(() => cluster.hosts, { timeout: 30_000 })
      .toEqual([`http://localhost:${second.clientPort}`]);
    await new Mutex(cluster, "c").withLock(() => undefined);
    expect(lock.held).toBe(true);
    await lock.release();
  });

  test("that name members of another etcd give it no lock: an entry of ours is in the first one", async () => {
    await using other = await startEtcd();
    const gate = await startTcpProxy({ port: etcd.member.clientPort });
    server.records.set(NAME, [{ name: "localhost", port: gate.port }]);
    await using cluster = connect({ hosts: "srv:etcd.test", session: { ttlSeconds: 60 } });
    const lock = await new Mutex(cluster, "g").lock();
    server.records.set(NAME, recordsOf(other.member));

    await gate.mode("refuse");
    const late = new Mutex(cluster, "g").lock({ timeoutMs: 2000 });

    await expect(late).rejects.toMatchObject({
      message: expect.stringMatching(
        /belongs to the etcd cluster .*, but http:\/\/localhost:\d+ to/,
      ) as string,
    });
    expect(await placesOf(other.member, "g")).toEqual([]);
    expect(lock.signal.reason).toBeUndefined();
    expect(lock.held).toBe(true);
    server.records.set(NAME, [{ name: "localhost", port: gate.port }]);
    await gate.mode("pass");
    await lock.release();
    await gate.stop();
  });
});

describe("followMembers", () => {
  const urls = () => etcd.members.map(({ endpoint }) => endpoint).sort();

  test("adds the other members after the first answer, and a lock outlives the only host that was given", async () => {
    const [given] = etcd.members as [EtcdCluster["member"]];
    await using cluster = connect({ hosts: given.endpoint, transport: "http2", followMembers: true });
    const lock = await new Mutex(cluster, "d").lock();
    await expect.poll(() => [...cluster.hosts].sort()).toEqual(urls());
    onTestFinished(() => given.restart());

    await given.kill();

    await new Mutex(cluster, "e").withLock(() => undefined);
    expect(lock.held).toBe(true);
    await lock.release();
  });

  test("leaves the list alone by default", async () => {
    await using cluster = connect({ hosts: etcd.member.endpoint });
    await new Mutex(cluster, "f").withLock(() => undefined);
    expect(cluster.hosts).toEqual([etcd.member.endpoint]);
    expect(cluster.hosts).toSatisfy(Object.isFrozen);
  });
});
