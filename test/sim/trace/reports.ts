import type { End, Step } from "../../lab/runner/history.js";
import { GrantedKeys, type OnHold, UnheldGrants } from "./granted-keys.js";
import type { Queues } from "./queue/queues.js";
import { Rejected } from "./rejected.js";
import { partsOf } from "./requests.js";
import type { PlaceId, SessionTrace } from "./session/session-trace.js";

interface HeldPlace extends PlaceId {
  readonly session: SessionTrace | undefined;
  readonly what: string;
}

/** What was reported to callers, or claimed by them. */
export class ReportCheck {
  readonly #keys = new GrantedKeys();
  readonly #stopped = new Set<string>();
  readonly #unheld = new UnheldGrants();

  constructor(private readonly queues: Queues) {}

  /** The incarnations of processes that a fault has stopped. */
  get stopped(): ReadonlySet<string> {
    return this.#stopped;
  }

  reported(step: Step): void {
    this.#unheld.reported(step);
    if (step.k === "ok" && step.token !== undefined && step.key !== undefined) {
      this.#keys.granted(step, step.key);
      if (step.held) this.#holds(step, "is granted its hold");
    } else if (step.k === "nemesis" && step.effect === "stops-worker") {
      if (step.on) this.#stopped.add(step.target);
      else this.#stopped.delete(step.target);
    } else if (step.k === "claim" && step.held) this.#holds(step, "claims its hold");
    else if (step.k === "end") this.#ended(step, step.reason);
  }

  #ended(step: OnHold, reason: End["reason"]): void {
    const place = this.#placeOf(step);
    if (!place) return;
    if (reason === "deleted") this.#lost(step);
    else if (reason !== "released")
      this.queues.over(partsOf(place.key).lease, `notifies its holders of the loss: ${reason}`);
    place.session?.ended(place);
  }

  #holds(step: OnHold & Pick<Step, "k">, how: string): void {
    const place = this.#placeOf(step);
    if (!place?.session) throw new Rejected(`${step.p} ${how} "${step.lock}" without a place`, []);
    this.queues.count(step.k === "ok" ? "grant" : "claim");
    place.session.holds(`${place.what} ${how}`, place);
  }

  /** A hold of several names is lost with any of its keys. */
  #lost(step: OnHold): void {
    const place = this.#placeOf(step);
    if (!place?.session) return;
    const what = `${place.what} is notified that the key of its hold is gone`;
    const parts = this.queues.joints.at(place);
    if (!parts) return place.session.lost(what, place);
    const lost = parts.filter(
      (part) => this.queues.sessionOf(part)?.mayHaveLost({ ...place, key: part.key }) ?? true,
    );
    const [only, ...more] = lost;
    if (!only) throw new Rejected(`${what}: each name of it is held`, []);
    if (more.length === 0) this.queues.sessionOf(only)?.lost(what, { ...place, key: only.key });
  }

  #placeOf(step: OnHold): HeldPlace | undefined {
    const key = this.#keys.of(step);
    if (key === undefined) return undefined;
    const { p, id, token } = step;
    return {
      session: this.queues.sessionAt(key),
      key,
      revision: Number(token),
      what: `${p}, call ${id}, with ${key} created at ${token},`,
    };
  }
}
