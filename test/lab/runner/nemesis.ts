import { setTimeout as delay } from "node:timers/promises";
import type { FaultKind, Field, Ground, Inflicted } from "./ground.js";
import { seeded } from "./random.js";
import { SERIES, type Planned } from "./schedule.js";

export interface NemesisOptions<G extends Ground> {
  readonly field: Omit<Field<G>, "random">;
  readonly kinds: readonly FaultKind<G>[];
  readonly seed: string;
  readonly note: (step: object) => void;
  readonly say: (line: string) => void;
}

/** Injects the faults of the schedule at their times, and heals them. */
export class Nemesis<G extends Ground> {
  readonly #options: NemesisOptions<G>;
  readonly #kinds: ReadonlyMap<string, FaultKind<G>>;
  /** The last fault of each series: faults of one series never overlap. */
  readonly #series = new Map<string, Promise<void>>();

  constructor(options: NemesisOptions<G>) {
    this.#options = options;
    this.#kinds = new Map(options.kinds.map((kind) => [kind.name, kind]));
  }

  /** All faults are healed when it resolves. */
  async inflict(faults: readonly Planned[]): Promise<void> {
    const start = performance.now();
    for (const planned of faults) {
      await delay(Math.max(0, start + planned.atMs - performance.now()));
      const kind = this.#kinds.get(planned.fault);
      if (kind === undefined) throw new RangeError(`Expected a fault of this tier, got ${planned.fault}`);
      const series = SERIES[kind.effect];
      const before = this.#series.get(series) ?? Promise.resolve();
      // A member that starts slowly delays the next fault of its series.
      const next = before.then(() => this.#once(kind, planned));
      this.#series.set(series, next);
      next.catch(() => {});
    }
    await Promise.all(this.#series.values());
  }

  async #once(kind: FaultKind<G>, { n, lastsMs }: Planned): Promise<void> {
    const { field, note, say, seed } = this.#options;
    const { name: fault, effect, endsStreams, refuses, blocks } = kind;
    const spares = kind.sparesLeases ?? false;
    const sparesLeases = typeof spares === "boolean" ? spares : spares(field.ttlMs);
    const begun = process.hrtime.bigint();
    const hit = await kind.inflict({ ...field, random: seeded(`${seed} fault ${n}`) });
    if (hit === undefined) return say(`#${n} ${fault}: nobody to hit`);
    const { target, took } = hit;
    const of = { k: "nemesis", fault, effect, target, sparesLeases, endsStreams, refuses, blocks, took };
    say(`#${n} ${fault} ${target}${lastsMs > 0 ? ` for ${lastsMs} ms` : ""}`);
    // Recorded when it is done, but dated when it began: its effect may have occurred at any time between.
    note({ ...of, t: begun, on: true });
    await delay(lastsMs);
    await healed(hit, `#${n} ${fault}`);
    note({ ...of, on: false });
  }
}

/** A fault that remains would spoil everything that follows. */
async function healed(hit: Inflicted, what: string): Promise<void> {
  try {
    await hit.heal?.();
  } catch (error) {
    throw new Error(`${what} could not be healed: ${String(error)}`, { cause: error });
  }
}
