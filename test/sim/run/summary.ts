import { LineHash } from "../kernel/line-hash.js";
import type { SimResult } from "./sim-run.js";

/** What so many runs contained, and how long they took. */
export class Summary {
  readonly #started = performance.now();
  readonly #kinds = new Set<string>();
  #runs = 0;
  #virtualMs = 0;
  #requests = 0;
  #hits = 0;
  readonly #hash = new LineHash();

  add({ virtualMs, requests, hits, hash }: SimResult): void {
    this.#hash.add(hash);
    this.#runs++;
    this.#virtualMs += virtualMs;
    this.#requests += requests;
    this.#hits += hits.length;
    for (const fault of hits) this.#kinds.add(fault);
  }

  /** Of the hashes of all runs, in their order. */
  get hash(): string {
    return this.#hash.text;
  }

  /** Averages per run, and the number of kinds of fault. A run without calls or faults would show nothing. */
  get contents(): string {
    const [requests, hits] = [this.#requests / this.#runs, this.#hits / this.#runs];
    return `${requests.toFixed(0)} calls to etcd and ${hits.toFixed(1)} faults a run, of ${this.#kinds.size} kinds`;
  }

  get speed(): string {
    const ms = performance.now() - this.#started;
    const perSecond = (this.#runs / ms) * 1000;
    return `${perSecond.toFixed(1)} a second, ${(this.#virtualMs / ms).toFixed(0)} x real time`;
  }
}
