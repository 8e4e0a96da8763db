import type { CheckedOnce } from "../options/once.js";
import type { Lease } from "../session/lease.js";
import type { LeaseSource } from "../session/session-source.js";
import { MarkSpace, type Mark, type MarkKey } from "./marks.js";

interface PlanParts {
  readonly services: Pick<LeaseSource["services"], "clock" | "options">;
  readonly options: SlotPlan["options"];
}

/** What one call of `once` is to run, and when. */
export class SlotPlan {
  readonly options: Pick<CheckedOnce, "rerun" | "keep" | "skips">;
  readonly space: MarkSpace;
  /** Where older versions put the marks of a cluster with a prefix: in the queue of the prefix's own name. They are only read. */
  readonly oldSpace: MarkSpace | undefined;
  /** Identifies the marks of this call. */
  readonly id: string;
  readonly #prefix: string;

  constructor(
    readonly name: string,
    readonly slot: number,
    { services, options }: PlanParts,
  ) {
    const { clock } = services;
    const { prefix } = services.options;
    this.options = options;
    this.#prefix = prefix;
    this.space = new MarkSpace(this.complete(name), true);
    this.oldSpace = prefix === "" ? undefined : new MarkSpace(name, false);
    this.id = clock.randomId().toString(36);
  }

  /** The mark. */
  get at(): MarkKey {
    return this.space.mark(this.slot);
  }

  /** A name or a key with the prefix of the cluster. */
  complete(text: string): string {
    return `${this.#prefix}${text}`;
  }

  /** For errors: a role may lack the right on the mark only. */
  get text(): string {
    return `slot ${this.slot} of "${this.name}", with the mark ${this.at.key}`;
  }

  /** The mark of a run that begins, under the entry `key`. `fence`: its create revision, if it is known by now. */
  mark({ owner, services }: Lease, key: string, fence?: bigint): Mark {
    const since = services.clock.date().toISOString();
    const started = { state: "started", owner, since, id: this.id, key: this.complete(key) } as const;
    return fence === undefined ? started : { ...started, fence: fence.toString() };
  }
}
