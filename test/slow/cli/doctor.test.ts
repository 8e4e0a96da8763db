// What `leasehold doctor` finds at a healthy cluster, and what it leaves there.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, Election, Mutex } from "../../../src/index.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { examined, findingsOf, leftovers } from "../../support/fixtures/doctor.js";
import { runCli, startCli } from "../../support/programs/cli.js";

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd({ members: 3 })));
afterAll(() => etcd.stop());

const isAdvised = () => /^3\.[67]\./.test(etcd.version);

describe("leasehold doctor at a healthy cluster of three", () => {
  test("finds nothing wrong, says what it measured, and leaves no key and no lease", async () => {
    const { code, findings, summary } = await examined(etcd.endpoints);
    const version = isAdvised() ? "ok" : "warn";
    // A busy machine may make reads slow.
    const speed = expect.stringMatching(/^(ok|warn)$/) as string;

    expect([code, summary["fail"], summary["skip"]]).toEqual([0, 0, 0]);
    for (const endpoint of etcd.endpoints)
      expect(findingsOf(findings, endpoint)).toEqual({
        ...{
          reach: "ok",
          version,
          clock: "ok",
          space: "ok",
          read: speed,
          ttl: "ok",
          renewal: "ok",
          lock: "ok",
        },
      });
    expect(findingsOf(findings, null)).toEqual({
      ...{ endpoints: "ok", leader: "ok", members: "ok", alarms: "ok", lag: "ok", names: "ok" },
    });
    const medians = findings
      .filter(({ check }) => check === "read")
      .map(({ measured }) => measured?.["medianMs"]);
    expect(medians).toEqual([expect.any(Number), expect.any(Number), expect.any(Number)]);
    expect(await leftovers(etcd)).toEqual({ keys: 0, leases: 0 });
  });

  test("says the verdict first, then each check under its endpoint, in 80 columns, and names the other members", async () => {
    const { code, stdout, stderr } = await runCli(["doctor", "--ttl", "2s"], {
      endpoints: etcd.endpoints[0] ?? "",
    });
    const lines = stdout.split("\n");

    expect([code, stderr]).toEqual([0, ""]);
    expect(lines[0]).toMatch(/^works, with warnings: 0 failed, \d warnings?, 0 not checked$/);
    expect(lines[1]).toMatch(/^ {2}warn {2}/);
    expect(lines).toContain(etcd.endpoints[0]);
    expect(lines.filter((line) => line.length > 80)).toEqual([]);
    expect(lines).toContainEqual(
      expect.stringMatching(
        /^ {2}(ok {2}|warn) {2}read: a linearizable read takes [\d.]+ ms \(median of 5\)$/,
      ),
    );
    expect(lines).toContain("the cluster");
    const words = stdout.replaceAll(/\s+/g, " ");
    expect(words).toContain(`m2 (${etcd.endpoints[1]}), m3 (${etcd.endpoints[2]})`);
    expect(words).toContain("list all members");
  });

  test("finds names in use that are below another one, and no keys that are no locks", async () => {
    await using cluster = connect({ hosts: etcd.endpoints });
    const campaign = (name: string) => new Election(cluster, name).campaign("x");
    const above = await campaign("reports");
    const nested = [await campaign("reports/daily"), await new Mutex(cluster, "reports/daily/x").lock()];
    const put = (key: string) => etcd.etcdctl(["put", key, "value"]);
    await Promise.all(["config/a", "config/a/b", "config/a/b/c"].map(put));

    const { code, findings } = await examined(etcd.endpoints.slice(0, 1));
    const elsewhere = await examined(etcd.endpoints.slice(0, 1), ["jobs/"]);

    const names = (all: typeof findings) => all.find(({ check }) => check === "names");
    expect([code, names(findings)]).toEqual([
      0,
      {
        ...{
          endpoint: null,
          check: "names",
          mark: "warn",
          hint: expect.stringContaining("rename") as string,
        },
        message:
          "both are in use: reports/daily is below reports, reports/daily/x is below reports/daily, " +
          "reports/daily/x is below reports",
      },
    ]);
    expect(names(elsewhere.findings)?.message).toBe(
      "no lock in use under jobs/ has a name below that of another one",
    );
    await Promise.all([above, ...nested].map((each) => each.release()));
    await etcd.etcdctl(["del", "--prefix", "config/"]);
  });

  test("leaves no key and no lease when it is asked to stop while it holds its lock", async () => {
    const doctor = startCli(["doctor", "--ttl", "60s"], { endpoints: etcd.endpoints.join(",") });
    await expect.poll(async () => (await leftovers(etcd)).keys).toBe(3);
    doctor.child.kill("SIGINT");
    const { code, stderr } = await doctor.ended;

    expect([code, stderr]).toEqual([130, ""]);
    expect(await leftovers(etcd)).toEqual({ keys: 0, leases: 0 });
  });
});
