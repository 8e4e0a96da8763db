import { once } from "node:events";
import { readFile } from "node:fs/promises";
import net from "node:net";
import { noop } from "cockatiel";
import { Etcd3, type IOptions } from "etcd3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

describe("the TCP proxy", () => {
  let etcd: EtcdCluster;

  beforeAll(async () => void (etcd = await startEtcd()));
  afterAll(() => etcd.stop());

  const target = () => ({ port: etcd.member.clientPort });
  const connectTo = (endpoint: string, timeoutMs = 400) => {
    const options: IOptions = {
      hosts: endpoint,
      defaultCallOptions: () => ({ deadline: Date.now() + timeoutMs }),
      // etcd3's own fault handling and shared connections would hide the effects of a proxy.
      faultHandling: { global: noop, host: () => noop },
      grpcOptions: { "grpc.use_local_subchannel_pool": 1 },
    };
    return new Etcd3(options);
  };

  test("passes calls on and counts them", async () => {
    await using proxy = await startTcpProxy(target);
    const client = connectTo(proxy.endpoint);

    await client.put("pass").value("1");

    expect(await client.get("pass")).toBe("1");
    expect(proxy.accepted).toBe(1);
    expect(proxy.connections[0]?.bytes.answers).toBeGreaterThan(0);
    client.close();
  });

  test("in a pause keeps the requests and delivers them afterwards", async () => {
    await using proxy = await startTcpProxy(target);
    const client = connectTo(proxy.endpoint, 10_000);
    const direct = connectTo(etcd.member.endpoint);
    await client.get("pause");
    const received = () => proxy.connections[0]?.bytes.requests;
    const before = received();

    await proxy.mode("pause");
    const sent = client.put("pause").value("1").exec();
    await expect.poll(received).not.toBe(before);
    expect(await direct.get("pause")).toBeNull();
    await proxy.mode("pass");
    await sent;

    expect(await direct.get("pause")).toBe("1");
    client.close();
    direct.close();
  });

  test("as a black hole swallows requests, keeps the connection open, and resets it afterwards", async () => {
    await using proxy = await startTcpProxy(target);
    const client = connectTo(proxy.endpoint);
    const direct = connectTo(etcd.member.endpoint);
    await client.get("hole");

    await proxy.mode("blackhole");
    await expect(client.put("hole").value("1").exec()).rejects.toThrow();
    expect(proxy.connections).toHaveLength(1);
    await proxy.mode("pass");
    await client.put("hole2").value("1");

    expect(await direct.get("hole")).toBeNull();
    expect(proxy.accepted).toBe(2);
    client.close();
    direct.close();
  });

  test("that drops the answers lets etcd apply a request whose caller never hears of it", async () => {
    await using proxy = await startTcpProxy(target);
    const client = connectTo(proxy.endpoint);
    const direct = connectTo(etcd.member.endpoint);
    await client.get("answers");

    proxy.drop("answers");
    await expect(client.put("answers").value("1").exec()).rejects.toThrow();

    expect(await direct.get("answers")).toBe("1");
    client.close();
    direct.close();
  });

  test("can refuse and reset connections, and welcome them again on the same port", async () => {
    await using proxy = await startTcpProxy(target);
    const client = connectTo(proxy.endpoint, 5_000);
    const { port } = proxy;
    await client.get("refuse");

    await proxy.mode("refuse");
    await expect(client.get("refuse").exec()).rejects.toThrow();
    expect(proxy.connections).toHaveLength(0);
    await proxy.mode("pass");

    expect(proxy.port).toBe(port);
    await expect.poll(() => client.get("refuse").catch(() => "broken"), { timeout: 5_000 }).toBeNull();
    client.close();
  });

  test("keeps its port from everybody else while it refuses", async () => {
    await using proxy = await startTcpProxy(target);

    await proxy.mode("refuse");
    const [refused] = (await once(net.connect(proxy.port, "127.0.0.1"), "error")) as [NodeJS.ErrnoException];

    expect(refused.code).toBe("ECONNREFUSED");
    // The system never assigns a port that a socket is bound to as a free port.
    const bound = `:${proxy.port.toString(16).toUpperCase()} `;
    if (process.platform === "linux") expect(await readFile("/proc/net/tcp", "utf8")).toContain(bound);
  });

  test("can delay each way", async () => {
    await using proxy = await startTcpProxy(target);
    const client = connectTo(proxy.endpoint, 10_000);
    await client.get("delay");

    proxy.delay(150);
    const start = performance.now();
    await client.get("delay");

    expect(performance.now() - start).toBeGreaterThanOrEqual(2 * 150 - 2);
    client.close();
  });

  test("spreads new connections over its targets in turn and tells which one each was given", async () => {
    await using other = await startTcpProxy(target);
    await using proxy = await startTcpProxy([target, () => ({ port: other.port })]);
    const clients = [connectTo(proxy.endpoint), connectTo(proxy.endpoint), connectTo(proxy.endpoint)];

    for (const client of clients) await client.get("spread");

    expect(proxy.connections.map((it) => it.backend)).toEqual([0, 1, 0]);
    expect(other.accepted).toBe(1);
    for (const client of clients) client.close();
  });

  test("can treat the connections of one client alone, known by its first bytes", async () => {
    await using proxy = await startTcpProxy(target);
    proxy.modeWhere("blackhole", (it) => it.head.includes("PRI * HTTP/2.0"));
    const client = connectTo(proxy.endpoint);

    await expect(client.get("where").exec()).rejects.toThrow();
    const health = await fetch(`${proxy.endpoint}/health`);

    expect(health.status).toBe(200);
    client.close();
  });
});
