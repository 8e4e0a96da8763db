import { afterAll, beforeAll, expect, test } from "vitest";
import { type Cluster, connect, Election, lead, Session } from "../../../src/index.js";
import { CHANNELS } from "../../../src/base/telemetry/channels.js";
import type { ElectionMessage } from "../../../src/base/telemetry/messages.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { Messages } from "../../support/fixtures/messages.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { abortOf } from "../../support/clients/session-client.js";
import { revoke } from "../../support/clients/lease-calls.js";

let etcd: EtcdCluster;
let cluster: Cluster;

beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.member.endpoint });
}, 60_000);

afterAll(async () => {
  await cluster.close({ drainMs: 0 });
  await etcd.stop();
});

const electionNamed = (name: string) =>
  new Messages<ElectionMessage>(CHANNELS.election, (message) => message.name === name);
const statesOf = ({ all }: Messages<ElectionMessage>) => all.map(({ state }) => state);

test("a candidate that is elected and resigns is published", async () => {
  using events = electionNamed("resigns");
  const leadership = await new Election(cluster, "resigns", { label: "jobs" }).campaign("me");
  await leadership.resign();

  const { owner } = await cluster.session();
  const { fence } = leadership;
  const same = { hosts: cluster.hosts, name: "resigns", label: "jobs", error: undefined, delayMs: undefined };
  expect(events.all).toEqual([
    { ...same, state: "campaigning", owner: undefined, fence: undefined },
    { ...same, state: "elected", owner, fence },
    { ...same, state: "resigned", owner, fence },
  ]);
  expect(events.all.every(({ hosts }) => hosts === cluster.hosts)).toBe(true);
});

test("a leadership that is lost is published with its error", async () => {
  using events = electionNamed("loses");
  const session = await Session.open(cluster, { ttlSeconds: 10, owner: "loser" });
  const leadership = await new Election(session, "loses").campaign("me");
  await revoke(etcd.member, session.leaseId);
  const lost = await events.first(({ state }) => state === "lost");

  expect(lost).toMatchObject({ owner: "loser", fence: leadership.fence });
  expect(lost.error).toBe(leadership.signal.reason);
  expect(statesOf(events)).toEqual(["campaigning", "elected", "lost"]);
});

test("lead() is not silent while etcd is away: each retry is published with its error and the pause", async () => {
  using events = electionNamed("outage");
  await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
  const away = connect({ hosts: proxy.endpoint, requestTimeoutMs: 200 });
  await proxy.mode("refuse");
  const stop = new AbortController();
  const options = { ttlSeconds: 10, label: "jobs", owner: "me", signal: stop.signal };
  const done = lead(away, "outage", ({ signal }) => abortOf(AbortSignal.any([signal, stop.signal])), options);
  const retry = await events.first(({ state }) => state === "retrying");

  expect(retry).toMatchObject({ label: "jobs", owner: "me", error: { code: "ETCD_UNAVAILABLE" } });
  expect(retry.delayMs).toBeGreaterThan(0);

  await proxy.mode("pass");
  await events.first(({ state }) => state === "elected");
  stop.abort();
  await done;
  await away.close();

  const states = statesOf(events);
  expect(states.slice(states.lastIndexOf("retrying") + 1)).toEqual([
    ...["campaigning", "elected", "resigned", "stopped"],
  ]);
}, 60_000);
