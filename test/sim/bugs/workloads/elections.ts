// Leaders and observers.
import { judge } from "../../../lab/checker/judge.js";
import type { Election, Leadership } from "../../../../src/index.js";
import type { Step } from "../../../lab/runner/history.js";
import { HistoryClock } from "../../run/node-time.js";
import { ServerEvents } from "../../run/server-events.js";
import type { SimNode } from "../../node/sim-node.js";
import type { Workload, World } from "./world.js";

const NAME = "lock/e";

/** Work that writes under its leadership's guard, and throws when etcd rejects that. */
async function guardedWork(
  world: World,
  member: ReturnType<SimNode["connection"]>,
  { leadership, stop }: { readonly leadership: Leadership; readonly stop: AbortSignal },
): Promise<void> {
  const { key, fence: revision, signal } = leadership;
  while (!signal.aborted && !stop.aborted) {
    const put = { kind: "put", key: "register", value: key, leaseId: 0n } as const;
    const compare = [{ kind: "created at", key, revision } as const];
    const txn = { queues: ["register"], compare, success: [put], failure: [] };
    const [answer] = await member.txns([txn], { timeoutMs: 1000 });
    if (!answer?.succeeded) throw new Error("etcd rejected a write of the leader");
    await world.sleep(world.random.between(1, 40));
  }
}

/** lead() continues through losses, also if `work` gets the error of one from etcd first. */
export const leadThroughLosses: Workload = async (world) => {
  const { leasehold, ttlSeconds, random, etcd } = world;
  const stop = new AbortController();
  const nodes = [world.node("a"), world.node("b")];
  const members = nodes.map((node) => node.connection());
  const leading = nodes.map((node, n) =>
    leasehold
      .lead(
        node.cluster,
        NAME,
        (leadership) => guardedWork(world, members[n]!, { leadership, stop: stop.signal }),
        { ttlSeconds, signal: stop.signal },
      )
      .catch((error: unknown) => {
        world.expect(false, "lead continues", `lead() rejected with ${String(error)}`);
      }),
  );
  for (let left = 10; left > 0; left--) {
    await world.sleep(random.between(500, 5000));
    const [key] = world.keys(`${NAME}/`);
    if (key === undefined) continue;
    const lease = BigInt(`0x${key.slice(NAME.length + 1).split("-")[0]!}`);
    if (random.chance(0.5)) world.deleteKey(key);
    else etcd.leases.revoke(lease);
  }
  stop.abort();
  await Promise.all(leading);
  for (const member of members) member.retire();
  await world.close();
};

/** Observers see every leader, through watches that break. The lab's rule judges. */
export const observers: Workload = async (world) => {
  const { kernel, etcd, random, ttlSeconds } = world;
  const time = new HistoryClock(kernel);
  const server = new ServerEvents(time.next);
  etcd.store.onChange((change) => server.add(change));
  const history: Step[] = [];
  const note = (step: object): void => void history.push({ t: time.next(), p: "o", ...step } as Step);
  const [a, b, c, o] = [world.node("a"), world.node("b"), world.node("c"), world.node("o")];
  const stop = new AbortController();
  const observing = observe(world, { node: o, note, signal: stop.signal });
  const campaigning = [a, b, c].map((node) => campaigns(world, node, 15));
  for (let left = 4; left > 0; left--) {
    await world.sleep(random.between(0, 200));
    note({ k: "nemesis", fault: "link-cut", effect: "hinders", target: "o", on: true });
    await world.cut(o, random.between(1, 300));
    note({ k: "nemesis", fault: "link-cut", effect: "hinders", target: "o", on: false });
  }
  await Promise.all(campaigning);
  await world.sleep(20_000);
  stop.abort();
  await observing;
  const setting = { ttlSeconds, locks: "lock/", registers: "register/", members: 1 };
  const { violations } = judge({ history, server: server.events, setting }, ["I15"]);
  for (const sentence of violations.I15 ?? []) world.expect(false, "I15", sentence);
  await world.close();
};

interface Observing {
  readonly node: SimNode;
  readonly note: (step: object) => void;
  readonly signal: AbortSignal;
}

async function observe({ leasehold }: World, { node, note, signal }: Observing): Promise<void> {
  try {
    for await (const leader of new leasehold.Election(node.cluster, NAME).observe({ signal })) {
      const observed = leader && { token: leader.fence, rev: leader.modRevision, value: leader.value };
      note({ k: "observed", lock: NAME, n: 0, ...observed });
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  note({ k: "unobserved", lock: NAME, n: 0 });
}

async function campaigns(world: World, node: SimNode, times: number): Promise<void> {
  const { leasehold, random } = world;
  for (let n = 0; n < times; n++) {
    const election = new leasehold.Election(node.cluster, NAME);
    // Some candidates leave before they lead.
    const timeoutMs = random.chance(0.5) ? 60_000 : Math.ceil(random.between(1, 60));
    const leadership = await election.campaign(`${node.name} ${n}`, { timeoutMs }).catch(() => undefined);
    if (leadership === undefined) continue;
    await world.sleep(random.between(0, 60));
    await leadership.resign();
    await world.sleep(random.between(0, 60));
  }
}

/** What one candidate of `transfers` does, and what is known of all. */
interface Terms {
  readonly held: Set<Leadership>;
  /** Create revisions of the oldest keys of the queue, one after the other: who led, by etcd. */
  readonly led: readonly bigint[];
  fence: bigint;
}

/**
 * Leaders hand over to candidates of their choice, while candidates give up, lose their keys, and answers are lost. At most one leads at a
 * time, by a rising fence; and if a transfer succeeds, the candidate that it named is the next one.
 */
export const transfers: Workload = async (world) => {
  const { random, etcd } = world;
  const led: bigint[] = [];
  const queue = () =>
    etcd.store.keys
      .filter(({ key }) => key.toString().startsWith(`${NAME}/`))
      .sort((a, b) => Number(a.createRevision - b.createRevision));
  etcd.store.onChange(() => {
    const [oldest] = queue();
    if (oldest && oldest.createRevision !== led.at(-1)) led.push(oldest.createRevision);
  });
  const terms: Terms = { held: new Set(), led, fence: 0n };
  const nodes = ["a", "b", "c", "d"].map((name) => world.node(name));
  let over = false;
  const working = Promise.all(nodes.map((node) => leadsInTurn(world, node, terms))).then(() => (over = true));
  while (!over) {
    await world.sleep(random.between(20, 400));
    const [, ...waiting] = queue();
    const last = waiting.at(-1);
    if (last && random.chance(0.2)) world.deleteKey(last.key.toString());
    const loses = { loseAnswer: 0.4, loseRequest: 0.2, slow: 0.2, slowMs: 2000 };
    if (random.chance(0.3)) await world.hinder(random.pick(nodes), loses, random.between(5, 200));
  }
  await working;
  await world.close();
};

async function leadsInTurn(world: World, node: SimNode, terms: Terms): Promise<void> {
  const { leasehold, random } = world;
  for (let n = 0; n < 12; n++) {
    const election = new leasehold.Election(node.cluster, NAME);
    // Some candidates leave before they lead.
    const timeoutMs = random.chance(0.7) ? 60_000 : Math.ceil(random.between(10, 400));
    const options = { timeoutMs, priority: random.pick([0, 0, 1]) };
    const leadership = await election.campaign(node.name, options).catch(() => undefined);
    if (leadership === undefined) continue;
    const others = [...terms.held].filter(({ held }) => held);
    world.expect(others.length === 0, "one leader", `${node.name} led beside another one`);
    world.expect(leadership.fence > terms.fence, "rising fence", `${node.name} led by ${leadership.fence}`);
    terms.fence = leadership.fence;
    terms.held.add(leadership);
    await world.sleep(random.between(1, 60));
    await handsOver(world, election, { leadership, led: terms.led }).catch(() => undefined);
    terms.held.delete(leadership);
    await world.sleep(random.between(0, 60));
  }
}

/** Rejects if the transfer is refused, or the leadership is lost. */
async function handsOver(
  world: World,
  election: Election,
  { leadership, led }: { readonly leadership: Leadership; readonly led: readonly bigint[] },
): Promise<void> {
  try {
    const waiting = (await election.candidates({ timeoutMs: 2000 })).filter(({ leads }) => !leads);
    if (waiting.length === 0) return;
    const target = world.random.pick(waiting);
    await world.sleep(world.random.between(0, 30));
    await leadership.transfer(target, { timeoutMs: 2000 });
    const next = led[led.indexOf(leadership.fence) + 1];
    const what = `${leadership.fence} handed over to ${target.revision}, and ${next} led next`;
    world.expect(next === target.revision, "the named one is next", what);
  } finally {
    await leadership.resign();
  }
}
