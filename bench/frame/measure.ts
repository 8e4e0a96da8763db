// One run of one peer: contenders in processes, a warm-up, and a span of time in which everything is counted.
import { setTimeout as delay } from "node:timers/promises";
import { now } from "../worker/clock.js";
import type { CycleTask, Look, Task } from "../worker/protocol.js";
import type { ContenderProcess } from "./contender-process.js";
import { cyclesOf, within, type Cycle, type Span } from "./cycles.js";
import type { Field } from "./field.js";
import { EtcdGround } from "./ground.js";

/** The maximum number of processes over which contenders are spread: see README.md. */
const MAX_PROCESSES = 10;
/** Renewals are as rare in a run of seconds as in a program. */
export const TTL_SECONDS = 15;
/** Clients that poll continue for a moment after the span, so that none stops within it. */
const MARGIN_MS = 500;
/**
 * Before its first run, each process does this many cycles, or as many as it does within this time, over each of two
 * connections. Node.js keeps compiling for thousands of cycles, and the end of the first connection discards a good part of
 * the result: 10 contenders then hand over 364 times a second, and 700 times 30 s later.
 */
const WARM_UP = { connections: 2, cycles: 5000, withinMs: 30_000 };
/** One is granted, one waits for the grant, and one for both: the work of any larger number. */
const WARMING = 3;
const LOOK_MS = 50;
const PATIENCE_MS = 60_000;
/** With `quick`. */
const QUICK = { warmMs: 100, spanMs: 300 };
const QUICK_PROCESSES = 2;

export interface Times {
  readonly warmMs: number;
  readonly spanMs: number;
}

export interface Run extends Times {
  readonly contenders: number;
  readonly names: CycleTask["names"];
  readonly kind?: CycleTask["kind"];
  readonly holdMs: number;
  /** "each": one per contender, spread over several processes as far as available; "one": one for all of them. */
  readonly sessions: "each" | "one";
}

/** What etcd counted, by method. */
export type Spent = Readonly<Record<string, number>>;

/** The counts, per cycle. */
export interface Costs {
  /** Microseconds of all processes of contenders together. */
  readonly cpu: number;
  /** Unary calls that etcd answered; messages sent to it on streams; writes. */
  readonly rpcs: number;
  readonly messages: number;
  readonly revisions: number;
}

export interface Measured {
  readonly span: Span;
  /** For all processes together, within the span. */
  readonly cpuMicros: number;
  /** Missing if the server does not count. */
  readonly spent: Spent | undefined;
  /** The span in which etcd has counted, which differs slightly because reading the counters takes a moment. */
  readonly counted: Span;
}

export interface MeasuredRun {
  readonly span: Span;
  /** The cycles within the span. */
  readonly cycles: readonly Cycle[];
  readonly costs: Costs;
}

/** Opens, runs, measures and closes. */
export async function run(field: Field, plan: Run): Promise<MeasuredRun> {
  const times = field.scale.quick ? QUICK : plan;
  const processes = await field.crew.processes(processesFor(plan, field.scale.quick));
  await warmUp(field, field.crew.cold(processes), plan);
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
  const all = cyclesOf(await Promise.all(processes.map((process) => process.stop())));
  const { span } = measured;
  return { span, cycles: within(all, span), costs: costsOf(all, measured) };
}

function costsOf(all: readonly Cycle[], { span, cpuMicros, spent, counted }: Measured): Costs {
  const n = within(all, counted).length;
  return {
    cpu: cpuMicros / within(all, span).length,
    ...{
      rpcs: callsOf(spent) / n,
      messages: messages(spent) / n,
      revisions: sum(spent, (what) => what === "revisions") / n,
    },
  };
}

/** Code that a process has just loaded is not compiled yet, and ten times slower: a short run would measure that. */
export async function warmUp(
  field: Field,
  cold: readonly ContenderProcess[],
  plan: Pick<Run, "kind">,
): Promise<void> {
  if (field.scale.quick || field.peer.compiled || cold.length === 0) return;
  for (let n = 0; n < WARM_UP.connections; n++)
    await warmOverOne(field, cold, { ...plan, name: `warm-${n}` });
}

async function warmOverOne(
  field: Field,
  cold: readonly ContenderProcess[],
  { kind, name }: Pick<Run, "kind"> & { readonly name: string },
): Promise<void> {
  const { cycles, withinMs } = WARM_UP;
  const contenders = field.peer.queues ? WARMING : 1;
  await open(
    field,
    cold,
    cold.map(() => contenders),
  );
  // There is nothing yet that would refuse a `tryLock`.
  const warming = kind === "call" ? kind : "cycle";
  const task = { kind: warming, names: "one", holdMs: 0, forMs: withinMs, contenders } as const;
  await startAll(
    cold,
    cold.map((_, n) => ({ ...task, name: `${field.name}-${name}-${n}` })),
  );
  const warm = async () => (await lookAll(cold)).every(({ granted }) => granted >= cycles);
  for (const until = performance.now() + withinMs; performance.now() < until && !(await warm());)
    await delay(LOOK_MS);
  await Promise.all(cold.map((process) => process.stop()));
}

/** Connects all processes, with this many sessions each. */
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
    // Some may be open and others not.
    await crew.stop();
    throw error;
  }
}

/**
 * If places are in etcd, all wait behind a place of the bench until the last one has joined, so that none has a head
 * start.
 */
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

/** Resolves when a process has had this many locks since its task was started. */
export async function untilGranted(process: ContenderProcess, count: number): Promise<Look> {
  let stallMs = 0;
  for (const until = performance.now() + PATIENCE_MS; performance.now() < until; await delay(LOOK_MS)) {
    const look = await process.look();
    stallMs = Math.max(stallMs, look.stallMs);
    if (look.granted >= count) return { ...look, stallMs };
  }
  throw new Error(`fewer than ${count} locks in ${PATIENCE_MS} ms`);
}

/** Counts what happens within this many milliseconds from now. */
export async function measure(
  processes: readonly ContenderProcess[],
  { ground }: Pick<Field, "ground">,
  spanMs: number,
): Promise<Measured> {
  const [counter, countedFrom] = await amid(() => ground.meter?.());
  const before = cpuOf(await lookAll(processes));
  const from = now();
  await delay(spanMs);
  const to = now();
  const cpuMicros = cpuOf(await lookAll(processes)) - before;
  const [spent, countedTo] = await amid(() => counter?.read());
  return { span: { from, to }, cpuMicros, spent, counted: { from: countedFrom, to: countedTo } };
}

/** The answer describes the state at about the middle of the request. */
async function amid<T>(ask: () => Promise<T> | T): Promise<readonly [T, number]> {
  const before = now();
  const answer = await ask();
  return [answer, (before + now()) / 2];
}

const lookAll = (processes: readonly ContenderProcess[]) => Promise.all(processes.map((it) => it.look()));
const cpuOf = (looks: readonly Look[]) => looks.reduce((sum, { cpuMicros }) => sum + cpuMicros, 0);

function processesFor({ contenders, sessions }: Run, quick: boolean): number {
  if (sessions === "one") return 1;
  return Math.min(contenders, quick ? QUICK_PROCESSES : MAX_PROCESSES);
}

/** As evenly as possible. */
export const sharesOf = (contenders: number, processes: number): number[] =>
  Array.from({ length: processes }, (_, n) => Math.floor((contenders + n) / processes));

const STREAMS = ["Watch", "LeaseKeepAlive"];

/** Unary calls. */
export const callsOf = (spent: Spent | undefined) =>
  sum(spent, (what) => what !== "revisions" && !STREAMS.includes(what));
/** Messages sent to etcd on streams. */
const messages = (spent: Spent | undefined) => sum(spent, (what) => STREAMS.includes(what));

/** `NaN` if the server does not count. */
function sum(spent: Spent | undefined, wanted: (what: string) => boolean): number {
  if (spent === undefined) return NaN;
  return Object.entries(spent).reduce((total, [what, count]) => total + (wanted(what) ? count : 0), 0);
}
