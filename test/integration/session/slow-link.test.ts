// A link on which connecting takes longer than the time limit of a call of a session with a short TTL.
import { describe, test } from "vitest";
import { connect, Session } from "../../../src/index.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { startWithUsers, WORKER } from "../../support/fixtures/users.js";

const LINKS = [
  { ttlSeconds: 2, wayMs: 150 },
  { ttlSeconds: 3, wayMs: 220 },
].flatMap((link) => [false, true].map((password) => ({ ...link, password })));

describe.concurrent("over a slow link", { timeout: 60_000 }, () => {
  test.for(LINKS)(
    "a session with TTL $ttlSeconds is opened at $wayMs ms a way (with a password: $password)",
    async ({ ttlSeconds, wayMs, password }, { expect }) => {
      const users = password ? await startWithUsers() : undefined;
      const etcd = users?.etcd ?? (await startEtcd());
      await using slow = await startTcpProxy({ port: etcd.member.clientPort });
      slow.delay(wayMs);
      const cluster = connect({ hosts: slow.endpoint, ...(users && { auth: WORKER }) });

      const session = await Session.open(cluster, { ttlSeconds });

      expect(session.ttlSeconds).toBe(ttlSeconds);
      // Each attempt that is given up costs a connection.
      expect(slow.accepted).toBe(1);
      await cluster.close({ drainMs: 0 });
      await etcd.stop();
    },
  );
});
