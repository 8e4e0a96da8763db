import type { KeyValue } from "./etcd/rpc.js";
import type { Watch, WatchListener } from "./etcd/watch.js";
import { ownRange, parsePlaceKey } from "./keys.js";
import type { Lease } from "./lease.js";
import { removeStray } from "./remove.js";
import type { Timer } from "./time.js";

/** Between two looks, doubling: a late request is most likely soon after it was sent. */
const FIRST_REREAD_MS = 5_000;
const SLOW_REREAD_MS = 30_000;

/**
 * A put that was sent and never answered may be applied at any time while the lease lives, even after its retry was held
 * and released. From the first such doubt to the end of the lease this watches our keys under the name for puts, and
 * deletes what is no place of ours.
 */
export class Sweep {
  #timer: Timer | undefined;
  #watch: Watch | undefined;
  #delayMs = FIRST_REREAD_MS;

  constructor(
    private readonly lease: Lease,
    private readonly name: string,
    private readonly isOurs: (kv: KeyValue) => boolean,
  ) {
    // The end of the lease itself leaves places behind: its keys go with it, and this would never be stopped.
    if (lease.signal.aborted) return;
    this.#watch = this.#start();
    const stop = (): void => {
      this.#timer?.cancel();
      this.#watch?.cancel();
    };
    lease.connection.aborts.add(lease.signal, stop);
  }

  #start(): Watch {
    const { watches } = this.lease.connection;
    const listener: WatchListener = {
      // A put before the watch began is found by a read after it.
      created: () => this.read(),
      event: (kv) => this.#look(kv),
      moved: () => (this.#watch = this.#start()),
      refused: () => this.#readLater(),
    };
    return watches.watch({ ...ownRange(this.name, this.lease.leaseId), events: "PUT" }, listener);
  }

  /** Looks at every key that is there. */
  read(): void {
    const { members } = this.lease.connection;
    const range = ownRange(this.name, this.lease.leaseId);
    void members.range(range, this.lease.policy("look for late keys")).then(
      ({ kvs }) => {
        for (const kv of kvs) this.#look(kv);
        this.#readLater();
      },
      // Refused for now, or the lease is over.
      () => this.#readLater(),
    );
  }

  #readLater(): void {
    this.#timer?.cancel();
    if (this.lease.signal.aborted) return;
    const { clock } = this.lease.connection;
    this.#timer = clock.after(this.#delayMs * (0.75 + clock.random() / 2), () => this.read());
    this.#delayMs = Math.min(SLOW_REREAD_MS, this.#delayMs * 2);
  }

  #look(kv: KeyValue): void {
    const { leaseId, signal } = this.lease;
    if (signal.aborted || kv.leaseId !== leaseId || this.isOurs(kv)) return;
    // The range has room for the queue of a name such as `name/<lease>-2`, too.
    if (parsePlaceKey(kv.key.toString(), leaseId)?.name !== this.name) return;
    // Where this fails the slow read comes by again.
    removeStray(this.lease, this.name, kv, "delete a late key");
  }
}
