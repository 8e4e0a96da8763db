import type { Txn } from "../etcd/port.js";
import { watched } from "../hold/acquire.js";
import { HoldHandle } from "../hold/hold.js";
import { NO_LOCK_OPTIONS } from "../options/lock.js";
import type { JoinedEntry } from "../queue/entry.js";
import type { Joined } from "../queue/join.js";
import { exclusive, lastEntries, positionOf } from "../queue/lock-mode.js";
import { LockTable } from "../queue/lock-table.js";
import { PredecessorWait } from "../queue/predecessor-wait.js";
import { type Grant, unwatched } from "../queue/waiter.js";
import type { Dependent, Lease, SessionEnd } from "../session/lease.js";
import type { WaitSnapshot } from "../telemetry/inspect.js";

/** One call of `lockAll`, until it holds every name or its caller gives up. */
export class MultiWaiter implements Dependent {
  readonly granted: Promise<readonly HoldHandle[]>;
  #turns: AllTurns | undefined;
  readonly #since: number;
  #gaveUp = false;
  #reject: (error: Error) => void = () => {};

  constructor(
    private readonly lease: Lease,
    private readonly names: readonly string[],
    /** Called with 0 if the join found all queues empty. */
    private readonly onAhead?: (ahead: number) => void,
  ) {
    this.#since = lease.services.clock.monotonic();
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
    return this.#turns?.waitingFor ?? { name: this.names[0] as string, revision: undefined };
  }

  describe(): WaitSnapshot {
    const { names, lease } = this;
    const { name, revision } = this.waitingFor;
    const waiting = this.#turns?.waiting(name);
    const waitedMs = lease.services.clock.monotonic() - this.#since;
    return {
      ...{ kind: "all", label: undefined, names, name, leaseId: lease.leaseId, revision, waitedMs },
      ...{ key: waiting?.key, ahead: waiting?.ahead },
    };
  }

  /** The call has, or had, a place in each of the queues. */
  get joined(): boolean {
    return this.#turns !== undefined;
  }

  /** The caller waits no longer; its entries are removed in the background. */
  giveUp(): void {
    this.#gaveUp = true;
    this.lease.waits.delete(this);
    this.#turns?.stop();
  }

  sessionEnded(reason: SessionEnd): void {
    this.#reject(reason);
    this.giveUp();
  }

  /** If one entry is lost, all are joined anew, together. `undefined`: the caller gave up. */
  async #gather(): Promise<readonly HoldHandle[] | undefined> {
    while (!this.#gaveUp) {
      const joined = await this.lease.inFlight.track(this.#join());
      const entries = joined.map(({ entry }) => entry);
      // The answer of a join is always awaited: a delete sent before that answer could be executed first.
      // `over` reads the clock and ends the wait: the process may have been suspended before this answer was read.
      if (this.#gaveUp || this.lease.over) return this.#leave(entries);
      const alone = joined.every(({ result }) => result.state === "granted");
      if (alone) this.onAhead?.(0);
      this.#turns = new AllTurns(this.lease, entries, alone);
      const holds = await this.#turns.held;
      if (holds) return holds;
    }
    return undefined;
  }

  #join(): Promise<readonly Joined[]> {
    const limits = { again: () => !this.#gaveUp };
    return LockTable.of(this.lease).joiner.joinAll({
      names: this.names,
      mode: exclusive,
      kind: "all",
      limits,
    });
  }

  #leave(entries: readonly JoinedEntry[]): undefined {
    for (const entry of entries) LockTable.of(this.lease).queue(entry.name).leaveInBackground(entry);
  }
}

/** Waits until several entries that joined together are all granted. */
class AllTurns {
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
    if (alone) for (const entry of entries) this.#grant(unwatched(entry), false);
    else void this.#read().catch((error: unknown) => this.#end(() => this.#reject(error as Error)));
  }

  /** A name that is not held yet, with the create revision of our entry. */
  get waitingFor(): { readonly name: string; readonly revision: bigint } {
    return this.entries.find((entry) => !this.#holds.has(entry)) ?? (this.entries[0] as JoinedEntry);
  }

  /** The key under a name, and how many entries are before it, as far as that is known. */
  waiting(name: string): { readonly key: string | undefined; readonly ahead: number | undefined } {
    const entry = this.entries.find((each) => each.name === name);
    return { key: entry?.completeKey, ahead: entry && this.#turns.get(entry)?.ahead };
  }

  /** Releases what is held and leaves the other queues. */
  stop(): void {
    this.#end(() => this.#resolve(undefined));
  }

  /** Reads the entries before each of ours, in one request. */
  async #read(): Promise<void> {
    const txn: Txn = {
      queues: this.entries.map(({ name }) => name),
      compare: [],
      success: this.entries.map((entry) => ({ kind: "range", ...lastEntries(entry) })),
      failure: [],
    };
    const { ranges } = await this.lease.services.client.txn(txn, this.lease.policy("read the queues"));
    this.entries.forEach((entry, n) => {
      const range = ranges[n];
      if (!range || this.#over) return;
      const mismatch = entry.mismatchIn([range], false);
      if (mismatch) this.#end(() => this.#reject(mismatch));
      else this.#wait(entry, positionOf(entry, range));
    });
  }

  #wait(entry: JoinedEntry, position: ReturnType<typeof positionOf>): void {
    if (position === "gone") return this.stop();
    if (position === "first") return this.#grant(unwatched(entry));
    const outcome = {
      turnGranted: (ownWatch: Grant["ownWatch"]) => this.#grant({ entry, ownWatch }),
      keyGone: () => this.stop(),
      waitFailed: (error: Error) => this.#end(() => this.#reject(error)),
    };
    this.#turns.set(entry, new PredecessorWait(entry, outcome, position));
  }

  /** `others`: some names are not granted yet. Until they are, its key is watched: the call must not resolve with one that is gone. */
  #grant(grant: Grant, others = this.#holds.size + 1 < this.entries.length): void {
    const { entry } = grant;
    const queue = LockTable.of(this.lease).queue(entry.name);
    this.#turns.delete(entry);
    const hold = new HoldHandle(queue, others ? watched(grant) : grant);
    hold.startedAsPart({ kind: "all", name: entry.name, options: NO_LOCK_OPTIONS });
    this.#holds.set(entry, hold);
    // It may be lost while the other entries still wait.
    hold.signal.addEventListener("abort", () => this.stop());
    if (this.#holds.size < this.entries.length) return;
    this.#over = true;
    this.#resolve(this.entries.map((each) => this.#holds.get(each) as HoldHandle));
  }

  #end(settle: () => void): void {
    if (this.#over) return;
    this.#over = true;
    for (const entry of this.entries) {
      this.#turns.get(entry)?.stop();
      const hold = this.#holds.get(entry);
      if (hold) void hold.release();
      else LockTable.of(this.lease).queue(entry.name).leaveInBackground(entry);
    }
    settle();
  }
}
