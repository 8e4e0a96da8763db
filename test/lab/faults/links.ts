import type { TcpProxy } from "../../support/proxies/tcp-proxy.js";
import type { FaultKind, Field, Ground } from "../runner/ground.js";
import { moment } from "../runner/schedule.js";
import { onCalls, TXN, type Called } from "./calls.js";

/** A ground with one of our proxies between the workers and each member. */
export interface Linked extends Ground {
  readonly links: readonly TcpProxy[];
}

interface Bend {
  readonly name: string;
  readonly lasts?: FaultKind["lasts"];
  readonly bend: (link: TcpProxy, field: Field<Linked>) => Promise<void> | void;
  readonly mend?: (link: TcpProxy) => Promise<void> | void;
}

/** On one link: it leads to the leader as often as to any other member. */
const onLink = ({ name, lasts, bend, mend }: Bend): FaultKind<Linked> => ({
  ...{ name, effect: "hinders" as const, ...(lasts && { lasts }) },
  async inflict(field) {
    const { ground, random } = field;
    const member = random.chance(0.5) ? await ground.leader() : random.pick(ground.members);
    const link = ground.links[ground.members.indexOf(member)];
    if (link === undefined) return undefined;
    await bend(link, field);
    return { target: member.name, heal: async () => mend?.(link) };
  },
});

const SLOW_MS = 150;
const pass = (link: TcpProxy) => link.mode("pass");
const dropNothing = (link: TcpProxy) => link.drop(undefined);

export const linkFaults: readonly FaultKind<Linked>[] = [
  onLink({ name: "link-pause", bend: (link) => link.mode("pause"), mend: pass }),
  onLink({ name: "link-blackhole", bend: (link) => link.mode("blackhole"), mend: pass }),
  onLink({ name: "link-refuse", bend: (link) => link.mode("refuse"), mend: pass }),
  onLink({ name: "link-reset", lasts: moment, bend: (link) => link.reset() }),
  onLink({ name: "link-delay", bend: (link) => link.delay(SLOW_MS), mend: (link) => link.delay(0) }),
  onLink({ name: "drop-answers", bend: (link) => link.drop("answers"), mend: dropNothing }),
  onLink({ name: "drop-requests", bend: (link) => link.drop("requests"), mend: dropNothing }),
];

/**
 * Answers come so late that a keepalive is just in time, then no more answers come: a client that counts a deadline
 * from the receipt trusts it longer than etcd keeps the lease. On all links, so that no other member helps.
 */
export const lateThenSilent: FaultKind<Linked> = {
  name: "late-then-silent",
  effect: "hinders",
  lasts: (_, ttlMs) => 1.3 * ttlMs,
  async inflict({ ground, ttlMs }) {
    for (const link of ground.links) link.delay(lateBy(ttlMs), "answers");
    await new Promise((resolve) => setTimeout(resolve, ttlMs));
    for (const link of ground.links) await link.mode("blackhole");
    return { target: "all", heal: () => heal(ground.links) };
  },
};

/** The time limit of an attempt: a quarter of a TTL, or the request timeout of the workers. */
const attemptMs = (ttlMs: number) => Math.min(ttlMs / 4, 1000);

const slowTxns = onCalls("late-answers", {
  ...{ path: TXN, act: "delay", share: 0.5 },
  ms: (random, ttlMs) => attemptMs(ttlMs) - random.between(40, SLOW_MS - 20),
});

/**
 * Some answers leave just before the time limit of their calls and come just after it: the client has cancelled the call
 * while its answer was on the way.
 */
export const lateAnswers: FaultKind<Linked & Called> = {
  ...slowTxns,
  async inflict(field) {
    const { links } = field.ground;
    for (const link of links) link.delay(SLOW_MS, "answers");
    const inflicted = await slowTxns.inflict(field);
    const heal = async () => {
      for (const link of links) link.delay(0);
      await inflicted?.heal?.();
    };
    return { target: "all", heal };
  },
};

/** Shorter than the time that the library waits for a keepalive, min(TTL/6, 1.5 s). */
const lateBy = (ttlMs: number) => 0.9 * Math.min(ttlMs / 6, 1500);

async function heal(links: readonly TcpProxy[]): Promise<void> {
  for (const link of links) link.delay(0);
  await Promise.all(links.map(pass));
}
