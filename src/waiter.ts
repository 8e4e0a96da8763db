import type { SessionEnd, Dependent } from "./lease.js";
import type { Watch } from "./etcd/watch.js";
import type { Place } from "./place.js";
import type { Turn } from "./turn.js";

/** It is a caller's turn. */
export interface Grant {
  readonly place: Place;
  /** A watch on the key, left from the wait. */
  readonly ownWatch: Watch | undefined;
  /** The hold rests on this deletion alone: confirm the key by a read. */
  readonly deletedAt: bigint | undefined;
}

/** Where a waiter stands. */
export type Stage =
  | { readonly at: "line" }
  | { readonly at: "join" }
  /** Behind a place of the same session: its end wakes us, no watch is needed. */
  | { readonly at: "local"; readonly place: Place; readonly below: Place }
  | { readonly at: "turn"; readonly place: Place; readonly turn: Turn }
  | { readonly at: "end" };

let calls = 0;

/** One caller of `lock()`, from the call to its turn or to its giving up. */
export class Waiter implements Dependent {
  /** A waiter that must join anew comes before later callers of this process. */
  readonly order = calls++;
  readonly granted: Promise<Grant>;
  stage: Stage = { at: "line" };
  #gaveUp = false;
  #lastRevision = 0n;
  #resolve: (grant: Grant) => void = () => {};
  #reject: (error: Error) => void = () => {};

  constructor(
    private readonly onGiveUp: (waiter: Waiter) => void,
    /** What to write under its key, instead of what tells `inspect` about it. An adopted place keeps the value it has. */
    readonly value: string | undefined,
  ) {
    this.granted = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // The caller may have left already: then nobody else hears of a rejection.
    this.granted.catch(() => undefined);
  }

  /** Create revision of its place; 0n when it has none yet. */
  get revision(): bigint {
    return "place" in this.stage ? this.stage.place.revision : this.#lastRevision;
  }

  get gaveUp(): boolean {
    return this.#gaveUp;
  }

  grant(grant: Grant): void {
    this.stage = { at: "end" };
    this.#resolve(grant);
  }

  fail(error: Error): void {
    this.stage = { at: "end" };
    this.#reject(error);
  }

  /** The caller waits no longer; its place is removed in the background. */
  giveUp(): void {
    if (this.#gaveUp || this.stage.at === "end") return;
    this.#gaveUp = true;
    this.#lastRevision = this.revision;
    this.onGiveUp(this);
  }

  sessionEnded(reason: SessionEnd): void {
    this.#reject(reason);
    this.giveUp();
  }
}

/** Callers of one process that have not joined yet, in the order of their calls. */
export class Line {
  readonly #new = new Set<Waiter>();
  /** Those who lost their place and join anew: never more than wait in etcd. */
  #again: Waiter[] = [];

  get empty(): boolean {
    return this.#new.size === 0 && this.#again.length === 0;
  }

  add(waiter: Waiter): void {
    this.#new.add(waiter);
  }

  addAgain(waiter: Waiter): void {
    waiter.stage = { at: "line" };
    this.#again.push(waiter);
    this.#again.sort((a, b) => a.order - b.order);
  }

  remove(waiter: Waiter): void {
    if (!this.#new.delete(waiter)) this.#again = this.#again.filter((other) => other !== waiter);
  }

  next(): Waiter | undefined {
    const again = this.#again.shift();
    if (again) return again;
    for (const waiter of this.#new) {
      this.#new.delete(waiter);
      return waiter;
    }
    return undefined;
  }
}
