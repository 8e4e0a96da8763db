import type { SimNode } from "../node/sim-node.js";
import { CALM, type Link } from "../../../src/testing/memory/network/link.js";
import type { EntryView, Frame, LinkView, ProcessView, QueueView } from "./protocol.js";
import type { PlaySession } from "./session.js";
import { formatSetting } from "./setting.js";
import { ownerOf } from "./story/story.js";

/** The wall clock of a process without an offset, at the start. */
const EPOCH = Date.UTC(2031, 4, 5);

/** What the page draws: the state of a run now. */
export function frameOf(session: PlaySession): Frame {
  const { run, pacer, phase, problem, broken, judged } = session;
  const { kernel, crew } = run.world;
  const { hash, calls } = run.result();
  return {
    ...{ now: pacer.now, rate: pacer.rate, next: pacer.next, events: kernel.events, calls, hash },
    ...{ playing: pacer.playing, speed: pacer.speed, skipsQuiet: pacer.skipsQuiet },
    ...{ phase, problem, broken, judged },
    members: crew.etcd.members.map(({ host }) => new URL(host).hostname),
    ...{ revision: String(crew.etcd.store.revision), leases: crew.etcd.leases.all.length },
    watches: crew.etcd.watches,
    processes: crew.nodes.map((node, n) => processOf(session, node, n)),
    queues: queuesOf(session),
    flights: session.flights.view(),
    afflictions: session.afflictions.map(({ order, text }) => ({ order, text })),
    query: formatSetting(session.repeated),
  };
}

function processOf({ run, story, afflictions }: PlaySession, node: SimNode, n: number): ProcessView {
  const { crew, kernel } = run.world;
  const { clock, links } = node;
  const p = crew.processes[n]!;
  const { holds, waits } = story.doings.of(p);
  const short = lockName(run.result().run.setting.locks);
  return {
    p,
    state: clock.killed ? "dead" : clock.paused ? "paused" : "alive",
    offsetMs: Math.round(clock.date().getTime() - EPOCH - kernel.now),
    driftPercent: Math.round(clock.drift * 10_000) / 100,
    holds: [...holds.values()].map(({ lock, key, fence }) => ({
      ...{ lock: short(lock), fence },
      real: crew.server.of(key) !== undefined,
    })),
    waits: [...waits.values()].map(short),
    links: links.map((link, member) => linkOf(link, afflictionOf(afflictions, `${n}>${member}`))),
    order: afflictionOf(afflictions, p),
  };
}

const afflictionOf = (afflictions: PlaySession["afflictions"], target: string): number | undefined =>
  afflictions.find((each) => each.target === target)?.order;

const lockName =
  (prefix: string) =>
  (lock: string): string =>
    lock.startsWith(prefix) ? lock.slice(prefix.length) : lock;

function linkOf({ state, profile }: Link, order: number | undefined): LinkView {
  return { state: state === "up" && profile !== CALM ? "slow or lossy" : state, order };
}

/** The queue of each name, in create order. */
function queuesOf({ run, story, setting }: PlaySession): QueueView[] {
  const { crew } = run.world;
  const short = lockName(run.result().run.setting.locks);
  const leases = new Map(crew.etcd.leases.all.map((lease) => [lease.leaseId.toString(16), lease]));
  const leftOf = (lease: string): number | undefined => crew.etcd.remainingMs(BigInt(`0x${lease}`));
  const queues = new Map<string, EntryView[]>();
  for (let n = 1; n <= setting.options.names; n++) queues.set(`n${n}`, []);
  for (const key of crew.livingKeys()) {
    const { create, lease, value } = crew.server.of(key)!;
    const { ttlSeconds = 0 } = leases.get(lease) ?? {};
    const ttlMs = ttlSeconds * 1000;
    const name = short(key.slice(0, key.lastIndexOf("/")));
    const entry = {
      ...{ key, owner: ownerOf(value), fence: String(create), lease },
      ...{ leftMs: leftOf(lease) ?? ttlMs, ttlMs },
      granted: story.doings.granted.has(key),
    };
    queues.set(name, [...(queues.get(name) ?? []), entry]);
  }
  return [...queues].map(([name, entries]) => ({ name, entries }));
}
