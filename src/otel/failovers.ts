import type { MemberMessage } from "../diagnostics/messages.js";
import { ATTRIBUTES } from "./attributes.js";
import type { Telemetry } from "./telemetry.js";

/** Counts how often a member was left. */
export class Failovers {
  constructor(private readonly telemetry: Telemetry) {
    for (const state of ["down", "refused"]) this.#count(state, 0);
  }

  changed({ state }: MemberMessage): void {
    if (state !== "up") this.#count(state, 1);
  }

  #count(state: string, by: number): void {
    this.telemetry.instruments.failovers.add(by, { [ATTRIBUTES.memberState]: state });
  }
}
