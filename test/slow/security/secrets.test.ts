import { describe, expect, test } from "vitest";
import { type Cluster, connect, Mutex, Session } from "../../../src/index.js";
import { exposure } from "../../support/fixtures/exposure.js";
import { message } from "../../support/clients/protobuf.js";
import { type Answer, type Call, startRawServer } from "../../support/fakes/raw-server.js";
import { ToyEtcd } from "../../support/fakes/toy-etcd.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";

const AUTH = { username: "worker", password: "the-secret-password" };
const TOKEN = "TheSecretToken.4711";
const SECRETS = [AUTH.password, TOKEN];
const LIMIT = { timeoutMs: 500 };
/** They are idle most of the time. */
const AT_ONCE = 12;

const METHODS = ["Authenticate", "LeaseGrant", "Txn", "Range", "Watch", "LeaseKeepAlive", "LeaseTimeToLive"];
/** Errors in the form in which etcd, a proxy or a broken connection would produce them. */
const FAILURES: readonly Answer[] = [
  { status: 16, details: "etcdserver: invalid auth token" },
  { status: 3, details: "etcdserver: authentication failed, invalid user ID or password" },
  { status: 3, details: "etcdserver: revision of auth store is old" },
  { status: 7, details: "etcdserver: permission denied" },
  { status: 8, details: "etcdserver: mvcc: database space exceeded" },
  { status: 5, details: "etcdserver: no such thing" },
  { status: 13, details: "internal" },
  { status: 14, details: "etcdserver: leader changed" },
  { messages: [Buffer.from("ff", "hex")] },
  { how: "silence" },
  { how: "reset" },
  { how: "hang up" },
  { headers: { ":status": 401, "content-type": "text/html" }, frames: Buffer.from("<html>"), status: 0 },
];

interface Fault {
  readonly method: string;
  readonly failure: Answer;
  /** This many calls are answered normally first. */
  readonly good: number;
}

const FAULTS: readonly Fault[] = METHODS.flatMap((method) =>
  FAILURES.flatMap((failure) => [0, 1].map((good) => ({ method, failure, good }))),
);

const answerAll = (toy: ToyEtcd, call: Call): Answer =>
  call.method === "Authenticate" ? { messages: [message([toy.header(), [2, TOKEN]])] } : toy.answer(call);

/** Every way in which a caller can receive errors of a failing etcd. */
function reasonsFrom(cluster: Cluster): Promise<unknown[]> {
  const mutex = new Mutex(cluster, "jobs");
  const calls: readonly Promise<unknown>[] = [
    cluster.session(LIMIT),
    Session.open(cluster, LIMIT),
    Session.adopt(cluster, 7n, LIMIT),
    mutex.lock(LIMIT).then((lock) => lock.release()),
    mutex.lock(LIMIT),
    mutex.tryLock(LIMIT),
    mutex.withLock((lock) => Promise.reject(lock.signal.reason as Error), LIMIT),
  ];
  return Promise.all(calls.map(reasonOf));
}

/** What callers and signals receive from a server that fails one kind of call, and the token that it was sent. */
async function toldBy({ method, failure, good }: Fault) {
  using toy = new ToyEtcd();
  let left = good;
  let token: unknown;
  await using server = await startRawServer((call) => {
    token ??= call.headers["token"];
    return call.method === method && left-- <= 0 ? failure : answerAll(toy, call);
  });
  const options = { auth: AUTH, requestTimeoutMs: 100, session: { ttlSeconds: 2 } };
  const cluster = connect({ hosts: server.endpoint, ...options });
  const session = await cluster.session(LIMIT).catch((reason: unknown) => reason);
  const reasons = await reasonsFrom(cluster);
  await cluster.close({ drainMs: 0 });
  const ended = session instanceof Session ? (session.signal.reason as unknown) : session;
  return { token, reasons: [...reasons, ended] };
}

describe("password and token", () => {
  test("are in no error, whatever call fails in whatever way", async () => {
    const rest = [...FAULTS];
    const tokens = new Set<unknown>();
    const names = new Set<string>();
    const leaks: unknown[] = [];
    const work = async () => {
      for (let fault = rest.pop(); fault; fault = rest.pop()) {
        const { token, reasons } = await toldBy(fault);
        tokens.add(token);
        for (const reason of reasons) if (reason instanceof Error) names.add(reason.name);
        const shown = exposure(reasons);
        if (SECRETS.some((secret) => shown.includes(secret))) leaks.push(fault);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));

    expect(leaks).toEqual([]);
    // The secret was available, and there were many errors that could have contained it.
    expect(tokens).toContain(TOKEN);
    expect(names).toContain("EtcdRefusedError");
    expect(names).toContain("EtcdUnavailableError");
  }, 60_000);

  test("are in nothing that a program holds in its hands", async () => {
    using toy = new ToyEtcd();
    await using server = await startRawServer((call) => answerAll(toy, call));
    await using cluster = connect({ hosts: server.endpoint, auth: AUTH });
    const session = await cluster.session();
    const mutex = new Mutex(session, "jobs");
    await using lock = await mutex.lock();

    const shown = exposure([cluster, session, mutex, lock, session.signal, lock.signal]);

    for (const secret of SECRETS) expect(shown).not.toContain(secret);
  });
});
