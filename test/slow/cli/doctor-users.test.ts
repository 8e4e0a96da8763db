// What `leasehold doctor` says about users and their rights.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { examined, failures, findingsOf } from "../../support/fixtures/doctor.js";
import { ROOT, startWithUsers, type UserEtcd, WORKER } from "../../support/fixtures/users.js";

const READER = { username: "reader", password: "reader-secret" };
let etcd: UserEtcd;
beforeAll(async () => {
  etcd = await startWithUsers();
  await etcd.addUser(READER, "jobs/", "read");
}, 60_000);
afterAll(() => etcd?.stop());

const as = ({ username, password }: typeof WORKER) => ({
  ETCDCTL_USER: username,
  ETCDCTL_PASSWORD: password,
});
const only = () => etcd.endpoints[0] ?? "";
const found = (findings: Parameters<typeof failures>[0]) => failures(findings, only());

describe("leasehold doctor", () => {
  test("finds nothing wrong with a user who may lock below the prefix, and leaves nothing behind", async () => {
    const { code, findings } = await examined(etcd.endpoints, ["jobs/"], as(WORKER));

    expect(code).toBe(0);
    expect(findingsOf(findings, only())).toMatchObject({
      space: "ok",
      read: "ok",
      lock: "ok",
      renewal: "ok",
    });
    expect(await etcd.keysUnder("jobs/")).toEqual([]);
    expect(await etcd.root("lease", "list")).toContain("found 0 leases");
  });

  test("names the right that a user lacks below the prefix, and how to grant it", async () => {
    const { code, findings, stdout } = await examined(etcd.endpoints, [], as(WORKER));

    expect(code).toBe(1);
    expect(found(findings).length).toBeGreaterThan(0);
    for (const each of found(findings))
      expect(each).toMatch(
        /^rights: .*permission denied.* \| .*role of worker.*grant-permission ROLE readwrite --prefix=true "leasehold-doctor\/"/,
      );
    expect(stdout).not.toContain(WORKER.password);
    expect(await etcd.root("lease", "list")).toContain("found 0 leases");
  });

  test("tells reading from writing", async () => {
    const { code, findings } = await examined(etcd.endpoints, ["jobs/"], as(READER));

    expect(code).toBe(1);
    expect(findingsOf(findings, only())).toMatchObject({
      read: expect.any(String) as string,
      rights: "fail",
    });
    expect(await etcd.root("lease", "list")).toContain("found 0 leases");
  });

  test("names a wrong password and a missing user, and prints no password", async () => {
    const wrong = { ...WORKER, password: "wrong-secret" };
    const [bad, none] = await Promise.all([
      examined(etcd.endpoints, ["jobs/"], as(wrong)),
      examined(etcd.endpoints, ["jobs/"]),
    ]);

    expect([bad.code, none.code]).toEqual([1, 1]);
    expect(found(bad.findings)).toEqual([expect.stringMatching(/^login: .* \| check --user, --password/)]);
    expect(found(none.findings)).toEqual([
      expect.stringMatching(/^login: .* \| etcd wants a user: give --user/),
    ]);
    expect(bad.stdout).not.toContain("wrong-secret");
  });

  test("gives a password to an etcd that wants none without harm", async () => {
    await etcd.root("auth", "disable");
    const { code } = await examined(etcd.endpoints, [], as(ROOT));
    await etcd.root("auth", "enable");

    expect(code).toBe(0);
  });
});
