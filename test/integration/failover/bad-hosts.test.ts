// Hosts that cannot serve, in a list with members that can: what only one host rejects is retried on another.
import { createServer } from "node:http";
import { once } from "node:events";
import type net from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, Election, EtcdRefusedError, lead, Mutex, Semaphore, Session } from "../../../src/index.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { startRawServer } from "../../support/fakes/raw-server.js";
import { takesPlace } from "../../support/clients/request-shape.js";
import { startTlsFront } from "../../support/proxies/tls-front.js";

const TXN = "/etcdserverpb.KV/Txn";
const PROPOSALS = [TXN, "/etcdserverpb.Lease/LeaseGrant", "/etcdserverpb.Lease/LeaseRevoke"];
const TTL_SECONDS = 5;
/** One of three hosts is chosen at random first: this many clusters cover each case. */
const CLUSTERS = 12;

let etcd: EtcdCluster;
const stops: (() => Promise<unknown>)[] = [];
const bad: Record<string, string> = {};

beforeAll(async () => {
  etcd = await startEtcd({ args: ["--strict-reconfig-check=false"] });
  const web = createServer((_, response) => response.writeHead(200).end("<html></html>"));
  web.listen(0, "127.0.0.1");
  await once(web, "listening");
  stops.push(() => new Promise((resolve) => web.close(resolve)));
  const missing = await startRawServer(() => ({
    headers: { ":status": 404 },
    how: "no trailers",
    status: 0,
  }));
  const unimplemented = await startRawServer(() => ({ status: 12, details: "unknown service" }));
  stops.push(
    () => missing.stop(),
    () => unimplemented.stop(),
  );
  bad["a web server of HTTP/1.1"] = `http://127.0.0.1:${(web.address() as net.AddressInfo).port}`;
  bad["a web server of HTTP/2"] = missing.endpoint;
  bad["a gRPC server of another service"] = unimplemented.endpoint;
  bad["a learner"] = (await etcd.addLearner()).endpoint;
  // etcd's answer where a member has applied much less than is committed.
  const overloaded = await startGrpcProxy({ port: etcd.member.clientPort });
  const status = { code: 8, details: "etcdserver: too many requests" };
  for (const path of PROPOSALS) overloaded.rule({ path, act: "refuse", status });
  stops.push(() => overloaded.stop());
  bad["an overloaded member"] = overloaded.endpoint;
}, 60_000);
afterAll(async () => {
  await etcd?.stop();
  await Promise.all(stops.map((stop) => stop()));
});

const KINDS = [
  "a web server of HTTP/1.1",
  "a web server of HTTP/2",
  "a gRPC server of another service",
  "a learner",
];

test("an overloaded member in the list of hosts delays no call until it has recovered", async () => {
  const hosts = [bad["an overloaded member"]!, etcd.member.endpoint];
  const clusters = Array.from({ length: CLUSTERS }, () =>
    connect({ hosts, session: { ttlSeconds: TTL_SECONDS } }),
  );

  for (const cluster of clusters) {
    const lock = await new Mutex(cluster, "bad-hosts/overloaded").lock();
    await lock.release();
  }
  await Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 })));
});

describe.each(KINDS)("%s in the list of hosts", (kind) => {
  const hosts = () => [bad[kind]!, etcd.member.endpoint];
  const session = { ttlSeconds: TTL_SECONDS };

  test("rejects no call, wherever a process begins", async () => {
    const clusters = Array.from({ length: CLUSTERS }, () => connect({ hosts: hosts(), session }));

    for (const cluster of clusters) {
      const lock = await new Mutex(cluster, "bad-hosts/each").lock();
      await lock.release();
      const permit = await new Semaphore(cluster, "bad-hosts/permits", 2).tryAcquire();
      expect(permit?.held).toBe(true);
      await permit?.release();
      expect(await new Election(cluster, "bad-hosts/nobody").leader()).toBeUndefined();
      for await (const leader of new Election(cluster, "bad-hosts/nobody").observe()) {
        expect(leader).toBeUndefined();
        break;
      }
    }
    await Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 })));
  });

  test("does not break a healthy session after one slow call", async () => {
    const proxy = await startGrpcProxy({ port: etcd.member.clientPort });
    await using cluster = connect({ hosts: [bad[kind]!, proxy.endpoint], session, requestTimeoutMs: 500 });
    const states: string[] = [];
    (await cluster.session()).addEventListener("statechange", ({ state }) => states.push(state));
    const slow = proxy.rule({ path: TXN, act: "drop-answer", when: takesPlace, times: 1 });

    const first = await new Mutex(cluster, "bad-hosts/slow").lock();
    expect(slow.hits).toBe(1);
    const waiting = new Mutex(cluster, "bad-hosts/slow").lock();
    for (let n = 0; n < 5; n++) await (await new Mutex(cluster, `bad-hosts/slow-${n}`).lock()).release();
    await first.release();
    await (await waiting).release();

    expect(states).toEqual([]);
    await cluster.close();
    await proxy.stop();
  });

  test("does not keep a candidate from leading", async () => {
    await using cluster = connect({ hosts: hosts() });
    const stop = new AbortController();
    let terms = 0;

    await lead(cluster, "bad-hosts/leader", () => void (++terms, stop.abort()), {
      ttlSeconds: TTL_SECONDS,
      signal: stop.signal,
    });

    expect(terms).toBe(1);
  });

  test("rejects when there is no other, and says who it was", async () => {
    await using cluster = connect({ hosts: bad[kind]! });

    const error = await Session.open(cluster, { timeoutMs: 5000 }).catch((reason: unknown) => reason);

    expect((error as Error).message).toContain(bad[kind]);
    if (kind !== "a web server of HTTP/1.1") expect(error).toBeInstanceOf(EtcdRefusedError);
  });
});

describe("certificates", () => {
  const authority = makeAuthority("ours");
  const next = makeAuthority("ours, from today");
  const stranger = makeAuthority("somebody else's");

  test("that one member lost do not reject a call", async () => {
    const [good, wrong] = await Promise.all([secure(authority), secure(stranger)]);
    const credentials = { rootCertificate: authority.certificate };
    const session = { ttlSeconds: TTL_SECONDS };
    const clusters = Array.from({ length: CLUSTERS }, () =>
      connect({ hosts: [wrong.member.endpoint, good.member.endpoint], credentials, session }),
    );

    for (const cluster of clusters) await (await new Mutex(cluster, "certificates").lock()).release();

    await Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 })));
    await Promise.all([good.stop(), wrong.stop()]);
  });

  test("exchanged member by member reject no lock, whoever trusts the old authority only, or both", async () => {
    const members = await startEtcd({ members: 3 });
    const fronts = await Promise.all(
      members.members.map(({ clientPort }) => startTlsFront(() => clientPort, authority.issue("etcd"))),
    );
    // From Node.js 26 on, TLS works only with host names.
    const hosts = fronts.map(({ port }) => `https://localhost:${port}`);
    const session = { ttlSeconds: TTL_SECONDS };
    const both = Buffer.concat([Buffer.from(authority.certificate), Buffer.from(next.certificate)]);
    const clusters = [authority.certificate, both].map((rootCertificate) =>
      connect({ hosts, credentials: { rootCertificate }, session }),
    );
    let rounds = 0;
    const round = async () => {
      for (const cluster of clusters) await (await new Mutex(cluster, "exchanged").lock()).release();
      rounds++;
    };
    await round();
    let exchanged = false;
    const locking = (async () => {
      while (!exchanged) await round();
    })();

    // In the end, a client that trusts only the old authority has one member left.
    for (const front of fronts.slice(0, 2)) {
      front.show(next.issue("etcd"));
      front.cut();
      const before = rounds;
      await Promise.race([locking, expect.poll(() => rounds).toBeGreaterThan(before + 2)]);
    }
    exchanged = true;
    await locking;

    await Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 })));
    await Promise.all([members.stop(), ...fronts.map((front) => front.stop())]);
  }, 90_000);

  async function secure(issuer: ReturnType<typeof makeAuthority>) {
    const files = await writeServerFiles(issuer, issuer.issue("etcd"));
    stops.push(() => files.remove());
    return startEtcd({ clientTls: { ...files, clientCertAuth: false } });
  }
});
