// A user that etcd no longer accepts: what its session and its locks say of it.
import { once } from "node:events";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  connect,
  EtcdRefusedError,
  LockLostError,
  Mutex,
  type SessionLostError,
  type SessionStateEvent,
} from "../../../src/index.js";
import { startWithUsers, type UserEtcd, WORKER } from "../../support/fixtures/users.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

let etcd: UserEtcd;
beforeEach(async () => void (etcd = await startWithUsers()), 60_000);
afterEach(() => etcd.stop());

const { username: name } = WORKER;
const ENDS = [
  [
    "whose password was changed",
    (it: UserEtcd) => it.ask("auth/user/changepw", { name, password: "another" }),
  ],
  ["that was deleted", (it: UserEtcd) => it.ask("auth/user/delete", { name })],
] as const;

describe.each(["main", "worker"] as const)("a session renewed by the thread %s, of a user", (renewal) => {
  test.each(ENDS)("%s, is told as refused by etcd in jeopardy and in the loss", async (_, end) => {
    await using proxy = await startTcpProxy({ port: etcd.etcd.member.clientPort });
    const lines: string[] = [];
    await using cluster = connect({
      ...{ hosts: proxy.endpoint, auth: WORKER, session: { ttlSeconds: 2 }, renewal },
      log: ({ message }) => void lines.push(message),
    });
    const session = await cluster.session();
    const events: SessionStateEvent[] = [];
    session.addEventListener("statechange", (event) => events.push(event));
    const lock = await new Mutex(cluster, "jobs/lock").lock();

    await end(etcd);
    // etcd 3.4 and 3.5 check no token of a renewal: only a new stream needs one.
    await expect(new Mutex(cluster, "jobs/other").tryLock()).rejects.toThrow(EtcdRefusedError);
    proxy.reset();
    if (!session.signal.aborted) await once(session.signal, "abort");

    const refusal = { code: "ETCD_REFUSED", reason: "unauthenticated", host: proxy.endpoint };
    const [jeopardy] = events;
    expect(jeopardy?.state).toBe("jeopardy");
    expect(jeopardy?.members.get(proxy.endpoint)).toMatchObject(refusal);
    const lost = session.signal.reason as SessionLostError;
    expect(lost).toMatchObject({ loss: "expired", cause: refusal });
    expect(lost.members.get(proxy.endpoint)).toBe(lost.cause);
    expect(lost.message).toMatch(
      /; etcd at \S+ refused to renew a lease \(unauthenticated\): .*authentication failed/,
    );
    expect(lock.signal.reason).toBeInstanceOf(LockLostError);
    expect((lock.signal.reason as LockLostError).cause).toBe(lost);
    const told = [lost.message, ...lines].join("\n");
    expect(told).toMatch(/in jeopardy: .*; etcd refused \(.*unauthenticated/);
    expect(told).not.toContain("did not answer");
  });
});
