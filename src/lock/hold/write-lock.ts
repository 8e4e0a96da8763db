import type { JoinedEntry } from "../queue/entry.js";
import type { Queue } from "../queue/queue.js";
import { ExclusiveHoldHandle, type Lock } from "./hold.js";

/** The write lock of an RwLock. */
export interface WriteLock extends Lock {
  /**
   * True from the call of `downgrade` on: readers may hold beside this hold, so it must not write any more. Its `fence` is that of the
   * writes before: a resource that checks fences would still accept a write.
   */
  readonly downgraded: boolean;
  /**
   * Makes the writer a reader, which goes on to hold: no other writer comes in between. Let your writes end before the call. With it, readers
   * that wait behind this lock hold, too, up to the next waiting writer, which waits until all of them have ended. The hold itself goes on as
   * it is, with its `key`, `signal` and `release`; there is no way back. Resolves when etcd has stored it: one request, which is repeated
   * for as long as this hold lasts. Idempotent: a call after a rejection by etcd tries again.
   *
   * The key of a sticky lock leaves with the release. Once etcd has stored it, a session that adopts this one's lease gets no hold of it.
   * With `releaseDelayMs`, readers enter after a crash, too. Readers of Go's recipe, and clients of versions without this method, wait until
   * it is released, as behind a writer. Once etcd has stored it, the value of its key contains `"downgraded":true`.
   * @throws {LockLostError | LockReleasedError} when the hold has ended.
   * @throws {EtcdRefusedError} when etcd rejects the request. The hold goes on, and must count as downgraded.
   */
  downgrade(): Promise<void>;
  toJSON(): ReturnType<Lock["toJSON"]> & { readonly downgraded: boolean };
}

/** The handle of a writer. */
export class WriteHoldHandle extends ExclusiveHoldHandle implements WriteLock {
  readonly #queue: Queue;
  readonly #entry: JoinedEntry;
  #downgrade: Promise<void> | undefined;

  constructor(queue: Queue, entry: JoinedEntry, watched: boolean) {
    super(queue, entry, watched);
    this.#queue = queue;
    this.#entry = entry;
  }

  get downgraded(): boolean {
    return this.#entry.downgraded;
  }

  async downgrade(): Promise<void> {
    this.#assertGoesOn();
    this.#downgrade ??= this.#put();
    try {
      await this.#downgrade;
    } catch (error) {
      this.#downgrade = undefined;
      this.#assertGoesOn();
      throw error;
    }
    this.#assertGoesOn();
  }

  async #put(): Promise<void> {
    if (await this.#queue.downgrade(this.#entry)) return;
    this.keyDeleted();
    await this.explained;
  }

  #assertGoesOn(): void {
    this.refresh();
    if (this.end) throw this.end;
  }

  override toJSON(): ReturnType<WriteLock["toJSON"]> {
    return { ...super.toJSON(), downgraded: this.downgraded };
  }
}
