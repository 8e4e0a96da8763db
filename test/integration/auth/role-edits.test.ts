// With JWT, every edit of users or roles invalidates all tokens.
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect, Mutex, Session } from "../../../src/index.js";
import { makeJwtArgs } from "../../support/fixtures/jwt.js";
import { startWithUsers, type UserEtcd, WORKER } from "../../support/fixtures/users.js";

const jwt = makeJwtArgs({ ttlSeconds: 60 });
let etcd: UserEtcd;
beforeAll(async () => void (etcd = await startWithUsers({ args: (await jwt).args })), 60_000);
afterAll(async () => {
  await etcd.stop();
  await (await jwt).remove();
});

test("an administrator who edits roles one after the other fails no caller", async () => {
  await using cluster = connect({ hosts: etcd.endpoints, auth: WORKER, session: { ttlSeconds: 10 } });
  const sessions = await Promise.all([1, 2, 3].map(() => Session.open(cluster, { ttlSeconds: 10 })));
  const failures: unknown[] = [];
  let over = false;
  const busy = Array.from({ length: 24 }, async (_, i) => {
    const mutex = new Mutex(sessions[i % 3]!, `jobs/${i % 6}`);
    while (!over) await mutex.withLock(() => 1).catch((error: unknown) => failures.push(error));
  });

  for (let n = 0; n < 30; n++) await etcd.root("role", "add", `r${n}`).catch(() => "stale, too");
  over = true;
  await Promise.all(busy);

  expect(failures).toEqual([]);
});
