// The requirements of etcd's own tests of elections, as promises of leasehold.
import { describe, expect, test } from "vitest";
import { connect, Election, Session } from "../../../src/index.js";
import { nextLeader } from "../../support/fixtures/next-leader.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";
import { startWithUsers, WORKER } from "../../support/fixtures/users.js";
import { openClient, queued as joined } from "../../support/clients/session-client.js";

const two = twoSessions(20);
/** Waits until etcd has this many places under the name. */
const queued = (name: string, count: number) => joined(two.etcd.member, name, count);

const valuesOf = async (name: string, count: number): Promise<(string | undefined)[]> => {
  const values = [];
  for await (const leader of new Election(two.cluster, name).observe()) {
    if (leader) values.push(leader.value);
    if (values.length === count) break;
  }
  return values;
};

describe("candidates", () => {
  test("of three clients lead one after the other, and three observers see each of them in turn", async () => {
    const name = "etcd/wait";
    const observers = [1, 2, 3].map(() => valuesOf(name, 3));
    const clients = await Promise.all([1, 2, 3].map(() => openClient(two.etcd.endpoints, 20)));
    const led: string[] = [];

    await Promise.all(
      clients.map(async ({ session }, i) => {
        const leadership = await new Election(session, name).campaign(`candidate ${i}`);
        led.push(`candidate ${i}`);
        await leadership.resign();
      }),
    );

    expect([...led].sort()).toEqual(["candidate 0", "candidate 1", "candidate 2"]);
    for (const seen of await Promise.all(observers)) expect(seen).toEqual(led);
    for (const client of clients) await client[Symbol.asyncDispose]();
  });

  test("behind a leader whose session is closed lead at once, and are observed to", async () => {
    const name = "etcd/failover";
    const client = await openClient(two.etcd.endpoints, 20);
    const first = await new Election(client.session, name).campaign("foo");
    const waiting = new Election(two.session, name).campaign("bar");
    await queued(name, 2);
    const seen = valuesOf(name, 2);
    await new Election(two.cluster, name).leader();

    await client[Symbol.asyncDispose]();
    const second = await waiting;

    expect(second.fence).toBeGreaterThan(first.fence);
    expect((await seen).at(-1)).toBe("bar");
    await second.resign();
  });

  test("are not held up by a key that only begins like the election's name", async () => {
    await two.etcd.etcdctl(["put", "etcd/testa", "no candidate"]);

    const leadership = await new Election(two.session, "etcd/test").campaign("foo");

    expect(leadership.held).toBe(true);
    await leadership.resign();
  });

  test("that resign and campaign again are observed again, under a key of the election", async () => {
    const name = "etcd/resume";
    const before = await new Election(two.holder, name).campaign("candidate1");
    const adopter = await Session.open(two.cluster, { ttlSeconds: 20 });
    await two.etcd.etcdctl(["put", "etcd/foo", "bar"]);
    const seen: (string | undefined)[] = [];
    const observer = new Election(two.cluster, name).observe();
    seen.push((await nextLeader(observer))?.value);

    await before.resign();
    const after = await new Election(adopter, name).campaign("candidate2");
    while (seen.at(-1) !== "candidate2") seen.push((await nextLeader(observer))?.value);

    expect(seen).toEqual(["candidate1", undefined, "candidate2"]);
    expect(after.key.startsWith(`${name}/`)).toBe(true);
    await observer.return?.();
    await adopter.close();
  });
});

describe("an observer", () => {
  test("finds a leader who was elected before etcd's last compaction", async () => {
    const name = "etcd/compacted";
    const leadership = await new Election(two.session, name).campaign("old");
    await two.etcd.etcdctl(["put", "etcd/later", "x"]);
    const { revision } = await two.etcd.member.status();
    await two.etcd.etcdctl(["compact", String(revision)]);

    expect(await valuesOf(name, 1)).toEqual(["old"]);

    await leadership.resign();
  });
});

describe("with a password", () => {
  test("a role that covers the election's prefix is enough to campaign, proclaim and observe, and less is refused", async () => {
    const users = await startWithUsers();
    const cluster = connect({ hosts: users.endpoints, auth: WORKER });
    const election = new Election(cluster, "jobs/leader");
    const observer = election.observe();
    expect(await nextLeader(observer)).toBeUndefined();

    const leadership = await election.campaign("a");
    await leadership.proclaim("b");

    expect([(await nextLeader(observer))?.value, (await nextLeader(observer))?.value]).toEqual(["a", "b"]);
    const other = new Election(cluster, "others/leader");
    const refused = { code: "ETCD_REFUSED", why: "permission" };
    await expect(other.campaign("a")).rejects.toMatchObject(refused);
    await expect(other.leader()).rejects.toMatchObject(refused);
    await expect(other.observe().next()).rejects.toMatchObject(refused);
    await leadership.resign();
    await cluster.close();
    await users.stop();
  });
});
