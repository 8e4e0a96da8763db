// What `leasehold doctor` says about a cluster that is not well.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { examined, failures, findingsOf, leftovers } from "../../support/fixtures/doctor.js";
import { spaceAlarm } from "../../support/fixtures/space-alarm.js";

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd({ members: 3, args: ["--strict-reconfig-check=false"] })));
afterAll(() => etcd.stop());

describe("leasehold doctor", () => {
  test("names the alarm NOSPACE, its member, and how to end it", async () => {
    await spaceAlarm(etcd.member, "ACTIVATE");
    const { code, findings } = await examined(etcd.endpoints);
    await spaceAlarm(etcd.member, "DEACTIVATE");

    expect(code).toBe(1);
    expect(failures(findings, null)).toEqual([
      expect.stringMatching(/^alarms: NOSPACE of member m1 \| .*etcdctl compact.*etcdctl alarm disarm/),
    ]);
    for (const endpoint of etcd.endpoints)
      expect(failures(findings, endpoint)).toEqual([
        expect.stringMatching(/^space: .*database space exceeded \| compact and defragment.*alarm disarm/),
      ]);
    expect(await leftovers(etcd)).toEqual({ keys: 0, leases: 0 });
  });

  test("says that a learner serves no client", async () => {
    const { endpoint } = await etcd.addLearner();
    const { code, findings } = await examined([...etcd.endpoints, endpoint]);

    expect(code).toBe(1);
    expect(failures(findings, endpoint)).toEqual([
      expect.stringMatching(/^learner: .* \| promote it \(etcdctl member promote\), or take it out/),
    ]);
    expect(findingsOf(findings, null)).toMatchObject({ endpoints: "warn", members: "ok" });
  });

  test("names the member that is down, and says that no further one may fail", async () => {
    await etcd.members[2]?.kill();
    // The killed member may have been the leader. Until the others elect a new one, no member answers requests.
    await etcd.leader();
    const { code, findings } = await examined(etcd.endpoints);

    expect(code).toBe(1);
    expect(failures(findings, etcd.endpoints[2] ?? "")).toEqual([
      expect.stringMatching(/^reach: nothing listens on port \d+.* \| start etcd there/),
    ]);
    expect(findings).toContainEqual({
      ...{ endpoint: null, check: "members", mark: "warn" },
      message: "2 of 3 voting members answered, 2 must; m3 did not, and no further member may fail",
      hint: "start m3: etcd serves nothing without a majority",
    });
    expect(findingsOf(findings, etcd.endpoints[0] ?? "")).toMatchObject({ lock: "ok" });
    expect(await leftovers(etcd)).toEqual({ keys: 0, leases: 0 });
  });

  test("says that there is no majority, and ends with 69", async () => {
    await etcd.members[1]?.kill();
    const { code, findings } = await examined(etcd.endpoints, ["--timeout", "1s"]);

    expect(code).toBe(69);
    expect(failures(findings, etcd.endpoints[0] ?? "")).toEqual([
      expect.stringMatching(/^answer: etcd did not answer .* \| see the log of this member/),
    ]);
    expect(failures(findings, null)).toContainEqual(
      "members: 1 of 3 voting members answered, 2 must: no majority | start m2, m3: etcd serves nothing without a majority",
    );
  });
});
