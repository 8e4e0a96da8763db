import { Etcd3 } from "etcd3";
import { afterAll, beforeAll, describe, onTestFinished, test, type ExpectStatic } from "vitest";
import {
  connect,
  type ConnectOptions,
  EtcdRefusedError,
  EtcdUnavailableError,
  Mutex,
  Session,
} from "../../../src/index.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";
import { controlTimer } from "../../support/fixtures/control-timer.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startPeer } from "../../support/servers/http2-peer.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

const TIMEOUT_MS = 1500;
/** Without it, OpenSSL itself forbids such versions. */
const OLD = { minVersion: "TLSv1", maxVersion: "TLSv1.1", ciphers: "DEFAULT@SECLEVEL=0" } as const;
/** Longer than any test may run. */
const NO_LIMIT_MS = 600_000;

const authority = makeAuthority("our authority");
const stranger = makeAuthority("another authority");
const ours = { rootCertificate: authority.certificate };
const files: { remove(): Promise<void> }[] = [];
let plain: EtcdCluster;
let secure: EtcdCluster;
/** Requires client certificates. */
let strict: EtcdCluster;
/** Its certificate is for another host. */
let elsewhere: EtcdCluster;

async function startSecure(clientCertAuth: boolean, hosts?: string[]) {
  const written = await writeServerFiles(authority, authority.issue("etcd", hosts));
  files.push(written);
  return startEtcd({ clientTls: { ...written, clientCertAuth } });
}

beforeAll(async () => {
  [plain, secure, strict, elsewhere] = await Promise.all([
    startEtcd(),
    startSecure(false),
    startSecure(true),
    startSecure(false, ["etcd.example"]),
  ]);
}, 60_000);
afterAll(async () => {
  await Promise.all([plain, secure, strict, elsewhere].map((etcd) => etcd?.stop()));
  await Promise.all(files.map((each) => each.remove()));
});

const swapped = (etcd: EtcdCluster, scheme: string) =>
  etcd.members.map(({ clientPort }) => `${scheme}://localhost:${clientPort}`);
const client = (of: typeof authority) => {
  const { certificate, key } = of.issue("a client");
  return { certChain: certificate, privateKey: key };
};

describe.concurrent("TLS", () => {
  test("carries calls and streams: a waiter is served, a lease outlives its TTL", async ({ expect }) => {
    await using cluster = connect({ hosts: secure.endpoints, credentials: ours, session: { ttlSeconds: 2 } });
    const session = await cluster.session();
    const lock = await new Mutex(cluster, "tls").lock();
    const waiting = new Mutex(await Session.open(cluster, { ttlSeconds: 2 }), "tls").lock();

    await expect.poll(() => session.remainingMs(), { timeout: 3000, interval: 20 }).toBeLessThan(1300);
    await expect.poll(() => session.remainingMs(), { timeout: 3000, interval: 20 }).toBeGreaterThan(1500);
    await lock.release();
    const next = await waiting;

    expect(next.fence).toBeGreaterThan(lock.fence);
    await next.release();
  });

  test("works with a certificate of the client where one is asked for", async ({ expect }) => {
    const credentials = { ...ours, ...client(authority) };
    await using cluster = connect({ hosts: strict.endpoints, credentials });

    const held = await new Mutex(cluster, "tls/client").withLock((lock) => lock.held);

    expect(held).toBe(true);
  });
});

describe("a member that is named by its IP address", () => {
  const byAddress = () => secure.endpoints.map((host) => host.replace("localhost", "127.0.0.1"));
  const [major] = process.versions.node.split(".").map(Number);

  test("is used by a client of etcd3 with the name in its certificate, whatever Node.js says about the address", async ({
    expect,
  }) => {
    const grpcOptions = { "grpc.ssl_target_name_override": "localhost" };
    const client = new Etcd3({ hosts: byAddress(), credentials: ours, grpcOptions });
    onTestFinished(() => client.close());
    await using cluster = connect({ etcd3: client });

    expect(await new Mutex(cluster, "tls/override").withLock((lock) => lock.held)).toBe(true);
  });

  test("is used without it before Node.js 26, which refuses it at once and says what to do", async ({
    expect,
  }) => {
    await using cluster = connect({ hosts: byAddress(), credentials: ours, transport: "etcd3" });

    const held = new Mutex(cluster, "tls/address").withLock((lock) => lock.held);

    if (Number(major) < 26) return expect(await held).toBe(true);
    await expect(held).rejects.toMatchObject({ reason: "tls" });
    await expect(held).rejects.toThrow("TLS needs a host name");
  });
});

describe.each(["http2", "etcd3"] as const)("credentials.serverName, with transport %s", (transport) => {
  const held = async (serverName: string, hosts: readonly string[]) => {
    await using cluster = connect({ hosts, credentials: { ...ours, serverName }, transport });
    return await new Mutex(cluster, `tls/name/${transport}`).withLock((lock) => lock.held, {
      timeoutMs: 10_000,
    });
  };

  test("is the name that the member's certificate must have, instead of the host's", async ({ expect }) => {
    expect(await held("etcd.example", elsewhere.endpoints)).toBe(true);
    await expect(held("etcd.example", secure.endpoints)).rejects.toMatchObject({ reason: "tls" });
  });

  test("is used for a host that is an IP address", async ({ expect }) => {
    const byAddress = elsewhere.endpoints.map((host) => host.replace("localhost", "127.0.0.1"));

    expect(await held("etcd.example", byAddress)).toBe(true);
  });
});

/** All entry points; each must fail in time, with the same kind of error. `overdue`: not within twice the limit. */
async function failures(options: ConnectOptions, timeoutMs = TIMEOUT_MS) {
  await using cluster = connect(options);
  const mutex = new Mutex(cluster, "refused");
  const limit = { timeoutMs };
  using overdue = controlTimer(2 * timeoutMs);
  const calls = [
    Session.open(cluster, limit),
    mutex.lock(limit),
    mutex.tryLock(limit),
    cluster.session(limit),
  ];
  const reasons = await Promise.all(
    calls.map((call) => call.then(() => undefined).catch((reason: unknown) => reason)),
  );
  return { reasons: reasons as Error[], overdue: overdue.passed };
}

const REFUSED: readonly (readonly [string, () => ConnectOptions, RegExp])[] = [
  [
    "a member whose certificate another authority has signed",
    () => ({ hosts: secure.endpoints, credentials: { rootCertificate: stranger.certificate } }),
    /no authority that is trusted here has signed the member's certificate/,
  ],
  [
    "a member whose certificate no public authority has signed",
    () => ({ hosts: secure.endpoints }),
    /no authority that is trusted here has signed/,
  ],
  [
    "a member whose certificate is for another host",
    () => ({ hosts: elsewhere.endpoints, credentials: ours }),
    /altnames.*localhost.*credentials\.serverName/,
  ],
  [
    "a client that shows no certificate to a member that asks for one",
    () => ({ hosts: strict.endpoints, credentials: ours }),
    /wants a client certificate.*credentials.privateKey and credentials.certChain/,
  ],
  [
    "a client whose certificate another authority has signed",
    () => ({ hosts: strict.endpoints, credentials: { ...ours, ...client(stranger) } }),
    /wants a client certificate that it trusts/,
  ],
];

const server = authority.issue("no etcd");
const SERVER = { key: server.key, cert: server.certificate, ALPNProtocols: ["h2"] };
const asking = { ...SERVER, requestCert: true, rejectUnauthorized: false };

/** Servers that no repetition reaches: what they are, and what the error says. */
const LASTING = [
  ["http2", "chooses no ALPN protocol", { ...SERVER, ALPNProtocols: undefined }, /no ALPN protocol h2/],
  ["http2", "knows another ALPN protocol", { ...SERVER, ALPNProtocols: ["http/1.1"] }, /ALPN protocol h2/],
  [
    "etcd3",
    "knows another ALPN protocol",
    { ...SERVER, ALPNProtocols: ["http/1.1"] },
    /application protocol/,
  ],
  ["http2", "speaks an old version of TLS", { ...SERVER, ...OLD }, /protocol version.*no common version/],
  ["etcd3", "speaks an old version of TLS", { ...SERVER, ...OLD }, /protocol version.*no common version/],
  ["http2", "closes instead of asking again for a certificate", asking, /client certificate.*certChain/],
] as const;

describe.concurrent("TLS rejects at once, not at the limit, over", () => {
  test.for(LASTING)("%s: a server that %s", async ([transport, , tls, message], { expect }) => {
    await using peer = await startPeer({ tls: tls, raw: (socket) => socket.destroy() });
    const hosts = `https://localhost:${peer.port}`;

    const { reasons } = await failures({ hosts, credentials: ours, transport }, NO_LIMIT_MS);

    for (const reason of reasons) {
      expect(reason).toBeInstanceOf(EtcdRefusedError);
      expect(reason).toMatchObject({ reason: "tls", host: hosts });
      expect(reason.message).toMatch(message);
    }
  });
});

describe.concurrent("TLS refuses", () => {
  test.for(REFUSED)("%s, at once and in clear words", async ([, options, message], { expect }) => {
    // Not the limit ends these calls: a test that waited for it would be ended by its own.
    const { reasons } = await failures(options(), NO_LIMIT_MS);

    for (const reason of reasons) {
      expect(reason).toBeInstanceOf(EtcdRefusedError);
      expect(reason).toMatchObject({ reason: "tls", host: options().hosts[0] });
      expect(reason.message).toMatch(message);
    }
  });
});

function expectUnavailable(
  expect: ExpectStatic,
  { reasons, overdue }: Awaited<ReturnType<typeof failures>>,
  host: string,
) {
  for (const reason of reasons) {
    expect(reason).toBeInstanceOf(EtcdUnavailableError);
    expect([...(reason as EtcdUnavailableError).members.keys()]).toEqual([host]);
    expect((reason as EtcdUnavailableError).cause.errors).toHaveLength(1);
  }
  expect(overdue).toBe(false);
}

const UNAVAILABLE: readonly (readonly [string, () => ConnectOptions, RegExp])[] = [
  [
    "https:// to a member without TLS",
    () => ({ hosts: swapped(plain, "https"), credentials: ours }),
    // Or the connection is closed before the client has read that.
    /does it speak TLS at all|ECONNRESET/,
  ],
  ["http:// to a member with TLS", () => ({ hosts: swapped(secure, "http") }), /does it want TLS/],
  ["a port that nobody listens on", () => ({ hosts: ["http://127.0.0.1:1"] }), /ECONNREFUSED 127\.0\.0\.1:1/],
  [
    "a host that does not exist",
    () => ({ hosts: ["http://no-such-host.invalid:2379"] }),
    /no-such-host\.invalid/,
  ],
];

describe.concurrent("connecting by", () => {
  test.for(UNAVAILABLE)(
    "%s fails within the time limit and says why",
    async ([, options, message], { expect }) => {
      const failed = await failures(options());

      expectUnavailable(expect, failed, options().hosts[0]!);
      for (const { message: text } of failed.reasons) expect(text).toMatch(message);
    },
  );

  test("an address where nobody answers fails within the time limit and names it", async ({ expect }) => {
    await using proxy = await startTcpProxy({ port: plain.member.clientPort });
    await proxy.mode("blackhole");

    const failed = await failures({ hosts: [proxy.endpoint], requestTimeoutMs: 500 });

    expectUnavailable(expect, failed, proxy.endpoint);
    for (const { message } of failed.reasons) expect(message).toContain(proxy.endpoint);
  });

  test("a lease's heir fails in the same way: within the time limit, with the reason", async ({ expect }) => {
    await using cluster = connect({
      hosts: secure.endpoints,
      credentials: { rootCertificate: stranger.certificate },
    });

    const adopting = Session.adopt(cluster, 7n, { timeoutMs: TIMEOUT_MS });

    await expect(adopting).rejects.toThrow(EtcdUnavailableError);
    await expect(adopting).rejects.toThrow(
      /no authority that is trusted here has signed the member's certificate/,
    );
  });

  test("one good address of three is enough", async ({ expect }) => {
    const hosts = ["127.0.0.1:1", "no-such-host.invalid:2379", plain.endpoints[0]!];
    await using cluster = connect({ hosts });

    const held = await new Mutex(cluster, "one-of-three").withLock((lock) => lock.held, {
      timeoutMs: 10_000,
    });

    expect(held).toBe(true);
  });
});
