import type { Clock } from "../async/clock.js";
import type { CheckedOnce } from "../options/once.js";
import type { Lease } from "../session/lease.js";
import { MarkSpace, type Mark } from "./marks.js";

/** What one call of `once` is to run, and when. */
export class SlotPlan {
  readonly space: MarkSpace;
  readonly rerunsLost: boolean;
  readonly keep: number;
  /** Identifies the marks of this call. */
  readonly id: string;

  constructor(
    readonly name: string,
    readonly slot: number,
    { clock, options }: { readonly clock: Clock; readonly options: CheckedOnce },
  ) {
    this.space = new MarkSpace(name);
    this.rerunsLost = options.rerunsLost;
    this.keep = options.keep;
    this.id = clock.randomId().toString(36);
  }

  get markKey(): string {
    return this.space.mark(this.slot);
  }

  /** The mark of a run that begins, under the entry `key`. `fence`: its create revision, if it is known by now. */
  mark({ owner, services }: Lease, key: string, fence?: bigint): Mark {
    const since = services.clock.date().toISOString();
    const started = { state: "started", owner, since, id: this.id, key } as const;
    return fence === undefined ? started : { ...started, fence: fence.toString() };
  }
}
