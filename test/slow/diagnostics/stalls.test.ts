// Why sessions were lost: sessions whose process stands still, and sessions whose links are cut, are told apart.
import { fork } from "node:child_process";
import { on, once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { owned } from "../../support/programs/owned.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

const PROGRAM = fileURLToPath(new URL("../../support/programs/losses-program.js", import.meta.url));
const SESSIONS = 20;
const TTL_SECONDS = 3;
const TTL_MS = TTL_SECONDS * 1000;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());

interface Lost {
  readonly code: string;
  readonly loss: string;
  readonly message: string;
  readonly stalledMs: number;
  readonly sinceLastRenewalMs: number;
  readonly remainingMs: number;
  readonly members: Readonly<Record<string, { readonly message: string }>>;
  readonly caused: boolean;
}

/** A process with so many sessions, all of them renewed. */
async function sessionsOn(hosts: string) {
  const child = owned(fork(PROGRAM, [hosts, String(SESSIONS), String(TTL_SECONDS)]));
  const messages = on(child, "message");
  const [first] = (await messages.next()).value as [unknown];
  expect(first, "a session was lost before the test began").toBe("ready");
  const losses = async (): Promise<readonly Lost[]> => {
    const lost: Lost[] = [];
    for await (const [loss] of messages) if (lost.push(loss as Lost) === SESSIONS) break;
    return lost;
  };
  const stop = async () => {
    child.kill("SIGKILL");
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  };
  return { child, losses, [Symbol.asyncDispose]: stop };
}

/** What the message of an error says. */
const reasonOf = ({ message }: Lost) =>
  `${message.includes("this process did not run") ? "stall" : ""} ${message.includes("etcd did not answer") ? "etcd" : ""}`.trim();

test("20 sessions whose process is stopped past the deadline are all lost to the stall", async () => {
  await using sessions = await sessionsOn(etcd.member.endpoint);
  sessions.child.kill("SIGSTOP");
  await delay(2 * TTL_MS);
  const losses = sessions.losses();
  sessions.child.kill("SIGCONT");

  for (const lost of await losses) {
    expect(reasonOf(lost), lost.message).toBe("stall");
    expect(lost).toMatchObject({ code: "SESSION_LOST", remainingMs: 0, caused: false });
    // At most half of the TTL passes between the last accepted renewal and the next timer.
    expect(lost.stalledMs).toBeGreaterThan(lost.sinceLastRenewalMs - 0.6 * TTL_MS);
    expect(lost.stalledMs).toBeLessThanOrEqual(lost.sinceLastRenewalMs);
  }
}, 60_000);

test("20 sessions whose process has blocked its event loop are all lost to the stall", async () => {
  await using sessions = await sessionsOn(etcd.member.endpoint);
  const losses = sessions.losses();
  sessions.child.send({ blockMs: 2 * TTL_MS });

  expect((await losses).map(reasonOf)).toEqual(Array.from({ length: SESSIONS }, () => "stall"));
}, 60_000);

test("20 sessions whose links are cut are all lost to an etcd that does not answer", async () => {
  await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
  await using sessions = await sessionsOn(proxy.endpoint);
  const losses = sessions.losses();
  await proxy.mode("blackhole");

  for (const lost of await losses) {
    // On a busy machine, the process may have stood still, too.
    expect(reasonOf(lost), lost.message).toMatch(/etcd$/);
    expect(lost).toMatchObject({ loss: "expired", remainingMs: 0, caused: true });
    expect(Object.keys(lost.members)).toEqual([proxy.endpoint]);
    expect(lost.message).toContain(proxy.endpoint);
    expect(lost.sinceLastRenewalMs).toBeGreaterThanOrEqual(0.9 * TTL_MS);
  }
}, 60_000);
