// A seeded run: workers, its own etcd, scheduled faults, and the recorded history.
import { isNobodys, splitEvents } from "./delay-keys.js";
import { cpSync, openSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { BARRIERS, LATCHES, MARKS } from "../../../src/keys.js";
import { encode } from "../../support/clients/gateway-text.js";
import { assertAgreement } from "./agreement.js";
import { Crew } from "./crew.js";
import { LAB_PREFIX, NotRunError, type FaultKind, type Ground, type Need, type Tier } from "./ground.js";
import type { Run } from "./history.js";
import { now, readJournal, record } from "./journal.js";
import { askLeader, Leftovers } from "./leftovers.js";
import { Nemesis } from "./nemesis.js";
import { Observer } from "./observer.js";
import { plan, type Planned } from "./schedule.js";
import type { Of } from "./subject.js";
import { isInside, runInside } from "./surroundings.js";

export interface LabOptions {
  readonly tier: Tier;
  readonly seed: string;
  readonly seconds: number;
  /** Names of faults; default: all of the tier. */
  readonly faults?: readonly string[];
  /** Numbers of the planned faults to inflict; default: all. */
  readonly only?: readonly number[];
  readonly ttlSeconds?: number;
  readonly workers?: number;
  /** Per worker; default 4. More lanes run in step, so that their requests are sent together. */
  readonly lanes?: number;
  /** How many locks. */
  readonly names?: number;
  /** Every second lock lies under the one before it, in whose queue it counts. */
  readonly nested?: boolean;
  /** Milliseconds between the end of one fault and the start of the next of its series. */
  readonly gapMs?: readonly [number, number];
  /** How often a holder keeps the lock until it loses it, or for more than a TTL. */
  readonly camp?: number;
  /** Holders listen for waiters. */
  readonly wanted?: boolean;
  /** The keys of locks may stay with their sessions. */
  readonly sticky?: boolean;
  /** Of each group of shards. */
  readonly shards?: number;
  /** The least length of what candidates and leaders say. */
  readonly valueBytes?: number;
  /** Milliseconds that every fault lasts; default: determined by its kind. */
  readonly lastsMs?: readonly [number, number];
  readonly etcdVersion?: string;
  readonly oneAddress?: boolean;
  readonly tls?: boolean;
  readonly auth?: "on" | "off";
  /** Each worker has a guardian. */
  readonly guardian?: boolean;
  /** A worker thread of each worker renews its leases, up to a stall of so long. */
  readonly maxStallMs?: number;
  /** Of all sessions. */
  readonly releaseDelayMs?: number;
  /** What is acquired under the names; default: a mutex. */
  readonly of?: Of;
  /** A folder with another build of leasehold. */
  readonly build?: string;
  /** A folder for the journals. */
  readonly keep?: string;
  readonly say?: (line: string) => void;
}

const DEFAULTS = {
  ...{
    ttlSeconds: 2,
    workers: 4,
    lanes: 4,
    names: 4,
    nested: false,
    camp: 0.02,
    wanted: false,
    sticky: false,
    shards: 8,
    valueBytes: 0,
  },
  of: "mutex" as Of,
  gapMs: [200, 2000] as const,
  say: (() => {}) as (line: string) => void,
};

/** The request timeout of the workers' clients. */
const REQUEST_TIMEOUT_MS = 1000;
/** So long the members of a group of shards stay when all faults are over. */
const CALM_MS = 40_000;
/** The keys that are under no lock's name. */
const BESIDE_NAMES: Partial<Record<Of, readonly string[]>> = {
  results: [MARKS],
  rendezvous: [LATCHES, BARRIERS],
};
const PLACES = `${LAB_PREFIX}lock/`;
const REGISTERS = `${LAB_PREFIX}register/`;

export interface LabResult {
  readonly run: Run;
  readonly planned: readonly Planned[];
  /** The version of etcd. */
  readonly version: string;
}

/** Rejects with a `NotRunError` if the tier is not available. */
export async function runLab(given: LabOptions): Promise<LabResult> {
  const options = withNeeds(given);
  const { tier } = options;
  if (tier.surround && !isInside(tier)) return runInside(await tier.surround(options), options);
  const ground = await tier.start(options);
  try {
    const lab = await Lab.start(options, ground);
    try {
      await lab.work();
      await lab.settle();
      return { run: await lab.recorded(), planned: lab.planned, version: ground.version };
    } finally {
      await lab.stop();
    }
  } finally {
    await ground.stop();
  }
}

class Lab {
  readonly planned: readonly Planned[];
  readonly #options: LabOptions & typeof DEFAULTS;
  readonly #ground: Ground;
  readonly #folder: string;
  readonly #leftovers: Leftovers;
  readonly #fd: number;
  readonly #observer: Observer;
  readonly #crew: Crew;
  readonly #kinds: readonly FaultKind[];

  static async start(options: LabOptions, ground: Ground): Promise<Lab> {
    const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-chaos-"));
    const leftovers = await Leftovers.start(ground, PLACES);
    const { revision } = await (await ground.leader()).status();
    return new Lab({ ...DEFAULTS, ...options } as LabOptions & typeof DEFAULTS, {
      ...{ ground, folder, leftovers, revision },
    });
  }

  constructor(
    options: LabOptions & typeof DEFAULTS,
    from: { ground: Ground; folder: string; leftovers: Leftovers; revision: bigint },
  ) {
    const {
      seed,
      ttlSeconds,
      workers,
      lanes,
      names,
      nested,
      camp,
      wanted,
      sticky,
      shards,
      valueBytes,
      build,
      gapMs,
      seconds,
      of,
    } = options;
    this.#options = options;
    this.#ground = from.ground;
    this.#folder = from.folder;
    this.#leftovers = from.leftovers;
    this.#fd = openSync(path.join(from.folder, "run.jsonl"), "a");
    const prefixes = [LAB_PREFIX, ...(BESIDE_NAMES[of] ?? []).map((keys) => `${keys}${LAB_PREFIX}`)];
    this.#observer = new Observer(from.ground.members, prefixes, from.revision + 1n);
    const locks = Array.from({ length: names }, (_, n) =>
      nested && n % 2 === 1 ? `${PLACES}n${n}/in` : `${PLACES}n${n + 1}`,
    );
    const { hosts, access } = from.ground;
    const work = {
      seed,
      locks,
      of,
      registers: REGISTERS,
      ttlSeconds,
      lanes,
      camp,
      wanted,
      sticky,
      shards,
      calmMs: CALM_MS,
      valueBytes,
      build,
    };
    const { guardian = false, maxStallMs, releaseDelayMs } = options;
    const task = {
      ...work,
      hosts,
      access,
      guardian,
      maxStallMs,
      releaseDelayMs,
      requestTimeoutMs: REQUEST_TIMEOUT_MS,
    };
    this.#crew = new Crew({ count: workers, folder: from.folder, task });
    this.#kinds = chosen(options);
    const { lastsMs } = options;
    const all = plan({ seed, seconds, ttlMs: ttlSeconds * 1000, kinds: this.#kinds, gapMs, lastsMs });
    this.planned = options.only === undefined ? all : all.filter(({ n }) => options.only?.includes(n));
  }

  /** Injects the faults; all are healed when it resolves. */
  async work(): Promise<void> {
    const { seed, say, seconds, ttlSeconds } = this.#options;
    const nemesis = new Nemesis({
      field: {
        ...{ ground: this.#ground, crew: this.#crew, observer: this.#observer },
        ...{ places: PLACES, ttlMs: ttlSeconds * 1000 },
      },
      ...{ kinds: this.#kinds, seed, say },
      note: (step) => this.#note(step),
    });
    const wanted = new Set(this.planned.map(({ fault }) => fault));
    const kinds = this.#kinds.filter(({ name }) => wanted.has(name));
    await Promise.all(kinds.map(async (kind) => kind.prepare?.(this.#ground)));
    await this.#allAtWork();
    await Promise.all([nemesis.inflict(this.planned), delay(seconds * 1000)]);
  }

  /** A fault before a worker's first step has no effect, and a process starts slowly on a busy machine. */
  async #allAtWork(): Promise<void> {
    const { events } = this.#observer;
    const began = (p: string) => events.some(({ value }) => value.includes(`"${p}/`));
    const all = () => this.#crew.workers.every(({ p }) => began(p));
    await this.#observer.until(all, { timeoutMs: 20_000 });
  }

  /** Every call ends, every key is deleted while its session is open, then every lease ends: checked in that order. */
  async settle(): Promise<void> {
    const { ttlSeconds, releaseDelayMs = 0, of } = this.#options;
    const patience = 2 * (2 * ttlSeconds + 5) * 1000 + releaseDelayMs;
    const calmMs = of === "shards" ? CALM_MS : 0;
    const { workers } = this.#crew;
    await Promise.all(workers.map((worker) => worker.finish(patience + calmMs)));
    const living = () =>
      this.#observer.puts(PLACES).flatMap((event) => (isNobodys(event) ? [] : [event.key]));
    await this.#observer.until(() => living().length === 0, { timeoutMs: patience });
    const keys = living();
    const watches = await this.#leftovers.watches(this.#ownWatches());
    this.#note({ k: "leftovers", when: "idle", keys, leases: [], watches });
    const ended = await Promise.all(workers.map((worker) => worker.close(patience)));
    workers.forEach(({ p }, n) => {
      if (!ended[n]) this.#note({ k: "crash", p, event: "exit", err: "did not end by itself" });
    });
    this.#note({ k: "leftovers", when: "end", ...(await this.#leftovers.found(patience)) });
  }

  /** What the observer watches, and what the workers observe while they are alive. */
  #ownWatches(): number {
    const { of, workers, names } = this.#options;
    return this.#ground.members.length + (of === "election" ? workers * names : 0);
  }

  async recorded(): Promise<Run> {
    const mark = { key: encode(`${LAB_PREFIX}end`), value: "" };
    const { header } = await askLeader<{ header: { revision: string } }>(this.#ground, "/v3/kv/put", mark);
    const last = BigInt(header.revision);
    const seen = await this.#observer.until(() => this.#observer.revision >= last, { timeoutMs: 20_000 });
    if (!seen) throw new Error("the observer did not see the end of the run");
    await assertAgreement(this.#ground.members, { users: this.#ground.access.auth !== undefined });
    const run = this.#run();
    if (this.#options.keep !== undefined) this.#keepAs(this.#options.keep, run);
    return run;
  }

  async stop(): Promise<void> {
    await this.#observer.stop();
    await this.#crew.stop();
  }

  #run(): Run {
    const files = [...this.#crew.journals, path.join(this.#folder, "run.jsonl")];
    const history = files.flatMap(readJournal).sort((a, b) => Number(a.t - b.t));
    const { ttlSeconds, maxStallMs, releaseDelayMs } = this.#options;
    const setting = {
      ...{ ttlSeconds, releaseDelayMs, ...(maxStallMs !== undefined && { maxStallMs }) },
      requestTimeoutMs: REQUEST_TIMEOUT_MS,
      ...{ members: this.#ground.members.length, locks: PLACES, registers: REGISTERS, observed: true },
    };
    return { history, ...splitEvents(this.#observer.events), setting };
  }

  #keepAs(folder: string, { setting }: Run): void {
    const truth = openSync(path.join(this.#folder, "server.jsonl"), "a");
    for (const event of this.#observer.events) record(truth, event);
    record(openSync(path.join(this.#folder, "setting.json"), "w"), setting);
    cpSync(this.#folder, folder, { recursive: true });
  }

  #note(step: object): void {
    record(this.#fd, { t: now(), p: "run", ...step });
  }
}

/** Enables what the named faults need, even if it was not requested. */
function withNeeds(options: LabOptions): LabOptions {
  const { tier, faults, tls = false, auth } = options;
  const named = tier.faults.filter(({ name }) => faults?.includes(name));
  const needs = (need: Need) => named.some((kind) => kind.needs === need);
  const asked = { tls: tls || needs("tls"), auth: auth ?? (needs("auth") ? ("on" as const) : undefined) };
  for (const need of ["tls", "auth"] as const)
    if (asked[need] && !tier.has?.includes(need)) throw new NotRunError(`tier ${tier.name} has no ${need}`);
  return { ...options, tls: asked.tls, ...(asked.auth && { auth: asked.auth }) };
}

function chosen({ tier, faults, tls, auth }: LabOptions): readonly FaultKind[] {
  const known = tier.faults.map(({ name }) => name);
  const unknown = faults?.filter((name) => !known.includes(name)) ?? [];
  if (unknown.length > 0)
    throw new RangeError(`Expected faults of tier ${tier.name} (${known.join()}), got ${unknown.join()}`);
  const has = { tls, auth };
  const possible = tier.faults.filter(({ needs }) => needs === undefined || has[needs]);
  return possible.filter(({ name }) => faults?.includes(name) ?? true);
}
