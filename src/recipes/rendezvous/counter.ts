import { EtcdUnavailableError, LatchBrokenError } from "../../errors.js";
import { checkWait } from "../../base/options/check.js";
import { settleWithin } from "../../base/util/settle.js";
import type { Dependent, Lease } from "../../lock/session/lease.js";
import type { WaitOptions } from "../../lock/session/session-options.js";
import type { LatchStore, Place } from "./latch-store.js";

const COUNT_TIMEOUT_MS = 5000;

/** A counter that those who wait know of before it counts. */
export interface LatchCounter {
  readonly latchName: string;
  /** Aborts when its session ends: those who wait are told that it has crashed. */
  readonly signal: AbortSignal;
  /**
   * Counts, once, however often it is called. `timeoutMs` defaults to 5000. On abort: rejects at once with the signal's reason; it may
   * have counted.
   * @throws {SessionLostError | SessionClosedError} if its session had ended before the first call: it has not counted. If it ends
   * later, it may have.
   * @throws {LatchBrokenError} if the latch was reset. @throws {EtcdUnavailableError} if etcd does not answer in time: call it again.
   */
  countDown(options?: WaitOptions): Promise<void>;
  /** Leaves without counting, and nobody is told. Resolves when it is gone, or its session is over. Idempotent. */
  leave(): Promise<void>;
}

/** A counter on the lease of its session. */
export class Counter implements LatchCounter {
  /** Its session is in use, though nothing is held. */
  readonly #user: Dependent = { sessionEnded: () => undefined };
  #place: Place | undefined;
  /** Create revision of its keys; undefined: they are not known to be there. */
  #revision: bigint | undefined;
  #inDoubt = false;
  #counting: Promise<void> | undefined;
  #leaving: Promise<void> | undefined;

  constructor(
    private readonly latch: LatchStore,
    private readonly lease: Lease,
  ) {
    lease.waits.add(this.#user);
  }

  get latchName(): string {
    return this.latch.name;
  }

  get signal(): AbortSignal {
    this.lease.refresh();
    return this.lease.signal;
  }

  /** An attempt to enlist it there is made. */
  mayBeAt(place: Place): void {
    this.#place = place;
  }

  /** By the last attempt. undefined: the latch is open, and has no keys of it. */
  enlisted(revision: bigint | undefined): void {
    this.#revision = revision;
    if (revision === undefined) this.#unused();
  }

  /** An attempt to enlist it may be executed at any later time. */
  isInDoubt(): void {
    this.#inDoubt = true;
  }

  async countDown(options?: WaitOptions): Promise<void> {
    const { signal, timeoutMs = COUNT_TIMEOUT_MS } = checkWait("countDown", options);
    signal?.throwIfAborted();
    if (this.#leaving) throw new TypeError(`This counter has left the latch "${this.latch.name}"`);
    const { services } = this.lease;
    this.#counting ??= this.#count().catch((error: unknown) => {
      this.#counting = undefined;
      throw error;
    });
    await settleWithin(this.#counting, { signal, timeoutMs }, services, {
      onTimeout: () =>
        new EtcdUnavailableError(
          `count down the latch "${this.latch.name}"`,
          services.client.hosts.whyUnanswered(timeoutMs),
        ),
    });
  }

  async #count(): Promise<void> {
    const [place, revision] = [this.#place, this.#revision];
    // The latch was open when it enlisted.
    if (place === undefined || revision === undefined) return;
    if (this.lease.over) throw this.lease.signal.reason as Error;
    const outcome = await this.lease.inFlight.track(this.latch.countFor(this.lease, place, revision));
    this.#unused();
    if (outcome === "gone") {
      // The answer may be known before the end of the session is.
      await this.lease.renewNow();
      throw new LatchBrokenError(this.latch.name, "crashed", this.lease.owner);
    }
    if (outcome === "reset") throw new LatchBrokenError(this.latch.name, "reset");
  }

  leave(): Promise<void> {
    return (this.#leaving ??= this.#leave()
      .catch(() => undefined)
      .finally(() => this.#unused()));
  }

  /** It has no keys any more, and needs no session. */
  #unused(): void {
    this.lease.waits.delete(this.#user);
  }

  async #leave(): Promise<void> {
    await this.#counting?.catch(() => undefined);
    const [place, revision, inDoubt] = [this.#place, this.#revision, this.#inDoubt];
    if (this.#counting || !place || (revision === undefined && !inDoubt)) return;
    const { latch, lease } = this;
    await lease.inFlight.track(latch.remove(lease, place, { revision, inDoubt }));
    if (inDoubt) return;
    // A proxy may send again what was answered.
    const again = { revision: undefined, inDoubt: false };
    lease.sweeper.left(latch.keys.of("alive", place.round, place.id), false, () =>
      latch.remove(lease, place, again),
    );
  }
}
