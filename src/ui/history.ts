import type { HoldEnd, Past } from "./protocol.js";
import type { Ending, SeenHolder } from "./source.js";

/** Of one queue: the page draws as many. */
const MAX_HOLDS = 60;

type Hold = { -readonly [K in keyof Past]: Past[K] };

/** The holds of one queue that the server has seen. Its size is bounded. */
export class History {
  readonly #holds: Hold[] = [];
  /** Endings that have arrived before the change that shows them. */
  readonly #announced = new Map<string, Ending["end"]>();
  losses = 0;

  /** @param wasThere the first holders held before the server looked. */
  constructor(private wasThere: boolean) {}

  /** The holds, the oldest first. */
  get holds(): readonly Past[] {
    return this.#holds;
  }

  /** When the holder of this revision got the lock, as far as it was seen. */
  sinceOf(revision: bigint): number | undefined {
    return this.#holds.findLast((hold) => hold.revision === String(revision))?.from;
  }

  /** The present holders. @param nowMs time of day */
  update(holders: readonly SeenHolder[], nowMs: number): void {
    const present = new Map(holders.map((holder) => [String(holder.revision), holder]));
    for (const hold of this.#holds) {
      if (hold.to === null && !present.delete(hold.revision)) this.#end(hold, nowMs);
    }
    for (const [revision, { owner, key, since }] of present) {
      const joined = this.wasThere ? since?.getTime() : undefined;
      this.#holds.push({
        ...{ holder: owner ?? key, revision, to: null, end: null },
        from: Math.min(joined ?? nowMs, nowMs),
        fromIsJoin: joined !== undefined,
      });
    }
    this.wasThere = false;
    while (this.#holds.length > MAX_HOLDS) this.#holds.shift();
  }

  /** How a hold has ended. */
  ended(revision: bigint, end: Ending["end"]): void {
    const hold = this.#holds.findLast((each) => each.revision === String(revision));
    if (hold === undefined || hold.to === null) this.#announced.set(String(revision), end);
    else if (hold.end === "unknown") this.#judge(hold, end);
    const [oldest] = this.#announced.keys();
    if (this.#announced.size > MAX_HOLDS && oldest !== undefined) this.#announced.delete(oldest);
  }

  #end(hold: Hold, nowMs: number): void {
    hold.to = nowMs;
    this.#judge(hold, this.#announced.get(hold.revision) ?? "unknown");
    this.#announced.delete(hold.revision);
  }

  #judge(hold: Hold, end: HoldEnd): void {
    hold.end = end;
    if (end === "lease ended") this.losses++;
  }
}
