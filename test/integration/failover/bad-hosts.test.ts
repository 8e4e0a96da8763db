// Hosts that cannot serve, in a list with members that can: what only one host rejects is retried on another.
import { createServer } from "node:http";
import { once } from "node:events";
import type net from "node:net";
import { afterAll, beforeAll, describe, test } from "vitest";
import { connect, Election, EtcdRefusedError, lead, Mutex, Semaphore, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { startRawServer } from "../../support/fakes/raw-server.js";
import { takesPlace } from "../../support/clients/request-shape.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";

const TXN = "/etcdserverpb.KV/Txn";
const RANGE = "/etcdserverpb.KV/Range";
const PROPOSALS = [TXN, "/etcdserverpb.Lease/LeaseGrant", "/etcdserverpb.Lease/LeaseRevoke"];
const TTL_SECONDS = 5;
/** Of a session that cannot be revoked. */
const SHORT_TTL_SECONDS = 2;
/** One of two hosts is chosen at random first: this many clusters cover each case. */
const CLUSTERS = 8;

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

describe.concurrent.each(KINDS)("%s in the list of hosts", (kind) => {
  const hosts = () => [bad[kind]!, etcd.member.endpoint];
  const session = { ttlSeconds: TTL_SECONDS };

  test("rejects no call, wherever a process begins", async ({ expect }) => {
    const clusters = Array.from({ length: CLUSTERS }, () => connect({ hosts: hosts(), session }));

    for (const cluster of clusters) {
      const lock = await new Mutex(cluster, `${kind}/each`).lock();
      await lock.release();
      const permit = await new Semaphore(cluster, `${kind}/permits`, 2).tryAcquire();
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

  test("does not break a healthy session after one slow call", async ({ expect }) => {
    const proxy = await startGrpcProxy({ port: etcd.member.clientPort });
    await using cluster = connect({ hosts: [bad[kind]!, proxy.endpoint], session, requestTimeoutMs: 500 });
    const states: string[] = [];
    (await cluster.session()).addEventListener("statechange", ({ state }) => states.push(state));
    const slow = proxy.rule({ path: TXN, act: "drop-answer", when: takesPlace, times: 1 });

    const first = await new Mutex(cluster, `${kind}/slow`).lock();
    expect(slow.hits).toBe(1);
    const waiting = new Mutex(cluster, `${kind}/slow`).lock();
    for (let n = 0; n < 5; n++) await (await new Mutex(cluster, `${kind}/slow-${n}`).lock()).release();
    await first.release();
    await (await waiting).release();

    // On a busy machine, a renewal may be late.
    expect(states.filter((state) => state !== "jeopardy" && state !== "live")).toEqual([]);
    await cluster.close();
    await proxy.stop();
  });

  test("does not keep a candidate from leading", async ({ expect }) => {
    await using cluster = connect({ hosts: hosts() });
    const stop = new AbortController();
    let terms = 0;

    await lead(cluster, `${kind}/leader`, () => void (++terms, stop.abort()), {
      ttlSeconds: TTL_SECONDS,
      signal: stop.signal,
    });

    expect(terms).toBe(1);
  });

  test("rejects when there is no other, and says who it was", async ({ expect }) => {
    await using cluster = connect({ hosts: bad[kind]! });

    // Only one of HTTP/2 refuses: the other one is no etcd that answers.
    const refuses = kind !== "a web server of HTTP/1.1";

    const opening = Session.open(cluster, { timeoutMs: refuses ? 10_000 : 1500 });
    const error = await opening.catch((reason: unknown) => reason);

    expect((error as Error).message).toContain(bad[kind]);
    if (refuses) expect(error).toBeInstanceOf(EtcdRefusedError);
  });
});

test.for(["grant", "join"] as const)(
  "a member of another cluster gets no key, and no lease that lasts, of a first lock whose own member dies before the %s",
  { timeout: 60_000 },
  async (step, { expect }) => {
    const clusters = await Promise.all([startEtcd(), startEtcd()]);
    const members = clusters.map(({ member }) => member);
    const proxies = await Promise.all(members.map(({ clientPort }) => startGrpcProxy({ port: clientPort })));
    const joins = proxies.map((proxy) => proxy.rule({ path: TXN, act: "drop-request", when: takesPlace }));
    const hosts = proxies.map(({ endpoint }) => endpoint);
    const session = { ttlSeconds: SHORT_TTL_SECONDS };
    const cluster = connect({ hosts, requestTimeoutMs: 500, session });
    // Long enough for an attempt at each host, also on a busy machine.
    const lock = () => new Mutex(cluster, "two/clusters").lock({ timeoutMs: 5000 });
    let locking: ReturnType<typeof lock> | undefined;
    // A read shows which cluster is the own one, and so does the grant.
    if (step === "grant") await new Election(cluster, "two/nobody").leader();
    else (locking = lock()).catch(() => undefined);
    const first =
      step === "grant"
        ? proxies.findIndex((proxy) => proxy.count(RANGE) > 0)
        : await Promise.race(joins.map((rule, n) => rule.hit().then(() => n)));

    await proxies[first]!.stop();

    await expect(locking ?? lock()).rejects.toMatchObject({
      ...{
        code: "ETCD_UNAVAILABLE",
        message: expect.stringMatching(/belongs to the etcd cluster/) as string,
      },
    });
    await cluster.close({ drainMs: 0 });
    for (const member of members) {
      // What could not be told to the member that has it ends with its TTL.
      await expect.poll(() => leasesOf(member), { timeout: 3 * SHORT_TTL_SECONDS * 1000 }).toEqual(new Set());
      expect(await placesOf(member, "two/clusters")).toEqual([]);
    }
    await Promise.all([...proxies.filter((_, n) => n !== first), ...clusters].map((each) => each.stop()));
  },
);
