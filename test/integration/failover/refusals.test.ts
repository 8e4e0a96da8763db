// Each text of etcd's in docs/troubleshooting.md, sent over a real connection: the effect on the call and on the connection.
import http2 from "node:http2";
import { afterAll, describe, expect, test } from "vitest";
import { checkConnect } from "../../../src/base/options/connect.js";
import { EtcdRefusedError } from "../../../src/errors.js";
import { memberOf } from "../../../src/etcd/transport.js";
import { EtcdClient } from "../../../src/etcd/client.js";
import { REFUSALS } from "../../../src/etcd/refusals.js";
import { LeaseNotFoundError, type Txn } from "../../../src/etcd/port.js";
import { systemClock } from "../../../src/base/util/clock.js";
import { message } from "../../support/clients/protobuf.js";
import { startRawServer, type RawServer } from "../../support/fakes/raw-server.js";
import { EXECUTED, REFUSAL_ROWS } from "../../support/fixtures/refusal-rows.js";

type Answerer = ConstructorParameters<typeof RawServer>[0];
type Answer = ReturnType<Answerer>;

const TXN: Txn = {
  queues: ["jobs"],
  compare: [{ kind: "created at", key: "jobs/1", revision: 0n }],
  success: [{ kind: "put", key: "jobs/1", value: "", leaseId: 7n }],
  failure: [],
};
const AUTH = { username: "worker", password: "secret" };
const { NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_INADEQUATE_SECURITY } = http2.constants;

const header = (clusterId = 7): Answer => ({
  messages: [
    message([
      [
        1,
        [
          [1, clusterId],
          [2, 1],
          [3, 5],
          [4, 2],
        ],
      ],
      [2, 1n],
    ]),
  ],
});
const done = (method: string): Answer =>
  method === "Authenticate" ? { messages: [message([[2, "token"]])] } : header();

const servers: RawServer[] = [];
const clusters: EtcdClient[] = [];
afterAll(async () => {
  for (const client of clusters) client.close();
  await Promise.all(servers.map((server) => server.stop()));
});

/** A server that answers transactions with `say()`, and everything else as etcd would. */
async function host(say: () => Answer, others: Answerer = ({ method }) => done(method)) {
  let calls = 0;
  const server = await startRawServer((call) => {
    if (call.method !== "Txn") return others(call);
    calls++;
    return say();
  });
  servers.push(server);
  return { server, calls: () => calls };
}

/** `answer`, `times` times, then etcd's answer on success. */
function first(answer: Answer, times = 1): () => Answer {
  let left = times;
  return () => (left-- > 0 ? answer : done("Txn"));
}

function membersOf(hosts: readonly { readonly server: RawServer }[], options: object = {}) {
  const checked = checkConnect({ hosts: hosts.map(({ server }) => server.endpoint), ...options });
  // Calls start at the first host.
  const clock = { ...systemClock, random: () => 0 };
  const client = new EtcdClient(checked, clock, (at, setting) =>
    memberOf(at, setting, { options: checked, clock }),
  );
  clusters.push(client);
  return client;
}

/** The outcome of one transaction, and how often it was in doubt. */
async function call(client: EtcdClient, giveUpMs = 10_000) {
  let doubts = 0;
  const policy = { what: "test", giveUpMs, onUnanswered: () => void doubts++ };
  const outcome = await client.txn(TXN, policy).catch((error: unknown) => error);
  return { outcome, doubts };
}

const ANSWERED = { header: { revision: 5n } };
const ENDS: Readonly<Record<string, unknown>> = {
  lease: expect.any(LeaseNotFoundError) as unknown,
  credentials: expect.objectContaining({ code: "ETCD_REFUSED", reason: "unauthenticated" }),
  permission: expect.objectContaining({ code: "ETCD_REFUSED", reason: "permission" }),
  quota: expect.objectContaining({ code: "ETCD_REFUSED", reason: "quota" }),
  request: expect.objectContaining({ code: "ETCD_REFUSED", reason: "other" }),
};

test("the page lists what the code knows", () => {
  expect(new Map(REFUSAL_ROWS.map(({ text, verdict }) => [text, verdict]))).toEqual(REFUSALS);
});

/** The rows with one of these verdicts, each with every status that carries it: behind `etcd grpc-proxy`, UNKNOWN. */
const saying = (...verdicts: readonly string[]) =>
  REFUSAL_ROWS.filter(({ verdict }) => verdicts.includes(verdict)).map(({ text, codes, verdict }) => ({
    text,
    verdict,
    doubts: EXECUTED.get(verdict) ? 1 : 0,
    said: [...codes, 2].map((status) => ({ status, details: `etcdserver: ${text}` })),
  }));

describe("a call that etcd answers with", () => {
  test.each(saying(...Object.keys(ENDS)))(
    '"$text" ($verdict) rejects, once, and keeps the connection',
    async ({ verdict, doubts, said }) => {
      for (const refusal of said) {
        const only = await host(() => refusal);
        const client = membersOf([only, await host(first(refusal, 0))]);

        expect(await call(client)).toEqual({ outcome: ENDS[verdict], doubts });
        await call(client);
        expect([only.calls(), only.server.accepted]).toEqual([2, 1]);
      }
    },
  );

  test.each(saying("lease exists", "auth off"))(
    '"$text" ($verdict), which etcd never says of a transaction, is repeated on another host',
    async ({ said }) => {
      for (const refusal of said) {
        const [bad, good] = [await host(() => refusal), await host(first(refusal, 0))];

        expect(await call(membersOf([bad, good]))).toMatchObject({ outcome: ANSWERED, doubts: 1 });
        expect([bad.calls(), good.calls()]).toEqual([1, 1]);
      }
    },
  );

  test.each(saying("member", "passing", "passing, unknown"))(
    '"$text" ($verdict) is repeated on another host',
    async ({ doubts, said }) => {
      for (const refusal of said) {
        const [bad, good] = [await host(() => refusal), await host(first(refusal, 0))];

        expect(await call(membersOf([bad, good]))).toMatchObject({ outcome: ANSWERED, doubts });
        expect([bad.calls(), good.calls()]).toEqual([1, 1]);
      }
    },
  );

  test.each(saying("token"))('"$text" ($verdict) is repeated with a new token', async ({ doubts, said }) => {
    for (const refusal of said) {
      let tokens = 0;
      const only = await host(first(refusal), ({ method }) => {
        if (method === "Authenticate") tokens++;
        return done(method);
      });

      expect(await call(membersOf([only], { auth: AUTH }))).toMatchObject({ outcome: ANSWERED, doubts });
      expect([tokens, only.server.accepted]).toEqual([2, 1]);
    }
  });

  test.each(saying("token"))('"$text" rejects where no password was given', async ({ doubts, said }) => {
    for (const refusal of said) {
      const only = await host(() => refusal);

      expect(await call(membersOf([only]))).toEqual({ outcome: ENDS["credentials"], doubts });
      expect(only.calls()).toBe(1);
    }
  });

  test.each(saying("auth off"))(
    '"$text" is repeated without a token, until etcd wants one',
    async ({ said }) => {
      for (const refusal of said) {
        let off = true;
        const answers = [header(), { status: 3, details: "etcdserver: user name is empty" }];
        const only = await host(
          () => answers.shift() ?? header(),
          ({ method }) => (off ? refusal : done(method)),
        );
        const client = membersOf([only], { auth: AUTH });

        expect(await call(client)).toMatchObject({ outcome: ANSWERED });
        off = false;
        expect(await call(client)).toMatchObject({ outcome: ANSWERED, doubts: 0 });
        expect(only.calls()).toBe(3);
      }
    },
  );

  test.each(saying("overload"))(
    '"$text" ($verdict) is repeated on another member, or on the same connection to the only one',
    async ({ doubts, said }) => {
      for (const refusal of said) {
        const [busy, other] = [await host(first(refusal, 3)), await host(first(refusal, 0))];
        expect(await call(membersOf([busy, other]))).toMatchObject({ outcome: ANSWERED, doubts });
        expect([busy.calls(), other.calls()]).toEqual([1, 1]);

        const only = await host(first(refusal, 3));
        expect(await call(membersOf([only]))).toMatchObject({ outcome: ANSWERED, doubts });
        expect([only.calls(), only.server.accepted]).toEqual([4, 1]);
      }
    },
  );
});

/** A web server's answer, without gRPC's trailers. */
const web = (status: number): Answer => ({ headers: { ":status": status }, how: "no trailers" });

const NOT_ETCDS: readonly (readonly [what: string, answer: Answer, reason: string | undefined])[] = [
  ["HTTP 401", web(401), "unauthenticated"],
  ["HTTP 403", web(403), "permission"],
  ["HTTP 404", web(404), "member"],
  ["HTTP 503", web(503), undefined],
  ["HTTP 429", web(429), undefined],
  ["UNIMPLEMENTED", { status: 12, details: "unknown service etcdserverpb.KV" }, "member"],
  ["a gateway's PERMISSION_DENIED", { status: 7, details: "RBAC: access denied" }, "permission"],
  ["a gateway's RESOURCE_EXHAUSTED", { status: 8, details: "rate limited" }, undefined],
  ["ENHANCE_YOUR_CALM for a stream", { how: "reset", error: NGHTTP2_ENHANCE_YOUR_CALM }, undefined],
  [
    "too_many_pings",
    { how: "go away", error: NGHTTP2_ENHANCE_YOUR_CALM, debug: "too_many_pings" },
    undefined,
  ],
  ["INADEQUATE_SECURITY", { how: "reset", error: NGHTTP2_INADEQUATE_SECURITY }, undefined],
  ["a reset", { how: "reset" }, undefined],
  ["a closed connection", { how: "hang up" }, undefined],
  ["no status", { how: "no trailers" }, undefined],
];

describe("a host that answers with", () => {
  test.each(NOT_ETCDS)("%s leaves the call in doubt, to be repeated elsewhere", async (_, answer) => {
    const [bad, good] = [await host(() => answer), await host(first(answer, 0))];

    expect(await call(membersOf([bad, good]))).toMatchObject({ outcome: ANSWERED, doubts: 1 });
    expect([bad.calls(), good.calls()]).toEqual([1, 1]);
  });

  test.each(NOT_ETCDS.filter(([, , reason]) => reason))(
    "%s makes the call reject only when every host does",
    async (_, answer, reason) => {
      const hosts = [await host(() => answer), await host(() => answer)];

      const { outcome, doubts } = await call(membersOf(hosts));

      expect(outcome).toMatchObject({ code: "ETCD_REFUSED", reason });
      for (const { server, calls } of hosts) {
        expect((outcome as EtcdRefusedError).message).toContain(server.endpoint);
        expect(calls()).toBeGreaterThan(0);
      }
      expect(doubts).toBe(hosts.reduce((sum, { calls }) => sum + calls(), 0));
    },
  );
});

test("a rejection that the table does not have is the request's, and in doubt", async () => {
  const only = await host(() => ({ status: 9, details: "etcdserver: something of tomorrow" }));

  expect(await call(membersOf([only]))).toEqual({ outcome: ENDS["request"], doubts: 1 });
});

test("a request that is too large for Go's gRPC is the request's", async () => {
  const details = "grpc: received message larger than max (5000000 vs. 2097152)";
  const only = await host(() => ({ status: 8, details }));

  expect(await call(membersOf([only]))).toEqual({ outcome: ENDS["request"], doubts: 1 });
});

test("what was never sent is not in doubt", async () => {
  const gone = await host(() => header());
  await gone.server.stop();
  const client = membersOf([gone, await host(() => header())]);

  expect(await call(client)).toMatchObject({ outcome: ANSWERED, doubts: 0 });
});

test("200 rejections cost no further connection", async () => {
  const refusals = ["mvcc: database space exceeded", "permission denied", "requested lease not found"];
  const only = await host(() => ({ status: 8, details: `etcdserver: ${refusals[only.calls() % 3]}` }));
  const client = membersOf([only]);

  for (let n = 0; n < 20; n++) await Promise.all(Array.from({ length: 10 }, () => call(client)));

  expect(only.calls()).toBeGreaterThanOrEqual(200);
  expect(only.server.accepted).toBe(1);
});

test("a host that asks for fewer pings is pinged half as often on its next connection", async () => {
  const calm: Answer = { how: "go away", error: NGHTTP2_ENHANCE_YOUR_CALM, debug: "too_many_pings" };
  const only = await host(first(calm, 2));
  const checked = checkConnect({ hosts: only.server.endpoint });
  const intervals: number[] = [];
  const client = new EtcdClient(checked, systemClock, (at, setting) => {
    intervals.push(setting.pingMs);
    return memberOf(at, setting, { options: checked, clock: systemClock });
  });
  clusters.push(client);

  await call(client);

  expect(intervals).toEqual([6000, 12_000, 24_000]);
});

describe("hosts of two etcd clusters in one list", () => {
  test("are told apart: the second is refused, naming both", async () => {
    const [ours, theirs] = [await host(() => header(7)), await host(() => header(9))];
    const client = membersOf([ours, theirs]);
    await call(client);

    client.pool.fail(client.pool.current);
    expect(await call(client)).toMatchObject({ outcome: ANSWERED, doubts: 1 });
    await ours.server.stop();
    client.pool.fail(client.pool.current);

    const { outcome } = await call(client, 2000);
    expect(outcome).toMatchObject({ code: "ETCD_UNAVAILABLE" });
    expect((outcome as Error).message).toMatch(/belongs to the etcd cluster 9, but .* to 7/);
  });

  test("do not make each other's leases be lost", async () => {
    const unknown = { status: 5, details: "etcdserver: requested lease not found" };
    const ours = await host(() => header(7));
    const theirs = await host(
      () => unknown,
      () => header(9),
    );
    const client = membersOf([ours, theirs]);
    await call(client);

    client.pool.fail(client.pool.current);

    expect(await call(client)).toMatchObject({ outcome: ANSWERED });
    expect(theirs.calls()).toBe(1);
  });

  test("are one cluster again after a restore has given every member a new cluster ID", async () => {
    let clusterId = 7;
    const hosts = [await host(() => header(clusterId)), await host(() => header(clusterId))];
    const client = membersOf(hosts);
    await call(client);
    client.pool.fail(client.pool.current);
    await call(client);

    clusterId = 8;

    expect(await call(client)).toMatchObject({ outcome: ANSWERED });
  });
});
