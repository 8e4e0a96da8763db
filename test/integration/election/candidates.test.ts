// What candidates say of themselves, and who leads by it.
import { describe, expect, test } from "vitest";
import {
  type CandidateOptions,
  type Cluster,
  connect,
  Election,
  type ElectionCandidate,
  inspect,
  lead,
  type Leadership,
  list,
  type QueueWaitOptions,
  Session,
} from "../../../src/index.js";
import { putOn, revoke } from "../../support/clients/lease-calls.js";
import { oldestSince, revisionOf, valueAt } from "../../support/clients/oldest-keys.js";
import { queued as joined } from "../../support/clients/session-client.js";
import { givesBack, takesPlace } from "../../support/clients/request-shape.js";
import { V3Candidate } from "../../support/clients/v3election.js";
import { Crew } from "../../support/fixtures/candidates.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";

const TXN = "/etcdserverpb.KV/Txn";
const PATIENCE = { timeout: 10_000 };

const two = twoSessions(20);
const { places } = two;
const queued = (name: string, count: number) => joined(two.etcd.member, name, count);

/** Candidates in this order, of which the first leads. */
async function crewOf(
  name: string,
  members: Readonly<Record<string, CandidateOptions>>,
  session = {},
): Promise<Crew> {
  const crew = new Crew(two, name);
  for (const [owner, options] of Object.entries(members)) {
    const { elected } = await crew.join(owner, options, session);
    if (crew.all.length === 1) await elected;
  }
  return crew;
}
const elected = (crew: Crew, owner: string) => crew.all.find((each) => each.owner === owner)!.elected;

describe("the candidates of an election", () => {
  test("are all read in order, with what each says of itself, and JSON", async () => {
    const name = "candidates/all";
    const labels = { zone: "eu-1a", version: "2.4.0" };
    await using crew = await crewOf(name, {
      a: { transferable: true },
      b: { priority: -7, labels },
      plain: {},
    });
    const [own, other] = await new Election(two.cluster, name).candidates();

    expect(own).toEqual({
      key: (await elected(crew, "a")).key,
      value: "a",
      revision: (await elected(crew, "a")).fence,
      leaseId: crew.all[0]!.session.leaseId,
      leads: true,
      transferable: true,
      owner: "a",
      priority: 0,
      labels: {},
    });
    expect(other).toMatchObject({ owner: "b", leads: false, priority: -7, labels });
    expect((await new Election(two.cluster, name).candidates())[2]).toMatchObject({
      value: "plain",
      transferable: false,
      owner: undefined,
      priority: 0,
      labels: {},
    });
    expect(JSON.parse(JSON.stringify(other))).toMatchObject({ revision: String(other!.revision), labels });
    // A plain candidate writes nothing but its entry.
    expect(await places(`/leasehold/candidates/${name}`)).toHaveLength(2);
    expect(await new Election(two.cluster, "candidates/none").candidates()).toEqual([]);
  });

  test("are listed and shown as those of any election", async () => {
    const name = "candidates/listed";
    await using crew = await crewOf(name, { a: { priority: 1 }, b: { labels: { zone: "x" } } });
    const { locks } = await list(two.cluster, "");

    expect(locks.map((lock) => lock.name).filter((each) => each.includes(name))).toEqual([name]);
    expect(await inspect(two.cluster, name)).toMatchObject({
      kind: "election",
      holders: [{ value: "a" }],
      waiters: [{ value: "b" }],
    });
    expect(crew.leading).toEqual(["a"]);
  });

  test("leave nothing beside the queue when they resign, give up, or lose their key", async () => {
    const name = "candidates/leave";
    const beside = `/leasehold/candidates/${name}`;
    await using crew = await crewOf(name, { a: { priority: 1 }, b: { priority: 1 }, c: { priority: 1 } });
    await queued(beside, 3);
    crew.all[1]!.stop.abort();
    await queued(beside, 2);
    await (await elected(crew, "a")).resign();
    await queued(beside, 1);

    await two.etcd.etcdctl(["del", (await elected(crew, "c")).key]);

    await queued(beside, 0);
  });

  test.each([undefined, "prefix/"])(
    "leave nothing beside the queue when their session was adopted, with the prefix %s",
    async (prefix) => {
      const name = "candidates/adopted";
      const beside = (of: string) => `/leasehold/candidates/${prefix ?? ""}${name}/${of}`;
      await using cluster = connect({ hosts: two.etcd.endpoints, prefix });
      const session = await Session.open(cluster, { ttlSeconds: 5 });
      for (const of of ["claimed", "unclaimed"])
        await new Election(session, `${name}/${of}`).campaign("v", { transferable: true });
      await queued(beside("claimed"), 1);
      await queued(beside("unclaimed"), 1);
      const adopted = await Session.adopt(cluster, await session.orphan());

      await (await new Election(adopted, `${name}/claimed`).campaign("v")).resign();

      await queued(beside("claimed"), 0);
      await queued(beside("unclaimed"), 0);
      expect(adopted.state).toBe("live");
    },
  );

  test.each<[string, string]>([
    ["no JSON", "{"],
    ["another owner than a text", JSON.stringify({ owner: 7, priority: 0, labels: {} })],
    ["a priority out of bounds", JSON.stringify({ owner: "x", priority: 1e9, labels: {} })],
    ["labels that are none", JSON.stringify({ owner: "x", priority: 0, labels: "zone" })],
    ["a label that is too long", JSON.stringify({ owner: "x", priority: 0, labels: { a: "b".repeat(257) } })],
    ["a megabyte", JSON.stringify({ owner: "x", priority: 0, labels: {}, more: "m".repeat(1_000_000) })],
    ["what another one says", JSON.stringify({ owner: "x", priority: 9, labels: {} })],
  ])("are plain to others when the key beside the queue has %s", async (what, value) => {
    const name = `candidates/hostile/${what}`;
    await using crew = await crewOf(name, { a: { priority: 3 }, b: { priority: 3 } });
    const [, { key }] = (await places(name)) as [object, { key: string }];
    const beside = `/leasehold/candidates/${key}/about`;
    expect(JSON.parse((await valueAt(two.etcd.member, beside)) as string)).toMatchObject({ owner: "b" });

    await two.etcd.member.gateway("/v3/kv/put", {
      key: Buffer.from(beside).toString("base64"),
      value: Buffer.from(value).toString("base64"),
      lease: String(crew.all[1]!.session.leaseId),
    });

    const [, seen] = await new Election(two.cluster, name).candidates();
    expect(seen).toMatchObject({ owner: undefined, transferable: false, priority: 0, labels: {} });
    expect(await reasonOf((await elected(crew, "a")).transfer(seen!))).toMatchObject({
      reason: "not_transferable",
    });
  });

  test("are not those of locks, nor of elections with a name below", async () => {
    const name = "candidates/foreign";
    const lease = (await Session.open(two.cluster, { ttlSeconds: 20 })).leaseId;
    await putOn(two.etcd.member, lease, `${name}/below/${lease.toString(16)}`);

    expect(await new Election(two.cluster, name).candidates()).toEqual([]);
    await revoke(two.etcd.member, lease);
  });

  test.each<[string, object, RegExp]>([
    ["a priority that is no whole number", { priority: 1.5 }, /priority/],
    ["a priority out of bounds", { priority: 1001 }, /-1000 to 1000/],
    ["labels that are no object", { labels: ["a"] }, /labels/],
    ["a label that is no text", { labels: { zone: 7 } }, /labels\.zone/],
    ["a label that is too long", { labels: { zone: "z".repeat(257) } }, /256 bytes/],
    ["a label without a name", { labels: { "": "z" } }, /the name of a label/],
    [
      "too many labels",
      { labels: Object.fromEntries(Array.from({ length: 17 }, (_, n) => [`l${n}`, ""])) },
      /at most 16/,
    ],
    ["a rule that is none", { eligible: true }, /eligible/],
    ["transferable that is neither", { transferable: 1 }, /transferable/],
    ["a priority, and not transferable", { transferable: false, priority: 1 }, /transferable/],
    ["a misspelled option", { prority: 1 }, /priority/],
  ])("are refused with %s, in campaign and lead", async (_, options, message) => {
    const name = "candidates/misuse";
    const campaign = reasonOf(new Election(two.session, name).campaign("a", options));
    const leading = reasonOf(lead(two.cluster, name, () => undefined, options));
    for (const error of await Promise.all([campaign, leading])) {
      expect(error instanceof TypeError || error instanceof RangeError).toBe(true);
      expect((error as Error).message).toMatch(message);
    }
    expect(await places(name)).toEqual([]);
  });
});

describe("a higher priority", () => {
  test("leads next, with one hand-over more, and interrupts no leader", async () => {
    const name = "priority/highest";
    await using crew = await crewOf(name, {
      leader: { priority: -1 },
      low: { priority: 0 },
      high: { priority: 5 },
      middle: { priority: 3 },
    });
    const leader = await elected(crew, "leader");
    expect(crew.leading).toEqual(["leader"]);
    const [, low] = await places(name);
    const from = await revisionOf(two.etcd.member);

    await leader.resign();
    const high = await elected(crew, "high");

    expect(await oldestSince(two.etcd.member, name, from)).toEqual([leader.fence, low!.revision, high.fence]);
    expect(crew.leading).toEqual(["high"]);
    await high.resign();
    const middle = await elected(crew, "middle");
    await middle.resign();
    await elected(crew, "low");
    expect(crew.leading).toEqual(["low"]);
  });

  test("of equal ones, the order of the queue decides", async () => {
    const name = "priority/equal";
    await using crew = await crewOf(name, {
      a: { priority: 2 },
      b: { priority: 2 },
      c: { priority: 2 },
      d: { transferable: true, priority: 2 },
    });
    for (const owner of ["a", "b", "c", "d"]) {
      const leadership = await elected(crew, owner);
      expect(crew.leading).toEqual([owner]);
      await leadership.resign();
    }
  });

  test("decides after a crash of the leader, too", async () => {
    await using crew = await crewOf("priority/crash", {
      leader: {},
      low: { priority: 0 },
      high: { priority: 1 },
    });

    await revoke(two.etcd.member, crew.all[0]!.session.leaseId);

    await elected(crew, "high");
    await expect.poll(() => crew.leading, PATIENCE).toEqual(["high"]);
  });

  test("behind a candidate of Go's client waits for that one, whose key stays", async () => {
    const name = "priority/go";
    await using crew = await crewOf(name, { leader: { priority: 0 }, low: { priority: 0 } });
    const go = await V3Candidate.campaign(two.etcd.member, name, "go's");
    await queued(name, 3);
    const session = await Session.open(two.cluster, { ttlSeconds: 20, owner: "high" });
    const high = new Election(session, name).campaign("high", { priority: 9 });
    await queued(name, 4);

    await (await elected(crew, "leader")).resign();
    const low = await elected(crew, "low");
    expect([go.leads, crew.leading]).toEqual([false, ["low"]]);
    await low.resign();
    await go.key();
    await go.resign();

    expect((await high).held).toBe(true);
    await session.close({ drainMs: 0 });
  });

  test("leads next in `lead`, too, and with sessions with `releaseDelayMs`", async () => {
    const name = "priority/lead";
    await using cluster = connect({ hosts: two.etcd.endpoints, session: { releaseDelayMs: 60_000 } });
    const stop = new AbortController();
    const begun: string[] = [];
    let end = (): void => {};
    const service = (owner: string, priority: number) =>
      lead(
        cluster,
        name,
        ({ signal }) => {
          begun.push(owner);
          return new Promise<void>((resolve) => {
            end = resolve;
            signal.addEventListener("abort", () => resolve());
            stop.signal.addEventListener("abort", () => resolve());
          });
        },
        { owner, priority, signal: stop.signal, ttlSeconds: 20 },
      );
    const done = [service("first", 0)];
    await expect.poll(() => begun, PATIENCE).toEqual(["first"]);
    done.push(service("low", 0));
    await queued(name, 4);
    done.push(service("high", 7));
    await queued(name, 6);

    end();

    await expect.poll(() => begun, PATIENCE).toEqual(["first", "high"]);
    stop.abort();
    await Promise.all(done);
  });

  test("is asked for in vain when the key is deleted meanwhile: `lead` campaigns again", async () => {
    const name = "priority/deleted";
    await using proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint });
    const asks = (request: Buffer) =>
      request.includes("/leasehold/candidates/") && !takesPlace(request) && !givesBack(request);
    const rules = ["Txn", "Range"].map((call) =>
      proxy.rule({ path: `/etcdserverpb.KV/${call}`, act: "hold", when: asks, times: 1 }),
    );
    const stop = new AbortController();
    const terms: boolean[] = [];
    const work = ({ held }: Leadership) => {
      terms.push(held);
      if (held) stop.abort();
    };
    const done = lead(cluster, name, work, { priority: 0, signal: stop.signal, ttlSeconds: 20 });
    await Promise.race(rules.map((rule) => rule.hit()));
    const [place] = await places(name);

    await two.etcd.etcdctl(["del", place!.key]);
    await done;

    expect(terms).toEqual([false, true]);
    for (const rule of rules) rule.release();
  });

  /** A candidate whose turn has come, and whose hand-over is never answered. */
  async function handsOverInVain<T>(name: string, campaign: (cluster: Cluster) => Promise<T>) {
    const proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
    const cluster = connect({ hosts: proxy.endpoint });
    const crew = await crewOf(name, { leader: { priority: 0 } });
    const low = reasonOf(campaign(cluster));
    await queued(name, 2);
    const session = await Session.open(two.cluster, { ttlSeconds: 20, owner: "high" });
    const high = new Election(session, name).campaign("high", { priority: 5 });
    await queued(name, 3);
    const rule = proxy.rule({ path: TXN, act: "drop-request", when: givesBack });
    await (await elected(crew, "leader")).resign();
    await rule.hit();
    const dispose = async () => {
      await crew[Symbol.asyncDispose]();
      await Promise.all([session, cluster].map((it) => it.close({ drainMs: 0 })));
      await proxy.stop();
    };
    const answer = () => proxy.remove(rule);
    return { high, low, answer, [Symbol.asyncDispose]: dispose };
  }
  const campaignOn = (name: string, options: QueueWaitOptions) => async (cluster: Cluster) => {
    const session = await Session.open(cluster, { ttlSeconds: 20, owner: "low" });
    return new Election(session, name).campaign("low", { priority: 0, ...options });
  };

  test("leads next although a campaign is aborted while it hands over, which rejects at once", async () => {
    const name = "priority/aborted";
    const stop = new AbortController();
    await using it = await handsOverInVain(name, campaignOn(name, { signal: stop.signal }));
    const reason = new Error("enough");

    stop.abort(reason);

    expect(await it.low).toBe(reason);
    it.answer();
    await it.high;
    await queued(name, 1);
  });

  test("leads next although the time limit of a campaign ends while it hands over, which rejects then", async () => {
    const name = "priority/late";
    await using it = await handsOverInVain(name, campaignOn(name, { timeoutMs: 2000 }));

    expect(await it.low).toMatchObject({
      code: "ETCD_UNAVAILABLE",
      message: expect.stringContaining("within 2000 ms") as string,
    });
    it.answer();
    await it.high;
  });

  test("leads next although `lead` is stopped while it hands over, which ends within a TTL", async () => {
    const name = "priority/stopped";
    const stop = new AbortController();
    const { signal } = stop;
    const terms: unknown[] = [];
    await using it = await handsOverInVain(name, (cluster) =>
      lead(cluster, name, (term) => terms.push(term), { ttlSeconds: 5, owner: "low", priority: 0, signal }),
    );

    stop.abort();
    await it.low;

    expect(terms).toEqual([]);
    await it.high;
    await queued(name, 1);
  });

  test("within the time limit of a campaign, which its hand-overs share", async () => {
    const name = "priority/limit";
    await using crew = await crewOf(name, { leader: {} });
    const session = await Session.open(two.cluster, { ttlSeconds: 20, owner: "low" });
    const low = reasonOf(new Election(session, name).campaign("low", { priority: 0, timeoutMs: 2000 }));
    await queued(name, 2);
    const other = await Session.open(two.cluster, { ttlSeconds: 20, owner: "high" });
    const high = new Election(other, name).campaign("high", { priority: 1 });
    await queued(name, 3);

    await (await elected(crew, "leader")).resign();
    await high;

    expect(await low).toMatchObject({ code: "LOCK_TIMEOUT" });
    await queued(name, 1);
    await Promise.all([session, other].map((it) => it.close({ drainMs: 0 })));
  });
});

describe("eligible candidates", () => {
  const version = ({ labels }: ElectionCandidate) => Number(labels.version);
  /** A new version does not lead while an old one is there. */
  const oldest: CandidateOptions["eligible"] = (candidate, all) =>
    all.every((other) => version(candidate) <= version(other));
  const inZone =
    (zone: string): CandidateOptions["eligible"] =>
    ({ labels }) =>
      labels.zone === zone;

  test("by version: a new one leads when the last old one is gone", async () => {
    const of = (n: number): CandidateOptions => ({ labels: { version: `${n}` }, eligible: oldest });
    await using crew = await crewOf("eligible/version", {
      old1: of(1),
      new1: of(2),
      old2: of(1),
      new2: of(2),
    });

    await (await elected(crew, "old1")).resign();
    const second = await elected(crew, "old2");
    expect(crew.leading).toEqual(["old2"]);
    await second.resign();

    await Promise.any([elected(crew, "new1"), elected(crew, "new2")]);
    expect(crew.leading).toHaveLength(1);
  });

  test("by zone, before any priority elsewhere; where none is, whose turn it is leads", async () => {
    const of = (zone: string, priority: number): CandidateOptions => ({
      ...{ labels: { zone }, priority, eligible: inZone("a") },
    });
    await using crew = await crewOf("eligible/zone", {
      first: of("a", 0),
      b: of("b", 9),
      a1: of("a", 0),
      a2: of("a", 3),
      b2: of("b", 1),
    });

    for (const owner of ["first", "a2", "a1"]) {
      const leadership = await elected(crew, owner);
      expect(crew.leading).toEqual([owner]);
      await leadership.resign();
    }

    const [b, b2] = crew.all.filter(({ owner }) => owner.startsWith("b"));
    await Promise.any([b!.elected, b2!.elected]);
    expect(crew.leading).toHaveLength(1);
  });

  test("of whom candidates disagree, pass the leadership on to each at most once", async () => {
    const name = "eligible/disagree";
    const notMe = (owner: string): CandidateOptions => ({
      eligible: (candidate) => candidate.owner !== owner,
    });
    await using crew = await crewOf(name, { leader: {}, a: notMe("a"), b: notMe("b"), c: notMe("c") });
    const from = await revisionOf(two.etcd.member);

    await (await elected(crew, "leader")).resign();
    await Promise.any(["a", "b", "c"].map((owner) => elected(crew, owner)));

    // Each of three hands over to the two others at most.
    expect((await oldestSince(two.etcd.member, name, from)).length).toBeLessThanOrEqual(1 + 3 * 2 + 1);
    expect(crew.leading).toHaveLength(1);
  });

  test("whose rule throws reject their campaign with that, and leave", async () => {
    const name = "eligible/throws";
    const error = new Error("no rule");
    const eligible = () => {
      throw error;
    };
    expect(await reasonOf(new Election(two.session, name).campaign("a", { eligible }))).toBe(error);
    await queued(name, 0);
  });
});
