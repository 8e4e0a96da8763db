import type { Guardian } from "../../support/servers/guarded.js";
import { EtcdGround } from "./grounds/etcd.js";
import type { Ground } from "./grounds/ground.js";
import { RedisPair, RedisTrio } from "./grounds/redis.js";
import type { Line } from "./line.js";
import { within } from "./patience.js";
import { bookOf } from "./rules/book.js";
import type { Finding } from "./rules/rule.js";
import { LABELS, RULES, type Label } from "./rules/rules.js";
import { longestStall } from "./rules/stalls.js";
import type { Scenario } from "./scenarios/scenario.js";
import { Stage, TTL_MS } from "./stage.js";
import type { Subject } from "./subjects/subjects.js";

/** Longer than any scenario in which every wait times out. */
const LIMIT_MS = 150_000;
/** redis-semaphore renews this long before the end of its TTL: a process that stalls for longer loses its lock. */
const STALL_MS = 0.15 * TTL_MS;

export interface Played {
  readonly subject: Subject;
  readonly scenario: Scenario;
  /** The version of the servers. */
  readonly version: string;
  readonly lines: readonly Line[];
  readonly findings: Readonly<Record<Label, Finding>>;
}

/** This machine stalled during the scenario: the result would be wrongly blamed on the subject. */
export class StalledError extends Error {}

/** Plays one scenario with one subject, on its own servers. */
export async function play(subject: Subject, scenario: Scenario, guardian: Guardian): Promise<Played> {
  const { lines, version } = await perform(subject, scenario, guardian);
  const book = bookOf(lines, { ttlMs: TTL_MS, queues: subject.queues });
  const stalled = longestStall(book);
  if (stalled > STALL_MS) throw new StalledError(`this machine stood still for ${stalled} ms`);
  const found = LABELS.map((label) => [label, RULES[label](book)] as const);
  const findings = Object.fromEntries(found) as Record<Label, Finding>;
  return { subject, scenario, version, lines, findings };
}

async function perform(subject: Subject, scenario: Scenario, guardian: Guardian) {
  const ground = await startGround(subject, scenario);
  const stage = new Stage({ subject, ground, guardian });
  try {
    const played = scenario.play(stage).then(() => stage.settle());
    const ended = await within(
      LIMIT_MS,
      played.then(() => true),
    );
    if (ended === undefined) throw new Error(`no end within ${LIMIT_MS / 1000} s`);
    return { lines: stage.lines, version: ground.version };
  } finally {
    await stage.stop();
    await ground.stop();
  }
}

function startGround({ ground }: Subject, { members = 1, calls = false }: Scenario): Promise<Ground> {
  if (ground === "etcd") return EtcdGround.start({ members, calls });
  return ground === "redis-pair" ? RedisPair.start() : RedisTrio.start();
}
