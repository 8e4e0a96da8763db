import { afterAll, beforeAll, expect, test } from "vitest";
import {
  type Cluster,
  connect,
  type LockLostError,
  Mutex,
  Session,
  type SessionLostError,
  type SessionStateEvent,
} from "../../../src/index.js";
import { CHANNELS } from "../../../src/base/telemetry/channels.js";
import type { RenewedMessage, SessionMessage } from "../../../src/base/telemetry/messages.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { Messages } from "../../support/fixtures/messages.js";
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

const changes = ({ all }: Messages<SessionMessage>) => all.map(({ from, to }) => `${from} ${to}`);

test("a session that is opened, renewed and closed is published", async () => {
  using states = new Messages<SessionMessage>(CHANNELS.session, ({ owner }) => owner === "published");
  using renewals = new Messages<RenewedMessage>(CHANNELS.renewed);
  const session = await Session.open(cluster, { ttlSeconds: 2, owner: "published" });
  const { leaseId } = session;
  const renewal = await renewals.first((message) => message.leaseId === leaseId);
  await session.close();

  expect(renewal).toMatchObject({ ttlSeconds: 2, hosts: cluster.hosts });
  expect(renewal.durationMs).toBeGreaterThan(0);
  const [first, last] = [states.all.at(0), states.all.at(-1)];
  expect(changes(states).filter((change) => !change.includes("jeopardy"))).toEqual([
    ...["undefined live", "live closed"],
  ]);
  expect(first).toMatchObject({ leaseId, ttlSeconds: 2, members: new Map() });
  expect(last).toMatchObject({ leaseId, remainingMs: 0, error: { code: "SESSION_CLOSED" } });
  expect(states.all.every(({ hosts }) => hosts === cluster.hosts)).toBe(true);
});

test("a session whose lease is revoked does not blame etcd or this process", async () => {
  const session = await Session.open(cluster, { ttlSeconds: 10 });
  await revoke(etcd.member, session.leaseId);
  const error = (await abortOf(session.signal)) as SessionLostError;

  expect(error.loss).toBe("revoked");
  expect(error.cause).toBeUndefined();
  expect(error.message).toMatch(/etcd has no such lease \(revoked, or expired at the server\)$/);
});

test("a session whose etcd is killed is in jeopardy, then lost, and each event says why", async () => {
  await using own = await startEtcd();
  await using killed = connect({ hosts: own.member.endpoint });
  const session = await Session.open(killed, { ttlSeconds: 3 });
  using states = new Messages<SessionMessage>(CHANNELS.session, ({ hosts }) => hosts === killed.hosts);
  const events: SessionStateEvent[] = [];
  session.addEventListener("statechange", (event) => events.push(event));
  const lock = await new Mutex(session, "killed").lock();
  await own.member.kill();
  const { cause } = (await abortOf(lock.signal)) as LockLostError & { readonly cause: SessionLostError };

  const { endpoint } = own.member;
  expect(cause).toBe(session.signal.reason);
  expect(cause.message).toContain(`etcd did not answer: ${endpoint}: `);
  expect(cause.message).toMatch(/ECONNRE(FUSED|SET)|closed/);
  expect([...cause.members.keys()]).toEqual([endpoint]);
  await states.first(({ to }) => to === "lost");
  expect(changes(states)).toEqual(["live jeopardy", "jeopardy lost"]);
  const [jeopardy] = events;
  expect(jeopardy!.remainingMs).toBeLessThan(session.ttlSeconds * 1000 * 0.4);
  expect(jeopardy!.sinceLastRenewalMs).toBeGreaterThan(session.ttlSeconds * 1000 * 0.5);
  expect([...jeopardy!.members.keys()]).toEqual([endpoint]);
}, 60_000);
