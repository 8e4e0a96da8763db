// `connect({ etcd3: client })`: the hosts, connections, TLS, user and password are those of a client that the program has.
import { Etcd3 } from "etcd3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, Mutex, Semaphore, Session, whileHeld } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";
import { startWithUsers, WORKER } from "../../support/fixtures/users.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

const REFUSING = "127.0.0.1:1";
const nothing = () => Promise.resolve();

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd?.stop());

/** Of one host, and closed at the end of the block. */
function clientOf(hosts: string | string[], options: object = {}): Etcd3 & Disposable {
  const client = new Etcd3({ hosts, ...options });
  return Object.assign(client, { [Symbol.dispose]: () => client.close() });
}

describe("a cluster over a client of etcd3", () => {
  test("locks, hands over in order, guards the client's own writes, and leaves no key", async () => {
    using client = clientOf(etcd.member.endpoint);
    await using cluster = connect({ etcd3: client, prefix: "own/" });
    const lock = await new Mutex(cluster, "jobs").lock();
    const next = new Mutex(await Session.open(cluster), "jobs").lock();
    const commit = await client
      .if(...whileHeld(lock))
      .then(client.put("own/written").value("by the holder"))
      .commit();
    await lock.release();
    const taken = await next;
    await taken.release();
    await new Semaphore(cluster, "few", 2).withPermit(nothing);

    expect(cluster.hosts).toEqual([etcd.member.endpoint]);
    expect(commit.succeeded).toBe(true);
    expect(taken.fence).toBeGreaterThan(lock.fence);
    expect(await placesOf(etcd.member, "own/jobs")).toEqual([]);
  });

  test("makes no connection of its own, and leaves the client open when it is closed", async () => {
    await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
    using client = clientOf(proxy.endpoint);
    await client.put("before").value("1");
    const { accepted } = proxy;
    const cluster = connect({ etcd3: client });
    await new Mutex(cluster, "shared").withLock(nothing);
    await cluster.close();

    expect({ before: accepted, after: proxy.accepted }).toEqual({ before: 1, after: 1 });
    expect(await client.get("before").string()).toBe("1");
  });

  test("goes on at the next host where one does not answer, whatever the client's own policies are", async () => {
    let retries = 0;
    const never = {
      ...{ _altReturn: undefined as never, onSuccess: undefined as never, onFailure: undefined as never },
      execute: () => Promise.reject(new Error(`policy ${++retries}`)),
    };
    const faultHandling = { global: never, host: () => never };
    using client = clientOf([REFUSING, etcd.member.endpoint], { faultHandling });
    await using cluster = connect({ etcd3: client });
    await Promise.all(Array.from({ length: 4 }, (_, n) => new Mutex(cluster, `next/${n}`).withLock(nothing)));

    expect(cluster.hosts).toEqual([`http://${REFUSING}`, etcd.member.endpoint]);
    expect(retries).toBe(0);
  });

  test("keeps its session when the client's connection is dead, and locks on one that has its settings", async () => {
    await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
    using client = clientOf(proxy.endpoint);
    await using cluster = connect({ etcd3: client, requestTimeoutMs: 300, session: { ttlSeconds: 10 } });
    const session = await cluster.session();
    const lock = await new Mutex(cluster, "broken").lock();
    for (const connection of proxy.connections) connection.mode("blackhole");
    await lock.release();
    await new Mutex(cluster, "broken").withLock(nothing);

    expect(await cluster.session()).toBe(session);
    await cluster.close();
    await expect.poll(() => proxy.connections.length).toBe(1);
  });

  test("uses its TLS, and names its hosts by it", async () => {
    const authority = makeAuthority("the authority");
    const files = await writeServerFiles(authority, authority.issue("etcd"));
    const secure = await startEtcd({ clientTls: { ...files, clientCertAuth: true } });
    try {
      const { certificate, key } = authority.issue("a client");
      const credentials = {
        rootCertificate: Buffer.from(authority.certificate),
        ...{ privateKey: Buffer.from(key), certChain: Buffer.from(certificate) },
      };
      using client = clientOf(`localhost:${secure.member.clientPort}`, { credentials });
      await using cluster = connect({ etcd3: client });
      await new Mutex(cluster, "tls").withLock(nothing);

      expect(cluster.hosts).toEqual([`https://localhost:${secure.member.clientPort}`]);
    } finally {
      await secure.stop();
      await files.remove();
    }
  }, 60_000);

  test("logs in as its user, and again when etcd has dropped the tokens", async () => {
    const server = await startWithUsers();
    try {
      using client = clientOf([...server.endpoints], { auth: WORKER });
      await using cluster = connect({ etcd3: client });
      await new Mutex(cluster, "jobs/a").withLock(nothing);
      await server.dropTokens();
      await new Mutex(cluster, "jobs/b").withLock(nothing);

      await expect(new Mutex(cluster, "other").lock()).rejects.toMatchObject({
        ...{ code: "ETCD_REFUSED", reason: "permission" },
      });
    } finally {
      await server.stop();
    }
  }, 60_000);

  test("says of a client that is closed that it is closed", async () => {
    const client = clientOf(etcd.member.endpoint);
    await using cluster = connect({ etcd3: client });
    client.close();

    await expect(new Mutex(cluster, "closed").lock({ timeoutMs: 300 })).rejects.toMatchObject({
      ...{
        code: "ETCD_UNAVAILABLE",
        message: expect.stringContaining("the client given as etcd3 is closed") as string,
      },
    });
  });
});
