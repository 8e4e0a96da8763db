import { AllTurns } from "./gathering.js";
import type { HoldHandle } from "../hold/hold.js";
import type { Dependent, Lease, SessionEnd } from "../session/lease.js";
import { MultiJoin } from "./multi-join.js";
import type { QueueEntry } from "../queue/entry.js";
import { Queue } from "../queue/queue.js";

/** One caller of `lockAll`, from the call to its turn under every name, or to its giving up. */
export class MultiWaiter implements Dependent {
  readonly granted: Promise<readonly HoldHandle[]>;
  readonly #joiner: MultiJoin;
  #gathering: AllTurns | undefined;
  #gaveUp = false;
  #reject: (error: Error) => void = () => {};

  constructor(
    private readonly lease: Lease,
    private readonly names: readonly string[],
  ) {
    this.#joiner = new MultiJoin(lease, names);
    this.granted = new Promise((resolve, reject) => {
      this.#reject = reject;
      this.#gather().then((holds) => {
        // Rejected by the end of the session, which may have come unseen in a pause of the process: nobody else would give
        // them back.
        if (lease.over || this.#gaveUp) for (const hold of holds ?? []) void hold.release();
        else if (holds) resolve(holds);
      }, reject);
    });
    // The caller may have left already: then nobody else hears of a rejection.
    this.granted.catch(() => undefined);
    lease.waits.add(this);
    this.granted.then(
      () => lease.waits.delete(this),
      () => lease.waits.delete(this),
    );
  }

  /** A name that is waited for, with the create revision of its place; 0n when it has none yet. */
  get waitingFor(): { readonly name: string; readonly revision: bigint } {
    return this.#gathering?.waitingFor ?? { name: this.names[0] as string, revision: 0n };
  }

  /** It has, or had, a place in each of the queues. */
  get joined(): boolean {
    return this.#gathering !== undefined;
  }

  /** The caller waits no longer; its places are removed in the background. */
  giveUp(): void {
    this.#gaveUp = true;
    this.lease.waits.delete(this);
    this.#gathering?.stop();
  }

  sessionEnded(reason: SessionEnd): void {
    this.#reject(reason);
    this.giveUp();
  }

  /** One place lost is all lost: they are joined anew, together. `undefined`: given up. */
  async #gather(): Promise<readonly HoldHandle[] | undefined> {
    while (!this.#gaveUp) {
      const { entries, alone } = await this.lease.inFlight.track(this.#joiner.join(() => !this.#gaveUp));
      // A join that was sent was waited for: a delete sent before its answer could be executed first.
      if (this.#gaveUp) return this.#leave(entries);
      this.#gathering = new AllTurns(this.lease, entries, alone);
      const holds = await this.#gathering.held;
      if (holds) return holds;
    }
    return undefined;
  }

  #leave(entries: readonly QueueEntry[]): undefined {
    for (const entry of entries) Queue.of(this.lease, entry.name).leaveInBackground(entry);
  }
}
