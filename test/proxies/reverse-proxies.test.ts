// The library behind reverse proxies that speak HTTP/2 on both sides.
import { afterAll, beforeAll, describe, type ExpectStatic, test } from "vitest";
import { systemClock } from "../../src/base/util/clock.js";
import { GrpcMember } from "../../src/etcd/http2/member.js";
import { connect, LockTimeoutError, Mutex, Session } from "../../src/index.js";
import { checkConnect } from "../../src/base/options/connect.js";
import { placesOf } from "../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../support/etcd/etcd.js";
import { makeAuthority } from "../support/fixtures/certificates.js";
import { startTcpProxy } from "../support/proxies/tcp-proxy.js";
import { startApache } from "../support/servers/apache.js";
import { startCaddy } from "../support/servers/caddy.js";
import { startEnvoy } from "../support/servers/envoy.js";
import { startH2o } from "../support/servers/h2o.js";
import { startHaproxy } from "../support/servers/haproxy.js";
import { startNghttpx } from "../support/servers/nghttpx.js";
import { startNginx } from "../support/servers/nginx.js";
import { startStunnel } from "../support/servers/stunnel.js";
import type { ProxySetting, ReverseProxy } from "../support/servers/reverse-proxy.js";

const TTL_SECONDS = 2;
const authority = makeAuthority("our authority");
const pair = authority.issue("proxy");
const credentials = { rootCertificate: authority.certificate };
const CALL = { timeoutMs: 5000 };

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

const options = ({ endpoint }: Pick<ReverseProxy, "endpoint">) => ({
  hosts: endpoint,
  ...(endpoint.startsWith("https:") && { credentials }),
});

/** One connection without retries: each failure of a call shows. */
function memberBehind(proxy: Pick<ReverseProxy, "endpoint">) {
  const checked = checkConnect(options(proxy));
  const setting = { token: () => undefined, credentials: checked.credentials, pingMs: 6000 };
  const member = new GrpcMember(proxy.endpoint, setting, { options: checked, clock: systemClock });
  return Object.assign(member, { [Symbol.dispose]: () => member.retire() });
}

const waiting = (expect: ExpectStatic, name: string, places: number) =>
  expect.poll(() => placesOf(etcd.member, name)).toHaveLength(places);

const proxies = [
  { name: "nginx", start: startNginx, drained: /worker process \d+ exited with code 0/ },
  { name: "HAProxy", start: startHaproxy, drained: /Former worker \(\d+\) exited/ },
  { name: "Envoy", start: startEnvoy, hasTable: true },
  { name: "nghttpx", start: startNghttpx, hasTable: true },
  { name: "Apache", start: startApache },
  { name: "Caddy", start: startCaddy },
];
/** The programs are fetched before the tests: that may take longer than one of them. */
const isThere = (name: string) => process.env["LEASEHOLD_PROXIES"]?.includes(name) === true;
const found = proxies.filter(({ name }) => isThere(name));

// They mostly wait, each for a proxy of its own.
const SLOW = { concurrent: true, timeout: 60_000 };
describe.for(found)("behind $name", SLOW, ({ name, start, drained, hasTable = false }) => {
  describe.for([
    { over: "TCP", tls: false },
    { over: "TLS", tls: true },
  ])("over $over", ({ over, tls }) => {
    const behind = (setting: Omit<ProxySetting, "target"> = {}) =>
      start({ target: etcd.member.clientPort, pair: tls ? pair : undefined, ...setting });
    const key = (what: string) => `${name}-${over}-${what}`;

    test("a lock is held for 3 TTLs, and handed over with a higher fence", async ({ expect }) => {
      await using proxy = await behind();
      await using a = connect(options(proxy));
      await using b = connect(options(proxy));
      const [first, second] = await Promise.all(
        [a, b].map((it) => Session.open(it, { ttlSeconds: TTL_SECONDS })),
      );
      const lock = await new Mutex(first!, key("long")).lock();

      const late = new Mutex(second!, key("long")).lock({ timeoutMs: 3.5 * TTL_SECONDS * 1000 });
      await expect(late).rejects.toThrow(LockTimeoutError);
      expect(lock.held).toBe(true);

      const next = new Mutex(second!, key("long")).lock();
      await waiting(expect, key("long"), 2);
      await lock.release();
      expect((await next).fence).toBeGreaterThan(lock.fence);
      await (await next).release();
    });

    test("idle time-outs shorter than the pause between two renewals lose nothing", async ({ expect }) => {
      await using proxy = await behind({ idleS: 2 });
      await using a = connect(options(proxy));
      await using b = connect(options(proxy));
      const lock = await new Mutex(a, key("idle")).lock();

      const late = new Mutex(b, key("idle")).lock({ timeoutMs: 7000 });
      await expect(late).rejects.toThrow(LockTimeoutError);
      expect(lock.held).toBe(true);

      const next = new Mutex(b, key("idle")).lock();
      await waiting(expect, key("idle"), 2);
      await lock.release();
      await (await next).release();
    });

    test("a connection that the proxy closes when it is idle costs no call", async ({ expect }) => {
      await using proxy = await behind({ idleS: 1 });
      const { protocol, port } = new URL(proxy.endpoint);
      const tap = await startTcpProxy({ port: Number(port) });
      using member = memberBehind({ endpoint: `${protocol}//127.0.0.1:${tap.port}` });
      for (let opened = 1; opened <= 2; opened++) {
        await member.range({ key: "a" }, CALL);
        expect(tap.accepted).toBe(opened);
        await expect.poll(() => tap.connections).toHaveLength(0);
      }
      await tap.stop();
    });

    test("200 calls at once wait for the 8 streams that the proxy allows", async ({ expect }) => {
      await using proxy = await behind({ streams: 8 });
      using member = memberBehind(proxy);
      const calls = Array.from({ length: 200 }, () => member.range({ key: "a" }, CALL));
      await expect(Promise.all(calls)).resolves.toHaveLength(200);
    });

    test.runIf(hasTable).for([0, 100])(
      "a table of %i bytes for headers costs no call",
      async (table, { expect }) => {
        await using proxy = await behind({ table });
        const { protocol, port } = new URL(proxy.endpoint);
        const tap = await startTcpProxy({ port: Number(port) });
        using member = memberBehind({ endpoint: `${protocol}//127.0.0.1:${tap.port}` });
        for (let n = 0; n < 20; n++) await member.range({ key: "a" }, CALL);
        expect(tap.accepted).toBe(1);
        await tap.stop();
      },
    );

    test("200 locks and 200 waiters need few streams", async ({ expect }) => {
      await using proxy = await behind({ streams: 3 });
      await using cluster = connect(options(proxy));
      const names = Array.from({ length: 200 }, (_, n) => key(`many-${n}`));
      const locks = await Promise.all(names.map((each) => new Mutex(cluster, each).lock()));
      const turns = names.map((each) => new Mutex(cluster, each).withLock(() => each));
      const crowd = names.map((each) => new Mutex(cluster, key("crowd")).withLock(() => each));
      await Promise.all(crowd);
      await Promise.all(locks.map((lock) => lock.release()));
      await expect(Promise.all(turns)).resolves.toEqual(names);
    });

    if (drained === undefined) return;

    test("a reload ends neither locks nor waits, also when it cuts the streams", async ({ expect }) => {
      await using proxy = await behind({ drainS: 1 });
      await using a = connect(options(proxy));
      await using b = connect(options(proxy));
      const mutexes = [a, b, a, b].map((it) => new Mutex(it, key("reload")));
      const lock = await mutexes[0]!.lock();
      const fences: bigint[] = [lock.fence];
      const turns = mutexes.map((mutex) => mutex.withLock(({ fence }) => void fences.push(fence)));
      await waiting(expect, key("reload"), 5);

      await proxy.reload();
      const during = Array.from({ length: 20 }, (_, n) => new Mutex(a, key(`during-${n}`)).withLock(() => n));
      await expect(Promise.all(during)).resolves.toHaveLength(20);
      await expect.poll(() => proxy.log).toMatch(drained);
      expect(lock.held).toBe(true);
      await lock.release();
      await Promise.all(turns);

      expect(fences).toHaveLength(5);
      expect(fences).toEqual([...fences].sort((x, y) => (x < y ? -1 : 1)));
    });

    test("calls during a reload do not fail", async ({ expect }) => {
      await using proxy = await behind();
      using member = memberBehind(proxy);
      const calls = Array.from({ length: 8 }, () => 0);
      let over = false;
      const loop = async (n: number) => {
        for (; !over; calls[n]!++) await member.range({ key: "a" }, CALL);
      };
      const loops = Promise.all(calls.map((_, n) => loop(n)));

      for (let reloads = 0; reloads < 3; reloads++) {
        const before = [...calls];
        await proxy.reload();
        await expect.poll(() => calls.every((count, n) => count > before[n]! + 1)).toBe(true);
      }
      over = true;

      await loops;
    });
  });
});

describe.concurrent("behind nginx, which ends each connection after 20 requests,", () => {
  test("no call fails, one after the other or at once", async ({ expect }) => {
    await using proxy = await startNginx({ target: etcd.member.clientPort, requests: 20 });
    using member = memberBehind(proxy);
    for (let n = 0; n < 100; n++) await member.range({ key: "a" }, CALL);
    const loop = async () => {
      for (let n = 0; n < 50; n++) await member.range({ key: "a" }, CALL);
    };
    await Promise.all(Array.from({ length: 8 }, loop));
    const burst = Array.from({ length: 200 }, () => member.range({ key: "a" }, CALL));
    await expect(Promise.all(burst)).resolves.toHaveLength(200);
  });

  test("locks are held and handed over", async ({ expect }) => {
    await using proxy = await startNginx({ target: etcd.member.clientPort, requests: 20 });
    await using cluster = connect(options(proxy));
    const lock = await new Mutex(cluster, "replaced").lock();
    const turns = Array.from({ length: 50 }, (_, n) => new Mutex(cluster, "replaced").withLock(() => n));
    const others = Array.from({ length: 100 }, (_, n) =>
      new Mutex(cluster, `replaced-${n}`).withLock(() => n),
    );
    await Promise.all(others);
    expect(lock.held).toBe(true);
    await lock.release();
    await expect(Promise.all(turns)).resolves.toHaveLength(50);
  });
});

describe.concurrent("a proxy that cannot serve is named by an error:", () => {
  if (isThere("stunnel"))
    test("stunnel as a server agrees on no protocol", async ({ expect }) => {
      await using proxy = await startStunnel({ target: etcd.member.clientPort, pair });
      await using cluster = connect(options(proxy));
      const lock = new Mutex(cluster, "stunnel").lock();
      await expect(lock).rejects.toMatchObject({ code: "ETCD_REFUSED" });
      await expect(lock).rejects.toThrow(/chose no ALPN protocol/);
    });

  if (isThere("h2o"))
    test("h2o 2.2 keeps a stream for itself until it ends", async ({ expect }) => {
      await using proxy = await startH2o({ target: etcd.member.clientPort });
      await using cluster = connect(options(proxy));
      const lock = new Mutex(cluster, "h2o").lock({ timeoutMs: 3000 });
      await expect(lock).rejects.toMatchObject({ code: "ETCD_UNAVAILABLE" });
    });
});
