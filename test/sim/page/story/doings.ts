import type { Outcome, Step } from "../../../lab/runner/history.js";

export interface Held {
  readonly lock: string;
  readonly key: string;
  readonly fence: string;
}

interface OfProcess {
  readonly holds: Map<number, Held>;
  readonly waits: Map<number, string>;
}

const acquires = (step: { readonly f: Outcome["f"] }): boolean =>
  step.f === "acquire" || step.f === "tryAcquire";

/** What each process has been granted and not lost, and what it waits for: as it knows it. */
export class Doings {
  readonly #processes = new Map<string, OfProcess>();
  /** The keys of all places that were granted. */
  readonly granted = new Set<string>();

  of(p: string): OfProcess {
    const found = this.#processes.get(p);
    if (found !== undefined) return found;
    const none = { holds: new Map<number, Held>(), waits: new Map<number, string>() };
    this.#processes.set(p, none);
    return none;
  }

  add(step: Step): void {
    if (step.k === "invoke" && acquires(step)) this.of(step.p).waits.set(step.id, step.lock);
    if (step.k === "end") this.of(step.p).holds.delete(step.id);
    if (step.k === "ok" || step.k === "fail" || step.k === "info") this.#settled(step);
  }

  #settled({ k, f, p, id, lock, key, token }: Outcome): void {
    const { holds, waits } = this.of(p);
    if (acquires({ f })) waits.delete(id);
    if (k !== "ok") return;
    if (f === "release") holds.delete(id);
    if (!acquires({ f }) || key === undefined) return;
    holds.set(id, { lock, key, fence: String(token ?? "") });
    this.granted.add(key);
  }
}
