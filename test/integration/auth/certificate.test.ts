import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, EtcdRefusedError, Mutex, Session } from "../../../src/index.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { startWithUsers, type UserEtcd, WORKER } from "../../support/fixtures/users.js";

const authority = makeAuthority("our authority");
const files = writeServerFiles(authority, authority.issue("etcd"));
let etcd: UserEtcd;

/** No password: etcd uses the common name of the certificate as the user name. */
function connectAs(common: string) {
  const { certificate, key } = authority.issue(common);
  const credentials = { rootCertificate: authority.certificate, certChain: certificate, privateKey: key };
  return connect({ hosts: etcd.endpoints, credentials });
}

/** The gateway takes no common name as the user. */
const keysIn = async (name: string) =>
  (await etcd.root("get", "--prefix", "--keys-only", `${name}/`)).split("\n").filter((line) => line !== "");

beforeAll(async () => {
  etcd = await startWithUsers({ clientTls: { ...(await files), clientCertAuth: true } });
}, 60_000);
afterAll(async () => {
  await etcd?.stop();
  await (await files).remove();
});

describe("a certificate whose common name is a user of etcd", () => {
  test("locks, waits and is handed over what the user's role covers", async () => {
    await using cluster = connectAs(WORKER.username);
    const lock = await new Mutex(cluster, "jobs/a").lock();
    const waiting = new Mutex(await Session.open(cluster), "jobs/a").lock();
    await expect.poll(() => keysIn("jobs/a")).toHaveLength(2);

    await lock.release();
    const next = await waiting;

    expect(next.fence).toBeGreaterThan(lock.fence);
    await next.release();
    expect(await keysIn("jobs/a")).toEqual([]);
  });

  test("is refused a name outside its role, and keeps its lock of one inside", async () => {
    await using cluster = connectAs(WORKER.username);
    const lock = await new Mutex(cluster, "jobs/kept").lock();

    const reason = await reasonOf(new Mutex(cluster, "other").lock());

    expect(reason).toBeInstanceOf(EtcdRefusedError);
    expect(reason).toMatchObject({ reason: "permission" });
    expect(lock.held).toBe(true);
    await lock.release();
  });

  test("is refused everything when etcd knows no such user", async () => {
    await using cluster = connectAs("nobody");

    const reason = await reasonOf(new Mutex(cluster, "jobs/a").lock());

    expect(reason).toBeInstanceOf(EtcdRefusedError);
    expect((reason as Error).message).toMatch(/permission denied/);
  });
});
