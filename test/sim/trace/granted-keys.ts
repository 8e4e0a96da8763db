import type { Step } from "../../lab/runner/history.js";
import { Rejected } from "./rejected.js";

/** A step of a caller with its hold. */
export interface OnHold {
  readonly p: string;
  /** Of the call that acquired it. */
  readonly id: number;
  readonly lock: string;
  readonly token?: bigint;
}

const idOf = ({ p, id, lock }: OnHold): string => `${p} ${id} ${lock}`;

/** By process, call and name: the key that the call was granted. */
export class GrantedKeys {
  readonly #keys = new Map<string, string>();

  granted(hold: OnHold, key: string): void {
    this.#keys.set(idOf(hold), key);
  }

  of(hold: OnHold): string | undefined {
    return this.#keys.get(idOf(hold));
  }
}

/** A call that is granted a hold which is not held is told its end at once: the history has it before anything else. */
export class UnheldGrants {
  /** Of one call, which may have asked for several names. */
  #granted: OnHold[] = [];

  reported(step: Step): void {
    if (this.#granted.length > 0) this.#follows(step);
    if (step.k === "ok" && step.token !== undefined && step.held === false) this.#granted.push(step);
  }

  #follows(step: Step): void {
    const [first] = this.#granted;
    // Of the other names of the same call.
    if (step.k === "ok" && step.held === false && step.p === first?.p) return;
    const ends = step.k === "end" ? idOf(step) : "";
    const left = this.#granted.filter((grant) => idOf(grant) !== ends);
    if (left.length === this.#granted.length)
      throw new Rejected(
        `${first?.p}, call ${first?.id}: it is granted a hold that is not held, and has not ended`,
        [],
      );
    this.#granted = left;
  }
}
