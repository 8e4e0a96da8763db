import type { ObservableResult } from "@opentelemetry/api";
import type { ElectionMessage } from "../diagnostics/messages.js";
import { ATTRIBUTES } from "./attributes.js";
import { BoundedMap } from "./bounded-map.js";
import type { Telemetry } from "./telemetry.js";

const MAX_LEADERSHIPS = 10_000;

/** Whether this process leads, by label of the election. */
export class Elections {
  /** Every label that was seen, so that a process that does not lead reports 0; `Labels` limits their number. */
  readonly #labels = new Set<string>();
  /** The labels of the leaderships under way. */
  readonly #led = new BoundedMap<string, string>(MAX_LEADERSHIPS);

  constructor(private readonly telemetry: Telemetry) {}

  changed(message: ElectionMessage): void {
    const { labels, clusters } = this.telemetry;
    const label = labels.of(message.label);
    this.#labels.add(label);
    const id = JSON.stringify([clusters.numberOf(message), message.name, message.owner]);
    if (message.state === "elected") this.#led.set(id, label);
    else this.#led.take(id);
  }

  observe(result: ObservableResult): void {
    const led = new Set([...this.#led.entries()].map(([, label]) => label));
    for (const label of this.#labels) result.observe(led.has(label) ? 1 : 0, { [ATTRIBUTES.label]: label });
  }

  forget(): void {
    this.#labels.clear();
    this.#led.takeAll();
  }
}
