import { AllTurns } from "./gathering.js";
import type { HoldHandle } from "../hold/hold.js";
import type { Dependent, Lease, SessionEnd } from "../session/lease.js";
import { MultiJoin } from "./multi-join.js";
import type { JoinedEntry } from "../queue/entry.js";
import { LockTable } from "../queue/lock-table.js";

/** One call of `lockAll`, until it holds every name or its caller gives up. */
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
        // Rejected by the end of the session, perhaps unnoticed while the process was suspended: release them here.
        if (lease.over || this.#gaveUp) for (const hold of holds ?? []) void hold.release();
        else if (holds) resolve(holds);
      }, reject);
    });
    // The caller may have given up already: then nothing else handles a rejection.
    this.granted.catch(() => undefined);
    lease.waits.add(this);
    this.granted.then(
      () => lease.waits.delete(this),
      () => lease.waits.delete(this),
    );
  }

  /** A name that the call waits for, with the create revision of its entry; undefined if it has none yet. */
  get waitingFor(): { readonly name: string; readonly revision: bigint | undefined } {
    return this.#gathering?.waitingFor ?? { name: this.names[0] as string, revision: undefined };
  }

  /** The call has, or had, a place in each of the queues. */
  get joined(): boolean {
    return this.#gathering !== undefined;
  }

  /** The caller waits no longer; its entries are removed in the background. */
  giveUp(): void {
    this.#gaveUp = true;
    this.lease.waits.delete(this);
    this.#gathering?.stop();
  }

  sessionEnded(reason: SessionEnd): void {
    this.#reject(reason);
    this.giveUp();
  }

  /** If one entry is lost, all are joined anew, together. `undefined`: the caller gave up. */
  async #gather(): Promise<readonly HoldHandle[] | undefined> {
    while (!this.#gaveUp) {
      const { entries, alone } = await this.lease.inFlight.track(this.#joiner.join(() => !this.#gaveUp));
      // The answer of a join is always awaited: a delete sent before that answer could be executed first.
      if (this.#gaveUp) return this.#leave(entries);
      this.#gathering = new AllTurns(this.lease, entries, alone);
      const holds = await this.#gathering.held;
      if (holds) return holds;
    }
    return undefined;
  }

  #leave(entries: readonly JoinedEntry[]): undefined {
    for (const entry of entries) LockTable.of(this.lease).queue(entry.name).leaveInBackground(entry);
  }
}
