import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type Cluster, connect, Election } from "../../src/index.js";
import { EtcdctlElect } from "../support/clients/etcdctl-elect.js";
import { type EtcdCluster, startEtcd } from "../support/etcd/etcd.js";
import { nextLeader } from "../support/fixtures/next-leader.js";
import { placesOf } from "../support/clients/server-view.js";
import { V3Candidate, v3Leader, v3Observe } from "../support/clients/v3election.js";

const NAME = "interop/leader";

let etcd: EtcdCluster;
let cluster: Cluster;
let election: Election;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());
beforeEach(() => {
  cluster = connect({ hosts: etcd.endpoints });
  election = new Election(cluster, NAME);
});
afterEach(async () => {
  await cluster.close({ drainMs: 0 });
  await queueOf(0);
});

/** Resolves when the election has `count` places, including the leader's. */
const queueOf = (count: number) =>
  expect.poll(() => placesOf(etcd.member, NAME), { timeout: 10_000 }).toHaveLength(count);

/** Campaigns; `leads` says whether it has been elected yet. */
function campaign(value: string) {
  const asked = { leads: false, elected: election.campaign(value) };
  void asked.elected.then(() => (asked.leads = true));
  return asked;
}

describe("with `etcdctl elect` on the same name", () => {
  it("leasehold knows its leader and value, and leads when etcdctl resigns", async () => {
    await using other = new EtcdctlElect(etcd, NAME, "etcdctl's");
    const theirs = await other.leader();
    const mine = campaign("mine");
    await queueOf(2);
    expect(mine.leads).toBe(false);
    expect(await election.leader()).toMatchObject(theirs);
    expect(theirs.value).toBe("etcdctl's");

    await other.resign();

    const leadership = await mine.elected;
    expect(await election.leader()).toMatchObject({ key: leadership.key, value: "mine" });
    await leadership.resign();
  });

  it("etcdctl leads when leasehold resigns, and is heard of by its observers", async () => {
    const seen: (string | undefined)[] = [];
    const observer = election.observe();
    const leadership = await election.campaign("mine");
    seen.push((await nextLeader(observer))?.value);
    await using other = new EtcdctlElect(etcd, NAME, "etcdctl's");
    await queueOf(2);
    expect(other.leads).toBe(false);

    await leadership.resign();

    const { key } = await other.leader();
    const told = await nextLeader(observer);
    seen.push(told?.value);
    expect([seen, told?.key]).toEqual([["mine", "etcdctl's"], key]);
    await other.resign();
    expect(await nextLeader(observer)).toBeUndefined();
    await observer.return?.();
  });

  it("`etcdctl elect -l` hears of leasehold's leader, proclamations and next leader", async () => {
    const first = await election.campaign("first");
    await using listener = new EtcdctlElect(etcd, NAME, "-l");
    expect(await listener.leader(1)).toEqual({ key: first.key, value: "first" });

    await first.proclaim("still the first");
    expect(await listener.leader(2)).toEqual({ key: first.key, value: "still the first" });
    const waiting = new Election(cluster, NAME).campaign("second");
    await queueOf(2);
    await first.resign();

    const second = await waiting;
    expect(await listener.leader(3)).toEqual({ key: second.key, value: "second" });
    await second.resign();
  });
});

describe("with etcd's v3election service on the same name", () => {
  it("leasehold leads when the service's candidate resigns, whose proclamations it hears", async () => {
    const other = await V3Candidate.campaign(etcd.member, NAME, "theirs");
    const key = await other.key();
    const observer = election.observe();
    expect(await nextLeader(observer)).toMatchObject({ key, value: "theirs" });
    await other.proclaim("theirs, again");
    expect(await nextLeader(observer)).toMatchObject({ key, value: "theirs, again" });
    const mine = campaign("mine");
    await queueOf(2);
    expect(mine.leads).toBe(false);

    await other.resign();

    const leadership = await mine.elected;
    expect(await nextLeader(observer)).toMatchObject({ key: leadership.key, value: "mine" });
    await observer.return?.();
    await leadership.resign();
  });

  it("the service's candidate leads when leasehold resigns; until then the service names leasehold's leader", async () => {
    const leadership = await election.campaign("mine");
    const other = await V3Candidate.campaign(etcd.member, NAME, "theirs");
    await queueOf(2);
    expect([other.leads, await v3Leader(etcd.member, NAME)]).toEqual([
      false,
      { key: leadership.key, value: "mine" },
    ]);

    await leadership.resign();

    expect(await election.leader()).toMatchObject({ key: await other.key(), value: "theirs" });
    await other.resign();
    await expect(v3Leader(etcd.member, NAME)).rejects.toThrow(/no leader/);
  });

  it("the service's observers hear of leasehold's leaders and proclamations", async () => {
    const leadership = await election.campaign("1");
    const heard: string[] = [];
    for await (const value of v3Observe(etcd.member, NAME)) {
      heard.push(value);
      if (heard.length === 1) await leadership.proclaim("2");
      if (heard.length === 2) await leadership.proclaim("3");
      if (heard.length === 3) break;
    }

    expect(heard).toEqual(["1", "2", "3"]);
    await leadership.resign();
  });

  it("leasehold leads when the lease of the service's candidate is revoked", async () => {
    const other = await V3Candidate.campaign(etcd.member, NAME, "theirs");
    await other.key();
    const mine = campaign("mine");
    await queueOf(2);

    await other.revoke();

    await (await mine.elected).resign();
  });
});

describe("leasehold, etcdctl and the service in one election", () => {
  it("lead in the order in which they came", async () => {
    const first = await election.campaign("1");
    await using second = new EtcdctlElect(etcd, NAME, "2");
    await queueOf(2);
    const third = await V3Candidate.campaign(etcd.member, NAME, "3");
    await queueOf(3);
    const fourth = new Election(cluster, NAME).campaign("4");
    await queueOf(4);

    await first.resign();
    expect(await second.leader()).toMatchObject({ value: "2" });
    expect(third.leads).toBe(false);
    await second.resign();
    await third.key();
    expect((await election.leader())?.value).toBe("3");
    await third.resign();

    await (await fourth).resign();
  });
});
