// One shard in this process, from the moment it should be ours until its lock is released: join the queue of its lock, work, let go.
//
//   state     what goes on                               ends by
//   joining   waits in the queue of the lock             the grant: owned. Not ours any more, or an error: over
//   owned     `work` runs, again after each failure,     the group moves it: leaving. The lock is lost: leaving
//             or has returned; or it is declined
//   leaving   the signal has aborted                     the work settles: the lock is released, and it is over
//
// The group moves it when the next owner stands in the queue, which gets the lock by the release: it's never free between two owners.
import { ShardMovedError } from "../../errors.js";
import { Backoff, type Pauses } from "../../etcd/retry.js";
import type { CheckedLock } from "../../base/options/lock.js";
import { shardChannel } from "../../base/telemetry/channels.js";
import type { ShardMessage } from "../../base/telemetry/messages.js";
import { withJson } from "../../base/telemetry/publish.js";
import { newController } from "../../base/util/abort.js";
import { pause, type Timer } from "../../base/util/clock.js";
import { tellOutside } from "../../base/util/own-context.js";
import { acquireHold } from "../../lock/hold/acquire.js";
import { ExclusiveHoldHandle, type Lock } from "../../lock/hold/hold.js";
import type { LeaseSource } from "../../lock/session/cluster.js";
import { shardName } from "./view.js";

const PAUSES: Pauses = { firstMs: 1000, maxMs: 30_000, factors: [0.75, 1.25] };
/** So many failures in a row: another member may do better. */
const ATTEMPTS = 3;

/** A shard that this process owns, for the work on it. */
export interface Shard {
  readonly id: number;
  /** The name of its lock. */
  readonly name: string;
  /** The fence of its lock: each later owner has a higher one. Let whatever the work writes to check it. */
  readonly fence: bigint;
  /**
   * Aborts when the work has to stop. With a ShardMovedError, another member takes over, or this one leaves: the shard stays this member's
   * until the work has settled. With a LockLostError, the lock is lost: another member may already work on the shard.
   */
  readonly signal: AbortSignal;
  /** Its lock, for `assertHeld`, `remainingMs` and guards. Don't release it: the group does. */
  readonly lock: Lock;
}

/** What a shard needs from its group. */
export interface ShardHost {
  readonly name: string;
  readonly source: LeaseSource;
  readonly drainMs: number;
  /** The options of the lock. */
  readonly lock: CheckedLock;
  readonly work: (shard: Shard) => unknown;
  /** Runs code of the user in the async context of the call of `shards`. */
  readonly inContext: <T>(call: () => T) => T;
  /** This member leaves: what it gets now, it keeps for the next one. */
  readonly isLeaving: boolean;
  /** The value of its entry. */
  entryValue(id: number): string;
  retried(error: unknown, delayMs: number, id: number): void;
  /** It has failed so often that another member should have it. */
  declined(id: number, error: unknown): void;
  /** Its work has not settled so long after its signal. */
  stuck(id: number, forMs: number): void;
  /** Something has changed that may concern the group. */
  changed(): void;
  /** The shard is not ours any more, or wasn't yet. `error`: why its lock wasn't got. */
  ended(shard: OwnShard, error?: unknown): void;
}

export class OwnShard {
  #state: "joining" | "owned" | "leaving" = "joining";
  readonly #unwanted = newController();
  #lock: ExclusiveHoldHandle | undefined;
  #leave: AbortController | undefined;
  #stuck: Timer | undefined;
  /** When it was told to move, in monotonic milliseconds. */
  #movingSince: number | undefined;
  /** Ends the rest after the last failure. */
  #again: (() => void) | undefined;

  constructor(
    readonly id: number,
    private readonly host: ShardHost,
  ) {
    void this.#run();
  }

  get state(): "joining" | "owned" | "leaving" {
    return this.#state;
  }

  /** Its work may run now. */
  get held(): boolean {
    return this.#state === "owned" && this.#lock?.held === true;
  }

  /** Of its lock; undefined before the grant. */
  get fence(): bigint | undefined {
    return this.#lock?.fence;
  }

  /** Someone else stands behind our entry, or nobody should have it: leaves the queue, unless our entry holds. */
  unwanted(): void {
    if (this.#state === "joining") this.#unwanted.abort();
  }

  /** The next owner stands in the queue, or nobody will take it. */
  move(to: string | undefined): void {
    if (this.#state !== "owned") return;
    this.#movingSince = this.host.source.services.clock.monotonic();
    this.#end(new ShardMovedError(this.host.name, this.id, to));
    this.#tell("moving");
  }

  /** It should be ours again, after it was declined. */
  resume(): void {
    this.#again?.();
  }

  /** Comes before the message about it: a subscriber may look at the shard, and find that its lock is lost. */
  #end(reason: Error): void {
    const { drainMs, source } = this.host;
    this.#state = "leaving";
    this.#stuck = source.services.clock.after(drainMs, () => {
      this.#tell("stuck", { drainMs });
      this.host.stuck(this.id, drainMs);
    });
    this.#stuck.unref?.();
    tellOutside(() => this.#leave?.abort(reason));
  }

  async #run(): Promise<void> {
    let error: unknown;
    try {
      this.#lock = await this.#acquire();
      if (!this.#unwanted.signal.aborted) await this.#own(this.#lock);
    } catch (failure) {
      if (!this.#unwanted.signal.aborted) error = failure;
    }
    this.#stuck?.cancel();
    await this.#release();
    this.host.ended(this, error);
  }

  async #release(): Promise<void> {
    const since = this.#movingSince;
    const drainMs = since === undefined ? undefined : this.host.source.services.clock.monotonic() - since;
    // A loss is that of the signal: the work knows.
    const loss: unknown = await this.#lock?.release().then(undefined, (reason: unknown) => reason);
    if (drainMs !== undefined) this.#tell(loss === undefined ? "moved" : "lost", { drainMs, error: loss });
  }

  #tell(state: ShardMessage["state"], about: Partial<ShardMessage> = {}): void {
    if (!shardChannel.hasSubscribers) return;
    const { name, lock, source } = this.host;
    const group = { hosts: source.services.options.hosts, name, label: lock.label };
    const fence = this.#lock?.revision ?? 0n;
    const nothing = { drainMs: undefined, error: undefined };
    shardChannel.publish(withJson({ ...group, shard: this.id, state, fence, ...nothing, ...about }));
  }

  #acquire(): Promise<ExclusiveHoldHandle> {
    const { source, name } = this.host;
    const target = {
      source,
      name: shardName(name, this.id),
      kind: "mutex",
      options: this.host.lock,
      handle: ExclusiveHoldHandle,
      value: this.host.entryValue(this.id),
    } as const;
    return acquireHold(target, () => ({
      signal: this.#unwanted.signal,
      timeoutMs: undefined,
      rejoin: false,
    }));
  }

  async #own(lock: ExclusiveHoldHandle): Promise<void> {
    this.#state = "owned";
    this.#leave = newController();
    // The loss of the lock aborts it, too, unless a move has: then the shard is leaving.
    const { signal } = this.#leave;
    const lost = ({ reason }: AbortSignal): void => {
      if (this.#state !== "owned") return;
      this.#end(reason as Error);
      this.#tell("lost", { error: reason as Error });
    };
    const held = lock.signal;
    held.addEventListener("abort", () => lost(held), { once: true });
    this.#tell("owned");
    this.host.changed();
    if (held.aborted) lost(held);
    const { id } = this;
    const { name, fence } = lock;
    const shard: Shard = withJson({
      ...{ id, name, fence, lock },
      get signal() {
        // To read the lock's looks at the clock: after a pause of the process, other timers may come before that of the deadline.
        if (lock.signal.aborted) lost(held);
        return signal;
      },
    });
    await this.#work(shard, signal);
  }

  /** Resolves when the signal has aborted and the work has settled. */
  async #work(shard: Shard, signal: AbortSignal): Promise<void> {
    const { clock } = this.host.source.services;
    const backoff = new Backoff(clock, PAUSES);
    if (this.host.isLeaving) return aborted(signal);
    signal.addEventListener("abort", () => this.#again?.(), { once: true });
    for (let failures = 0; !shard.signal.aborted;) {
      try {
        // At once: of many works that begin together, the one before may have taken the rest of the lease.
        await this.host.inContext(async () => await this.host.work(shard));
        await aborted(signal);
      } catch (error) {
        if (signal.aborted) return;
        failures++;
        if (failures % ATTEMPTS === 0) {
          this.#tell("failed", { error });
          this.host.declined(this.id, error);
          await this.#rest(signal);
        } else {
          const delayMs = backoff.nextMs();
          this.host.retried(error, delayMs, this.id);
          await pause(clock, delayMs, signal);
        }
      }
    }
  }

  /** Keeps the lock until another member takes over, or until it is ours again. Whoever was told of the failure may have found the lock lost. */
  #rest(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => (this.#again = resolve));
  }
}

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
