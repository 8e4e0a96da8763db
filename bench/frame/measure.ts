// One run of one peer: contenders in processes, a warm-up, and a span of time in which everything is counted.
import { setTimeout as delay } from "node:timers/promises";
import { now } from "../worker/clock.js";
import type { CycleTask, Look, Task } from "../worker/protocol.js";
import type { ContenderProcess } from "./contender-process.js";
import { cyclesOf, within, type Cycle, type Span } from "./cycles.js";
import type { Field } from "./field.js";
import { EtcdGround } from "./ground.js";

/** Contenders are spread over so many processes at most: see README.md. */
export const MAX_PROCESSES = 10;
/** Renewals are rare in a run of seconds, as in a program. */
const TTL_SECONDS = 15;
/** Clients that poll go on asking for a moment after the span, so that nobody stops within it. */
const MARGIN_MS = 500;
/** With `quick`. */
const QUICK = { warmMs: 100, spanMs: 300 };

export interface Times {
  readonly warmMs: number;
  readonly spanMs: number;
}

export interface Run extends Times {
  readonly contenders: number;
  readonly names: CycleTask["names"];
  readonly kind?: CycleTask["kind"];
  readonly holdMs: number;
  /** Each contender's own, in processes of their own as far as there are; or one for all of them. */
  readonly sessions: "each" | "one";
}

/** What etcd counted, by method. */
export type Spent = Readonly<Record<string, number>>;

export interface Measured {
  readonly span: Span;
  /** Of all processes together, within the span. */
  readonly cpuMicros: number;
  readonly spent: Spent | undefined;
}

export interface MeasuredRun extends Measured {
  /** Those within the span. */
  readonly cycles: readonly Cycle[];
}

/** Opens, runs, measures and closes. */
export async function run(field: Field, plan: Run): Promise<MeasuredRun> {
  const times = field.scale.quick ? QUICK : plan;
  const processes = await field.crew.processes(processesFor(plan));
  const shares = sharesOf(plan.contenders, processes.length);
  const sessions = (share: number) => (plan.sessions === "each" ? share : 1);
  await open(field, processes, shares.map(sessions));
  const forMs = times.warmMs + times.spanMs + MARGIN_MS;
  const { names, holdMs, kind = "cycle" } = plan;
  const task = { kind, name: field.name, names, holdMs, forMs };
  await begin(
    field,
    processes,
    shares.map((contenders) => ({ ...task, contenders })),
  );
  await delay(times.warmMs);
  const measured = await measure(processes, field, times.spanMs);
  const cycles = cyclesOf(await Promise.all(processes.map((process) => process.stop())));
  return { ...measured, cycles: within(cycles, measured.span) };
}

/** Connects all processes, with so many sessions each. */
export async function open(
  { ground: { addresses }, crew }: Pick<Field, "ground" | "crew">,
  processes: readonly ContenderProcess[],
  sessions: readonly number[],
  ttlSeconds = TTL_SECONDS,
): Promise<void> {
  try {
    const connection = { addresses, ttlSeconds };
    await Promise.all(processes.map((it, n) => it.open({ ...connection, sessions: sessions[n] ?? 1 })));
  } catch (error) {
    // Some are open and some are not.
    await crew.stop();
    throw error;
  }
}

/** Where places are in etcd, all wait behind one of ours until the last one has come: nobody has a start. */
async function begin(field: Field, processes: readonly ContenderProcess[], tasks: readonly CycleTask[]) {
  const { ground, peer, name } = field;
  const start = () => startAll(processes, tasks);
  const contenders = tasks.reduce((sum, task) => sum + task.contenders, 0);
  const crowd = contenders > 1 && tasks[0]?.names === "one";
  if (!crowd || !peer.queues || !(ground instanceof EtcdGround)) return start();
  const unblock = await ground.block(name);
  await start();
  await ground.queued(name, contenders + 1);
  await unblock();
}

export async function startAll(
  processes: readonly ContenderProcess[],
  tasks: readonly Task[],
): Promise<void> {
  await Promise.all(processes.map((process, n) => process.start(tasks[n] as Task)));
}

/** Counts what happens within so many milliseconds from now. */
export async function measure(
  processes: readonly ContenderProcess[],
  { ground }: Field,
  spanMs: number,
): Promise<Measured> {
  const counter = ground instanceof EtcdGround ? await ground.meter() : undefined;
  const before = cpuOf(await lookAll(processes));
  const from = now();
  await delay(spanMs);
  const to = now();
  const cpuMicros = cpuOf(await lookAll(processes)) - before;
  return { span: { from, to }, cpuMicros, spent: await counter?.read() };
}

const lookAll = (processes: readonly ContenderProcess[]) => Promise.all(processes.map((it) => it.look()));
const cpuOf = (looks: readonly Look[]) => looks.reduce((sum, { cpuMicros }) => sum + cpuMicros, 0);

const processesFor = ({ contenders, sessions }: Run) =>
  sessions === "one" ? 1 : Math.min(contenders, MAX_PROCESSES);

/** As even as can be. */
export const sharesOf = (contenders: number, processes: number): number[] =>
  Array.from({ length: processes }, (_, n) => Math.floor((contenders + n) / processes));

const STREAMS = ["Watch", "LeaseKeepAlive"];

/** Unary calls. */
export const calls = (spent: Spent | undefined) =>
  sum(spent, (what) => what !== "revisions" && !STREAMS.includes(what));
/** Messages sent to etcd on streams. */
export const messages = (spent: Spent | undefined) => sum(spent, (what) => STREAMS.includes(what));

function sum(spent: Spent | undefined, wanted: (what: string) => boolean): number {
  if (spent === undefined) return NaN;
  return Object.entries(spent).reduce((total, [what, count]) => total + (wanted(what) ? count : 0), 0);
}
