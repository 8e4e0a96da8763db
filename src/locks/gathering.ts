import type { Txn } from "../etcd/port.js";
import { HoldHandle } from "../hold/hold.js";
import { lastEntries, positionOf } from "../queue/lock-mode.js";
import type { Lease } from "../session/lease.js";
import type { JoinedEntry } from "../queue/entry.js";
import { LockTable } from "../queue/lock-table.js";
import { PredecessorWait } from "../queue/predecessor-wait.js";
import type { Grant } from "../queue/waiter.js";

/** Waits until several entries that joined together are all granted. */
export class AllTurns {
  /** All holds; `undefined` if one was lost, so that all were released. */
  readonly held: Promise<readonly HoldHandle[] | undefined>;
  readonly #holds = new Map<JoinedEntry, HoldHandle>();
  readonly #turns = new Map<JoinedEntry, PredecessorWait>();
  #over = false;
  #resolve: (held: readonly HoldHandle[] | undefined) => void = () => {};
  #reject: (error: Error) => void = () => {};

  constructor(
    private readonly lease: Lease,
    private readonly entries: readonly JoinedEntry[],
    alone: boolean,
  ) {
    this.held = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    if (alone) for (const entry of entries) this.#grant(entry, undefined, undefined);
    else void this.#look().catch((error: unknown) => this.#end(() => this.#reject(error as Error)));
  }

  /** A name that is not held yet, with the create revision of our entry. */
  get waitingFor(): { readonly name: string; readonly revision: bigint } {
    return this.entries.find((entry) => !this.#holds.has(entry)) ?? (this.entries[0] as JoinedEntry);
  }

  /** Releases what is held and leaves the other queues. */
  stop(): void {
    this.#end(() => this.#resolve(undefined));
  }

  /** Reads the entries before each of ours, in one request. */
  async #look(): Promise<void> {
    const txn: Txn = {
      queues: this.entries.map(({ name }) => name),
      compare: [],
      success: this.entries.map((entry) => ({ kind: "range", ...lastEntries(entry) })),
      failure: [],
    };
    const { ranges } = await this.lease.connection.client.txn(txn, this.lease.policy("read the queues"));
    this.entries.forEach((entry, n) => {
      const told = ranges[n];
      if (told && !this.#over) this.#stand(entry, positionOf(entry, told));
    });
  }

  #stand(entry: JoinedEntry, position: ReturnType<typeof positionOf>): void {
    if (position === "gone") return this.stop();
    if (position === "first") return this.#grant(entry, undefined, undefined);
    const outcome = {
      granted: (ownWatch: Grant["ownWatch"], deletedAt: Grant["deletedAt"]) =>
        this.#grant(entry, ownWatch, deletedAt),
      gone: () => this.stop(),
      failed: (error: Error) => this.#end(() => this.#reject(error)),
    };
    this.#turns.set(entry, new PredecessorWait(entry, outcome, position));
  }

  #grant(entry: JoinedEntry, ownWatch: Grant["ownWatch"], deletedAt: Grant["deletedAt"]): void {
    this.#turns.delete(entry);
    const hold = new HoldHandle(LockTable.of(this.lease).queue(entry.name), { entry, ownWatch, deletedAt });
    this.#holds.set(entry, hold);
    // It may be lost while the other entries still wait.
    hold.signal.addEventListener("abort", () => this.stop());
    if (this.#holds.size < this.entries.length) return;
    this.#over = true;
    this.#resolve(this.entries.map((each) => this.#holds.get(each) as HoldHandle));
  }

  #end(tell: () => void): void {
    if (this.#over) return;
    this.#over = true;
    for (const entry of this.entries) {
      this.#turns.get(entry)?.stop();
      const hold = this.#holds.get(entry);
      if (hold) void hold.release();
      else LockTable.of(this.lease).queue(entry.name).leaveInBackground(entry);
    }
    tell();
  }
}
