import { setTimeout as delay } from "node:timers/promises";
import { inspect } from "node:util";
import { type Cluster, connect, LeaseholdError, type Lock, Mutex } from "../../../src/index.js";
import { LIES } from "./lies.js";
import { type Answer, type Call, startRawServer } from "./raw-server.js";
import { ToyEtcd } from "./toy-etcd.js";

/** One lie for each answer of a kind of call, in order; after the last one the server answers correctly. */
export interface Script {
  readonly method: string;
  readonly lies: readonly string[];
}

const LIMIT = { timeoutMs: 800 };
/** After its timeout, a call may read the holder for up to half a second. Twice the sum is a hang. */
const HANGS_MS = 2 * (LIMIT.timeoutMs + 500);
/** A session of two seconds renews a few times; a client that renews without pause sends thousands of renewals. */
const RENEWALS = 100;
/** A session checks its keys in doubt only after several seconds. */
const CLEAN_MS = 8000;

const TICK_MS = 20;

/** Counts only time in which this process runs: a delay on a busy machine is not a hang. */
class RunningTime implements Disposable {
  #ticks = 0;
  readonly #timer = setInterval(() => this.#ticks++, TICK_MS);

  get nowMs(): number {
    return this.#ticks * TICK_MS;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}

/** Answers as etcd would, except for the answers that the scripts falsify. */
export class Liar {
  #rest: Map<string, string[]>;
  /** The number of falsified answers. */
  told = 0;
  renewals = 0;

  constructor(
    private readonly toy: ToyEtcd,
    scripts: readonly Script[],
  ) {
    this.#rest = new Map(scripts.map(({ method, lies }) => [method, [...lies]]));
  }

  readonly answer = (call: Call): Answer => {
    const { method } = call;
    if (method === "LeaseKeepAlive") this.renewals++;
    const bend = (honest: Answer): Answer => {
      const lie = LIES[method]?.[this.#rest.get(method)?.shift() ?? "none"];
      if (!lie || honest.how) return honest;
      this.told++;
      return lie(honest);
    };
    // What etcd sends later on the same stream is falsified as well.
    return bend(this.toy.answer({ ...call, say: (answer) => call.say(bend(answer)) }));
  };

  /** After this, only the end of a session is left to be tested. */
  stop(): void {
    for (const method of this.#rest.keys()) if (method !== "LeaseRevoke") this.#rest.delete(method);
  }
}

interface Ended {
  readonly what: string;
  readonly lock?: Lock | undefined;
  readonly error?: unknown;
  readonly tookMs: number;
}

/**
 * `x` is held through an honest server; `y` and `z` are free.
 * @returns the number of falsified answers, and descriptions of what must never happen, normally none
 */
export async function lieTo(scripts: readonly Script[]): Promise<{ told: number; trouble: string[] }> {
  using time = new RunningTime();
  using toy = new ToyEtcd();
  const liar = new Liar(toy, scripts);
  await using honest = await startRawServer((call) => toy.answer(call));
  await using bent = await startRawServer(liar.answer);
  await using holders = connect({ hosts: honest.endpoint });
  await using cluster = connect({ hosts: bent.endpoint, requestTimeoutMs: 200, session: { ttlSeconds: 2 } });
  const held = await new Mutex(holders, "x").lock();

  const calls = await Promise.all(
    ["x", "y", "z"].flatMap((name) =>
      (["lock", "tryLock"] as const).map((how) => asked(new Mutex(cluster, name), how, time)),
    ),
  );
  const trouble = calls.flatMap((call) => troubleWith(call, toy));
  await renewedTwice(liar, cluster);
  if (liar.renewals > RENEWALS) trouble.push(`renewed ${liar.renewals} times`);
  liar.stop();
  await Promise.allSettled([held, ...calls.flatMap(({ lock }) => lock ?? [])].map((lock) => lock.release()));
  trouble.push(...(await leftIn(toy, time)));
  trouble.push(...(await troubleClosing(cluster, time)));
  return { told: liar.told, trouble };
}

async function asked(mutex: Mutex, how: "lock" | "tryLock", time: RunningTime): Promise<Ended> {
  const start = time.nowMs;
  const what = `${how}("${mutex.name}")`;
  const tookMs = () => time.nowMs - start;
  return mutex[how](LIMIT).then(
    (lock) => ({ what, lock, tookMs: tookMs() }),
    (error: unknown) => ({ what, error, tookMs: tookMs() }),
  );
}

function troubleWith({ what, lock, error, tookMs }: Ended, toy: ToyEtcd): string[] {
  const trouble = [];
  if (tookMs > HANGS_MS) trouble.push(`${what} took ${tookMs} ms`);
  if (error !== undefined && !(error instanceof LeaseholdError)) trouble.push(`${what}: ${inspect(error)}`);
  if (lock?.name === "x") trouble.push(`${what} is held twice`);
  const [first] = lock ? toy.placesOf(lock.name) : [];
  if (lock?.held && (first?.key !== lock.key || first.create !== lock.fence))
    trouble.push(`${what} is held with fence ${lock.fence}, etcd has ${first?.key} ${first?.create}`);
  return trouble;
}

/** Leaves time to falsify answers to renewals, if there is a session. */
async function renewedTwice(liar: Liar, cluster: Cluster): Promise<void> {
  const session = await cluster.session({ timeoutMs: 1 }).catch(() => undefined);
  while (session && !session.signal.aborted && liar.renewals < 2) await delay(20);
}

async function leftIn(toy: ToyEtcd, time: RunningTime): Promise<string[]> {
  const left = () => ["x", "y", "z"].flatMap((name) => toy.placesOf(name).map(({ key }) => key));
  for (const start = time.nowMs; left().length > 0; await delay(20))
    if (time.nowMs - start > CLEAN_MS) return [`left behind: ${left().join(", ")}`];
  return [];
}

async function troubleClosing(cluster: Cluster, time: RunningTime): Promise<string[]> {
  const start = time.nowMs;
  await cluster.close({ drainMs: 0 });
  const tookMs = time.nowMs - start;
  return tookMs > HANGS_MS ? [`close() took ${tookMs} ms`] : [];
}
