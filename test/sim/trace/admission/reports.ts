import type { Step } from "../../../lab/runner/history.js";
import { GrantedKeys, type OnHold, UnheldGrants } from "../granted-keys.js";
import { Rejected } from "../rejected.js";
import type { SharedQueues } from "./queues.js";

/** What was reported to callers, or claimed by them. */
export class ReportCheck {
  readonly #keys = new GrantedKeys();
  readonly #unheld = new UnheldGrants();

  constructor(private readonly queues: SharedQueues) {}

  reported(step: Step): void {
    this.#unheld.reported(step);
    if (step.k === "ok" && step.token !== undefined && step.key !== undefined) {
      this.#keys.granted(step, step.key);
      if (step.held) this.#granted(step);
    } else if (step.k === "claim" && step.held) this.#claimed(step);
    else if (step.k === "end" && step.reason !== "released") this.#ended(step, step.reason);
  }

  #granted(step: OnHold): void {
    const { what, place, queue } = this.#placeOf(step);
    if (!place) throw new Rejected(`${what} is granted without a place`, []);
    this.queues.count("grant");
    this.queues.evidence.assertAdmitted(`${what} is granted its hold`, place, queue);
    if (this.queues.over.has(place.lease))
      throw new Rejected(`${what} is granted its hold: its session is over`, []);
    place.shown.granted = true;
  }

  #claimed(step: OnHold): void {
    const { what, place } = this.#placeOf(step);
    this.queues.count("claim");
    if (!place?.shown.granted) throw new Rejected(`${what} claims a hold that it was not granted`, []);
    if (place.shown.left) throw new Rejected(`${what} claims its hold: its client has deleted the key`, []);
    if (this.queues.over.has(place.lease))
      throw new Rejected(`${what} claims its hold: its session is over`, []);
  }

  #ended(step: OnHold, reason: string): void {
    const { what, place } = this.#placeOf(step);
    if (reason !== "deleted") {
      if (place) this.queues.over.add(place.lease);
    } else if (place?.deleted === 0)
      throw new Rejected(`${what} is notified that the key of its hold is gone: it is there`, []);
  }

  #placeOf(step: OnHold) {
    const key = this.#keys.of(step) ?? "";
    const { p, id, token } = step;
    const queue = this.queues.ofKey(key);
    const place = queue.at(key, Number(token));
    return { queue, place, what: `${p}, call ${id}, with ${key} created at ${token},` };
  }
}
