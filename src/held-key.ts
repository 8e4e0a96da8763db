import type { Watch, WatchListener } from "./etcd/watch.js";
import type { Place } from "./place.js";
import type { Timer } from "./time.js";

/** A hold shorter than this does not pay for a watch of its own key. */
const LONG_HOLD_MS = 1000;
const SLOW_REREAD_MS = 30_000;

/** Watches the key of a holder, who loses the lock when somebody deletes it, though the lease goes on. */
export class HeldKey {
  #watch: Watch | undefined;
  #timer: Timer | undefined;
  #over = false;

  /**
   * `watch` is the one that the wait had on the key, if there was one. `deletedAt`: the hold rests on this deletion
   * alone, no read has seen our key since, so one is sent beside the handle.
   */
  constructor(
    private readonly place: Place,
    watch: Watch | undefined,
    deletedAt: bigint | undefined,
    private readonly onGone: () => void,
  ) {
    this.#watch = watch;
    // Its stream broke in the moment of the grant: nobody was there to hear of it.
    if (watch?.over) {
      this.#start();
      return;
    }
    if (!watch) {
      this.#later(LONG_HOLD_MS, () => this.#start());
      return;
    }
    watch.listener = this.#listener();
    if (deletedAt === undefined) this.#verifyLater();
    else this.#verify(deletedAt);
  }

  stop(): void {
    this.#over = true;
    this.#timer?.cancel();
    this.#watch?.cancel();
  }

  #start(): void {
    if (this.#over) return;
    const { watches } = this.place.lease.connection;
    this.#watch = watches.watch({ key: this.place.key, events: "DELETE" }, this.#listener());
  }

  #listener(): WatchListener {
    return {
      // Deleted before the watch began? Only a read after it can tell.
      created: (revision) => this.#verify(revision),
      event: (kv) => {
        if (kv.modRevision > this.place.revision) this.#gone();
      },
      moved: () => this.#start(),
      // The slow read goes on, and the deadline holds in any case.
      refused: () => this.#verifyLater(),
    };
  }

  #verify(atLeast: bigint): void {
    if (this.#over) return;
    void this.#isThere(atLeast > this.place.revision ? atLeast : this.place.revision).then(
      (there) => {
        if (this.#over) return;
        if (!there) return this.#gone();
        this.#verifyLater();
      },
      // Refused, or the session is over: the one changes nothing, the other has been told.
      () => this.#verifyLater(),
    );
  }

  async #isThere(atLeast: bigint): Promise<boolean> {
    const { lease, key } = this.place;
    const { watches, members } = lease.connection;
    const near = await watches.read({ key }, Math.min(lease.ttlMs / 4, members.requestTimeoutMs));
    const recent = near && near.header.revision >= atLeast;
    const { kvs } = recent ? near : await members.range({ key }, lease.policy("read the own key"));
    return kvs.some((kv) => this.place.is(kv));
  }

  #verifyLater(): void {
    const { clock } = this.place.lease.connection;
    this.#later(SLOW_REREAD_MS * (0.75 + clock.random() / 2), () => this.#verify(this.place.revision));
  }

  #later(delayMs: number, run: () => void): void {
    if (this.#over) return;
    this.#timer?.cancel();
    this.#timer = this.place.lease.connection.clock.after(delayMs, run);
  }

  #gone(): void {
    if (this.#over) return;
    this.stop();
    this.onGone();
  }
}
