import type { Guardian } from "../../support/guarded.js";
import { EtcdGround } from "./grounds/etcd.js";
import type { Ground } from "./grounds/ground.js";
import { RedisPair, RedisTrio } from "./grounds/redis.js";
import type { Line } from "./line.js";
import { within } from "./patience.js";
import { bookOf } from "./rules/book.js";
import type { Finding } from "./rules/rule.js";
import { LABELS, RULES, type Label } from "./rules/rules.js";
import type { Scenario } from "./scenarios/scenario.js";
import { Stage, TTL_MS } from "./stage.js";
import type { Subject } from "./subjects/subjects.js";

/** Longer than any scenario whose every wait is in vain. */
const LIMIT_MS = 150_000;

export interface Played {
  readonly subject: Subject;
  readonly scenario: Scenario;
  /** Of the servers. */
  readonly version: string;
  readonly lines: readonly Line[];
  readonly findings: Readonly<Record<Label, Finding>>;
}

/** One scenario with one subject, on servers of its own. */
export async function play(subject: Subject, scenario: Scenario, guardian: Guardian): Promise<Played> {
  const ground = await startGround(subject, scenario);
  const stage = new Stage({ subject, ground, guardian });
  try {
    const ended = await within(LIMIT_MS, perform(scenario, stage));
    if (ended === undefined) throw new Error(`no end within ${LIMIT_MS / 1000} s`);
    const { lines } = stage;
    return { subject, scenario, version: ground.version, lines, findings: judge(lines, subject) };
  } finally {
    await stage.stop();
    await ground.stop();
  }
}

async function perform(scenario: Scenario, stage: Stage): Promise<true> {
  await scenario.play(stage);
  await stage.settle();
  return true;
}

export function judge(lines: readonly Line[], { queues }: Pick<Subject, "queues">) {
  const book = bookOf(lines, { ttlMs: TTL_MS, queues });
  const found = LABELS.map((label) => [label, RULES[label](book)] as const);
  return Object.fromEntries(found) as Record<Label, Finding>;
}

function startGround({ ground }: Subject, { members = 1, calls = false }: Scenario): Promise<Ground> {
  if (ground === "etcd") return EtcdGround.start({ members, calls });
  return ground === "redis-pair" ? RedisPair.start() : RedisTrio.start();
}
