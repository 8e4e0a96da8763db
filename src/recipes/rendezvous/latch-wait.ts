import { CountMismatchError, LatchBrokenError } from "../../errors.js";
import type { QueueChange } from "../../observe/queue-watch.js";
import { ownerIn, type SeenKey, type WaitEnds } from "./await-keys.js";
import { type LatchStore, roundIn } from "./latch-store.js";

/** What one round has, as a wait sees it. */
class RoundCounts {
  counted = 0;
  readonly enlisted = new Map<string, string | undefined>();
  readonly alive = new Set<string>();

  /** The counters that are enlisted, and whose session has ended. */
  get dead(): readonly (string | undefined)[] {
    if (this.enlisted.size <= this.alive.size) return [];
    return [...this.enlisted].flatMap(([id, owner]) => (this.alive.has(id) ? [] : [owner]));
  }
}

/** The keys of a latch, as a wait follows them: each change costs what it changes. */
export class LatchState {
  readonly #rounds = new Map<string, RoundCounts>();
  /** The round that is waited for: the first one that was there. */
  #round: string | undefined;
  #left: number | undefined;

  constructor(
    private readonly latch: LatchStore,
    private readonly rejects: boolean,
  ) {}

  missing(): string {
    const { total } = this.latch;
    return `${this.#left ?? total} of ${total} counts are missing`;
  }

  judge({ keys, before }: QueueChange<SeenKey>, ends: WaitEnds<void>): void {
    for (const [key, was] of before) this.#changed(key, was !== undefined, keys.get(key));
    const { name, total } = this.latch;
    const kv = keys.get(Buffer.from(this.latch.keys.latch).toString("latin1"));
    const round = kv && roundIn(kv);
    if (kv && !round) return ends.reject(new LatchBrokenError(name, "unreadable"));
    if (this.#round !== undefined && round?.id !== this.#round)
      return ends.reject(new LatchBrokenError(name, "reset"));
    if (!round) return;
    if (round.count !== total) return ends.reject(new CountMismatchError(name, total, round.count));
    this.#round = round.id;
    const counts = this.#rounds.get(round.id);
    this.#left = Math.max(0, total - (counts?.counted ?? 0));
    if (round.isOpen || this.#left === 0) return ends.resolve();
    const dead = this.rejects ? (counts?.dead ?? []) : [];
    if (dead.length > 0) ends.reject(new LatchBrokenError(name, "crashed", dead[0]));
  }

  #changed(bytes: string, was: boolean, kv: SeenKey | undefined): void {
    const key = Buffer.from(bytes, "latin1").toString().slice(this.latch.keys.base.length);
    const [id = "", part, ...rest] = key.split("/");
    const [name] = rest;
    if (name === undefined || rest.length > 1) return;
    const counts = this.#rounds.get(id) ?? new RoundCounts();
    this.#rounds.set(id, counts);
    if (part === "counted") counts.counted += Number(kv !== undefined) - Number(was);
    if (part === "enlisted" && kv) counts.enlisted.set(name, ownerIn(kv));
    else if (part === "enlisted") counts.enlisted.delete(name);
    if (part === "alive" && kv) counts.alive.add(name);
    else if (part === "alive") counts.alive.delete(name);
  }
}
