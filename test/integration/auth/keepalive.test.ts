// etcd 3.6 checks the token of keepalive streams; older versions do not.
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect, Session } from "../../../src/index.js";
import { untilLeaseExpires } from "../../support/clients/lease-yardstick.js";
import { ROOT, startWithUsers, type UserEtcd, WORKER } from "../../support/fixtures/users.js";

let etcd: UserEtcd;
beforeAll(async () => void (etcd = await startWithUsers({ args: ["--auth-token-ttl=1"] })), 60_000);
afterAll(() => etcd.stop());

test("a session that holds nothing outlives its token", async () => {
  await using cluster = connect({ hosts: etcd.endpoints, auth: WORKER, session: { ttlSeconds: 4 } });
  const session = await cluster.session();

  await untilLeaseExpires(etcd.etcd, 5, [`--user=${ROOT.username}:${ROOT.password}`]);

  expect(session.state).toBe("live");
});

test("a lease is adopted by a cluster that has asked nothing before", async () => {
  await using first = connect({ hosts: etcd.endpoints, auth: WORKER });
  await using second = connect({ hosts: etcd.endpoints, auth: WORKER });
  const leaseId = await (await first.session()).orphan();

  const heir = await Session.adopt(second, leaseId);

  expect(heir.leaseId).toBe(leaseId);
});
