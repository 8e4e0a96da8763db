// What observers receive while their connection to etcd breaks, judged by etcd's own history on an undisturbed
// connection.
import { describe, expect, test } from "vitest";
import { connect, Election, lead, type Leader, Session } from "../../../src/index.js";
import { nextLeader } from "../../support/fixtures/next-leader.js";
import { observe as watchRaw, type Observer } from "../../support/clients/observer.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(20);
const PATIENCE = { timeout: 20_000 };

const textOf = (leader: Leader | undefined) => (leader ? `${leader.key}@${leader.modRevision}` : "nobody");

/** The leader after each revision that changed it, starting with none. */
function leadersIn({ seen }: Observer): string[] {
  const living = new Map<string, string>();
  const leaders = ["nobody"];
  seen.forEach(({ type, key, mod }, n) => {
    if (type === "DELETE") living.delete(key);
    else living.set(key, `${key}@${mod}`);
    const [leader = "nobody"] = living.values();
    if (seen[n + 1]?.mod !== mod && leader !== leaders.at(-1)) leaders.push(leader);
  });
  return leaders;
}

/** An observer behind a connection that can be cut, and what it has received so far; `raw` sees everything. */
async function observing(name: string) {
  const proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
  const cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 1000 });
  const raw = await watchRaw(two.etcd.member.endpoint, `${name}/`);
  const iterator = new Election(cluster, name).observe();
  const told = [textOf(await nextLeader(iterator))];
  const reading = (async () => {
    for await (const leader of iterator) told.push(textOf(leader));
  })();
  const stop = async () => {
    await iterator.return?.();
    await reading;
    raw[Symbol.dispose]();
    await cluster.close();
    await proxy.stop();
  };
  return { proxy, cluster, raw, told, [Symbol.asyncDispose]: stop };
}

/** Two candidates lead alternately; the second one usually waits behind the first. */
async function contest(name: string, terms: number, changed: () => void): Promise<void> {
  const candidates = await Promise.all([1, 2].map(() => Session.open(two.cluster, { ttlSeconds: 20 })));
  const campaign = async (session: Session) => {
    const election = new Election(session, name);
    for (let term = 0; term < terms; term++) {
      const leadership = await election.campaign(`term ${term}`);
      for (let n = 0; n < 4; n++) {
        await leadership.proclaim(`term ${term}, ${n}`);
        changed();
      }
      await leadership.resign();
      changed();
    }
  };
  await Promise.all(candidates.map(campaign));
  await Promise.all(candidates.map((session) => session.close()));
}

describe("an observer whose line breaks", () => {
  test("yields every change once and in order, although the connection breaks again and again", async () => {
    const name = "broken/again";
    await using observer = await observing(name);
    const { proxy, raw, told } = observer;
    let changes = 0;

    await contest(name, 60, () => ++changes % 7 === 0 && proxy.reset());
    const last = await new Election(two.session, name).campaign("the end");
    await raw.put(last.key);

    const leaders = leadersIn(raw);
    await expect.poll(() => told.at(-1), PATIENCE).toBe(`${last.key}@${last.revision}`);
    expect(told).toEqual(leaders);
    expect(leaders.length).toBeGreaterThan(500);
    await last.resign();
  });

  test("yields everything that happened during an outage", async () => {
    const name = "broken/outage";
    const leadership = await new Election(two.session, name).campaign("v0");
    await using observer = await observing(name);
    const { proxy, cluster, raw, told } = observer;

    await proxy.mode("refuse");
    for (let n = 1; n <= 5; n++) await leadership.proclaim(`v${n}`);
    await leadership.resign();
    const next = await new Election(two.session, name).campaign("v6");
    await proxy.mode("pass");
    await new Election(cluster, name).leader();

    await expect.poll(() => told.at(-1), PATIENCE).toBe(`${next.key}@${next.revision}`);
    await raw.put(next.key);
    expect(told.slice(1)).toEqual(leadersIn(raw).slice(1));
    expect(told).toHaveLength(8);
    await next.resign();
  });

  test("yields nothing when nothing has changed meanwhile", async () => {
    const name = "broken/nothing";
    const leadership = await new Election(two.session, name).campaign("v0");
    await using observer = await observing(name);
    const { proxy, cluster, told } = observer;

    await proxy.mode("refuse");
    await proxy.mode("pass");
    await new Election(cluster, name).leader();
    await leadership.proclaim("v1");

    await expect.poll(() => told, PATIENCE).toHaveLength(2);
    expect(told.map((leader) => leader.replace(/@.*/, ""))).toEqual([leadership.key, leadership.key]);
    await leadership.resign();
  });

  test("yields the current state when etcd has compacted what it missed", async () => {
    const name = "broken/forgotten";
    const leadership = await new Election(two.session, name).campaign("v0");
    await using observer = await observing(name);
    const { proxy, raw, told } = observer;

    await proxy.mode("refuse");
    for (let n = 1; n <= 3; n++) await leadership.proclaim(`v${n}`);
    const { revision } = await two.etcd.member.status();
    await two.etcd.etcdctl(["compact", String(revision)]);
    await expect.poll(() => raw.seen.length).toBe(3);
    const compacted = leadersIn(raw).length;
    for (let n = 4; n <= 6; n++) await leadership.proclaim(`v${n}`);
    await proxy.mode("pass");
    await expect.poll(() => told.length, PATIENCE).toBe(2);
    await leadership.resign();

    await expect.poll(() => told.at(-1), PATIENCE).toBe("nobody");
    await expect.poll(() => leadersIn(raw).at(-1)).toBe("nobody");
    expect(told).toEqual([told[0], ...leadersIn(raw).slice(-2)]);
    expect(leadersIn(raw).length).toBe(compacted + 4);
  });
});

test("`onLeader` gets everything that happened during an outage", async () => {
  const name = "broken/lead";
  const rival = await new Election(two.session, name).campaign("v0");
  await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
  await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 1000 });
  const heard: (string | undefined)[] = [];
  const stop = new AbortController();
  const onLeader = (leader: Leader | undefined) => void heard.push(leader?.value);
  const done = lead(cluster, name, () => undefined, { signal: stop.signal, onLeader });
  await two.queued(name, 2);
  await expect.poll(() => heard, PATIENCE).toEqual(["v0"]);

  await proxy.mode("refuse");
  for (let n = 1; n <= 3; n++) await rival.proclaim(`v${n}`);
  await proxy.mode("pass");

  await expect.poll(() => heard, PATIENCE).toEqual(["v0", "v1", "v2", "v3"]);
  stop.abort();
  await done;
  await rival.resign();
});
