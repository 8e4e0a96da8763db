// Replicas of an example that runs jobs on a schedule: their clocks differ, and they are killed at random.
import { setTimeout as delay } from "node:timers/promises";
import { connect, once } from "../../../src/index.js";
import { Examples, type Program } from "../fixtures/examples.js";
import { SHIFT_DATE } from "./workers.js";

const SKEWS_MS = [5000, 0, -5000];
/**
 * A replica that lived for so long after a tick has run it, or printed why not: before that, its call may still wait in the
 * queue behind the runs of replicas that were killed, each for one TTL.
 */
const SURE_MS = 8000;
const FIRST_KILL_MS = 500;

export interface Schedule {
  readonly file: string;
  readonly endpoints: readonly string[];
  readonly jobs: number;
  /** Of each job, one a second. */
  readonly ticks: number;
  readonly seed: number;
}

export interface Figures {
  readonly ticks: number;
  readonly runOnce: number;
  readonly runTwice: readonly string[];
  /** Begun, or claimed, by a replica that was killed; later callers are told. */
  readonly lostAndTold: number;
  /** The lock was held when they came: by the tick before, or by a replica that was killed. */
  readonly skipped: number;
  readonly lostAndNotTold: readonly string[];
  /** Each replica was killed before its call ended, or did not live, and none has been told anything about the tick. */
  readonly notCalled: number;
  readonly kills: number;
}

/** One life of a replica, on this machine's clock. */
interface Life {
  readonly skewMs: number;
  readonly program: Program;
  upAt: number;
  downAt: number;
}

export async function runSchedule(schedule: Schedule): Promise<Figures> {
  const { file, endpoints, jobs, ticks, seed } = schedule;
  const names = Array.from({ length: jobs }, (_, n) => `${file.replace(/\W/g, "-")}-${seed}-${n}`);
  const env = { JOBS: names.join(), SCHEDULE: "* * * * * *", WORK_MS: "30" };
  await using examples = new Examples(endpoints, env);
  const lives: Life[] = [];
  const begin = async (skewMs: number): Promise<Life> => {
    const also = process.env["NODE_OPTIONS"] ?? "";
    const shift = `--import=${SHIFT_DATE} --import=data:text/javascript,shiftDate(${skewMs})`;
    const program = examples.start(file, { env: { NODE_OPTIONS: `${also} ${shift}` } });
    const life = { skewMs, program, upAt: Infinity, downAt: Infinity };
    lives.push(life);
    await program.says("scheduled");
    life.upAt = Date.now();
    return life;
  };
  const replicas = await Promise.all(SKEWS_MS.map(begin));
  // All three are called for each tick, if they live: the first one 5 s before, the last one 5 s after.
  const first = Math.ceil(Date.now() / 1000) * 1000 + 6000;
  const end = first + ticks * 1000 + 5000;
  const random = mulberry32(seed);
  let kills = 0;
  await delay(FIRST_KILL_MS);
  while (Date.now() < end) {
    const n = Math.floor(random() * replicas.length);
    const life = replicas[n] as Life;
    life.downAt = Date.now();
    life.program.signal("SIGKILL");
    kills++;
    await life.program.ended;
    replicas[n] = await begin(life.skewMs);
    await delay(1000 + random() * 2000);
  }
  for (const { program } of replicas) program.signal("SIGKILL");
  const ended = await Promise.all(lives.map(({ program }) => program.ended));
  const output = ended.map(({ stdout }) => stdout);
  const errors = ended.flatMap(({ stderr }) => stderr.match(/^\S*Error.*|.*missed execution.*/gm) ?? []);
  if (errors.length > 0) console.log(`${errors.length} errors, such as ${errors.slice(0, 5).join("; ")}`);
  const slots = Array.from({ length: ticks }, (_, n) => first + n * 1000);
  return { ...(await judge({ endpoints, names, slots, lives, lines: output.join("").split("\n") })), kills };
}

interface Evidence {
  readonly endpoints: readonly string[];
  readonly names: readonly string[];
  readonly slots: readonly number[];
  readonly lives: readonly Life[];
  readonly lines: readonly string[];
}

/** What the replicas have printed, and what etcd tells a later caller. */
async function judge({ endpoints, names, slots, lives, lines }: Evidence): Promise<Omit<Figures, "kills">> {
  const begun = new Map<string, number>();
  const answered = new Set<string>();
  const held = new Set<string>();
  for (const line of lines) {
    const [tick = "", what] = line.split(" ");
    answered.add(tick);
    if (line.endsWith("not run here: held")) held.add(tick);
    if (what === "begun") begun.set(tick, (begun.get(tick) ?? 0) + 1);
  }
  const figures = { ticks: 0, runOnce: 0, lostAndTold: 0, skipped: 0, notCalled: 0 };
  const [runTwice, lostAndNotTold]: [string[], string[]] = [[], []];
  await using cluster = connect({ hosts: endpoints, session: { ttlSeconds: 10 } });
  for (const name of names)
    for (const slot of slots) {
      const tick = `${name}:${new Date(slot).toISOString()}`;
      const runs = begun.get(tick) ?? 0;
      const told = await lastWord(cluster, `cron/${name}`, slot);
      figures.ticks++;
      if (runs > 1) runTwice.push(tick);
      else if (told === "lost") figures.lostAndTold++;
      else if (runs === 1 && told === "done") figures.runOnce++;
      else if (told === "free" && held.has(tick)) figures.skipped++;
      else if (told === "free" && !answered.has(tick) && !lives.some((life) => wasCalled(life, slot)))
        figures.notCalled++;
      else lostAndNotTold.push(`${tick}: ${runs} runs, ${told}`);
    }
  return { ...figures, runTwice, lostAndNotTold };
}

/** What `once` says when all replicas are gone: it waits until the lease of a run has expired. */
async function lastWord(cluster: ReturnType<typeof connect>, name: string, slot: number): Promise<string> {
  for (;;) {
    const result = await once(cluster, name, slot, () => undefined);
    if (result.ran) return "free";
    if (result.reason !== "running") return result.reason;
    await delay(100);
  }
}

const wasCalled = ({ skewMs, upAt, downAt }: Life, slot: number): boolean => {
  const dueAt = slot - skewMs;
  return dueAt > upAt + SURE_MS && dueAt + SURE_MS < downAt && dueAt + SURE_MS < Date.now();
};

/** A small generator with a seed. */
function mulberry32(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
