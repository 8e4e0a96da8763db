import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type Cluster,
  connect,
  type Credentials,
  EtcdRefusedError,
  Mutex,
  Session,
} from "../../../src/index.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { exposure, linesOfPem } from "../../support/fixtures/exposure.js";
import { untilLeaseExpires } from "../../support/clients/lease-yardstick.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";

const TTL_SECONDS = 2;
/** Much longer than a rejection takes: a call that waits for this long hangs. */
const LIMIT = { timeoutMs: 20_000 };

const authority = makeAuthority("our authority");
const stranger = makeAuthority("another authority");
const expired = authority.issue("late", [], { validDays: -1 });
const files = writeServerFiles(authority, authority.issue("etcd"));
let etcd: EtcdCluster;

/** The certificate that a client presents. */
const shown = ({ certificate, key } = authority.issue("client")): Credentials => ({
  rootCertificate: authority.certificate,
  certChain: certificate,
  privateKey: key,
});
const connectWith = (credentials: Credentials) =>
  connect({ hosts: etcd.endpoints, credentials, session: { ttlSeconds: TTL_SECONDS } });

beforeAll(async () => {
  etcd = await startEtcd({ clientTls: { ...(await files), clientCertAuth: true } });
}, 60_000);
afterAll(async () => {
  await etcd?.stop();
  await (await files).remove();
});

describe("clients with certificates of their own", () => {
  test("share one queue: each waiter is served when the one before it releases", async () => {
    await using first = connectWith(shown());
    await using second = connectWith(shown());
    await using third = connectWith(shown());
    const lock = await new Mutex(first, "queue").lock();
    const order: string[] = [];
    const serve = (cluster: Cluster, who: string) =>
      new Mutex(cluster, "queue").withLock(({ fence }) => (order.push(who), fence), LIMIT);

    const waiting = serve(second, "second");
    await expect.poll(() => places("queue")).toBe(2);
    const last = serve(third, "third");
    await expect.poll(() => places("queue")).toBe(3);
    await lock.release();
    const fences = [lock.fence, await waiting, await last];

    expect(order).toEqual(["second", "third"]);
    expect(fences).toEqual([...fences].sort((a, b) => (a < b ? -1 : 1)));
  });

  test("keep a session, and what it holds, beyond the TTL after which etcd drops a lease", async () => {
    await using cluster = connectWith(shown());
    const session = await Session.open(cluster, { ttlSeconds: TTL_SECONDS });
    const lock = await new Mutex(session, "kept").lock();

    await untilLeaseExpires(etcd, TTL_SECONDS);

    expect([session.state, lock.held]).toEqual(["live", true]);
    await lock.release();
    expect(await places("kept")).toBe(0);
  });
});

const REFUSED: readonly (readonly [string, () => Credentials, RegExp])[] = [
  ["without a certificate", () => ({ rootCertificate: authority.certificate }), /wants a client certificate/],
  ["with a certificate of another authority", () => shown(stranger.issue("client")), /client certificate/],
  ["with a certificate that has expired", () => shown(expired), /certificate/],
];

/** The rejections of every entry point, each of which must reject as soon as etcd does. */
async function refusals(cluster: Cluster): Promise<readonly unknown[]> {
  const mutex = new Mutex(cluster, "refused");
  return Promise.all(
    [
      mutex.lock(),
      mutex.lock(LIMIT),
      mutex.tryLock(LIMIT),
      mutex.withLock(() => "never", LIMIT),
      cluster.session(LIMIT),
      Session.open(cluster, LIMIT),
    ].map(reasonOf),
  );
}

describe.each(REFUSED)("a client %s", (_, credentials, words) => {
  test("is refused at once, in clear words, and its secrets stay with it", async () => {
    const given = credentials();
    const lines = Object.values(given).flatMap((pem: Uint8Array | undefined) =>
      linesOfPem(pem ?? new Uint8Array()),
    );
    await using cluster = connectWith(given);
    const start = performance.now();

    const reasons = await refusals(cluster);

    expect(performance.now() - start).toBeLessThan(LIMIT.timeoutMs / 2);
    for (const reason of reasons) {
      expect(reason).toBeInstanceOf(EtcdRefusedError);
      expect(reason).toMatchObject({ code: "ETCD_REFUSED", reason: "tls", host: etcd.endpoints[0] });
      expect((reason as Error).message).toMatch(words);
      for (const line of lines) expect(exposure(reason)).not.toContain(line);
    }
  });
});

test("clients that are refused disturb nobody whose certificate is good, however often they knock", async () => {
  await using good = connectWith(shown());
  const session = await good.session();
  const states: string[] = [];
  session.addEventListener("statechange", ({ state }) => states.push(state));
  const lock = await new Mutex(good, "undisturbed").lock();
  const waiting = new Mutex(await Session.open(good), "undisturbed").lock(LIMIT);

  for (const [, credentials] of [...REFUSED, ...REFUSED]) {
    await using cluster = connectWith(credentials());
    await refusals(cluster);
  }
  await lock.release();
  await (await waiting).release();

  expect(states).toEqual([]);
});

async function places(name: string): Promise<number> {
  const { stdout } = await etcd.etcdctl(["get", "--prefix", "--keys-only", `${name}/`]);
  return stdout.split("\n").filter((line) => line !== "").length;
}
