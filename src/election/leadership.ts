import type { Txn, TxnAnswer } from "../etcd/port.js";
import { ExclusiveHoldHandle, type Lock } from "../hold/hold.js";
import type { Queue } from "../queue/queue.js";
import type { Grant } from "../queue/waiter.js";
import type { Lease } from "../session/lease.js";
import { checkValue } from "../options/check.js";

/** A leadership term: an exclusive hold of the election's name, with a value that others read. */
export interface Leadership extends Lock {
  /**
   * Publishes another value to all observers, under the same key and fence. Calls are sent one at a time, in order.
   * Resolves when etcd has stored the value; retries for as long as this candidate leads, however long etcd is away.
   * @throws {LockLostError | LockReleasedError} if this candidate no longer leads.
   * @throws {EtcdRefusedError} if etcd rejects the request.
   * @throws {TypeError | RangeError} if `value` is not a well-formed string of at most 65536 bytes.
   */
  proclaim(value: string): Promise<void>;
  /** Same as `release()`. */
  resign(): Promise<void>;
}

export class LeadershipHandle extends ExclusiveHoldHandle implements Leadership {
  readonly #lease: Lease;
  readonly #entryKey: string;
  /** Modification revision of the key, as last seen by this process. */
  #modified: bigint;
  #proclaiming: Promise<unknown> = Promise.resolve();

  constructor(queue: Queue, grant: Grant) {
    super(queue, grant);
    this.#lease = queue.lease;
    this.#entryKey = grant.entry.key;
    this.#modified = this.revision;
  }

  async proclaim(value: string): Promise<void> {
    checkValue("value", value);
    const proclaimed = this.#proclaiming.then(() => this.#proclaim(value));
    this.#proclaiming = proclaimed.catch(() => undefined);
    return proclaimed;
  }

  protected override get title(): string {
    return "Leadership";
  }

  resign(): Promise<void> {
    return this.release();
  }

  async #proclaim(value: string): Promise<void> {
    for (;;) {
      const { succeeded, header, ranges } = await this.#put(value);
      const own = ranges[0]?.kvs[0];
      if (!succeeded && own?.createRevision !== this.revision) return this.#lost();
      // Not succeeded: another client wrote the key, or an unanswered attempt of ours was executed.
      this.#modified = own?.modRevision ?? header.revision;
      if (succeeded || own?.value === value) return;
    }
  }

  async #put(value: string): Promise<TxnAnswer> {
    this.refresh();
    this.signal.throwIfAborted();
    const what = `proclaim a value as leader of "${this.name}"`;
    try {
      const policy = { ...this.#lease.policy(what), signal: this.signal };
      return await this.#lease.services.client.txn(this.#putTxn(value), policy);
    } catch (error) {
      this.signal.throwIfAborted();
      throw error;
    }
  }

  /**
   * An unanswered attempt may still be executed later. The create revision protects a later holder's key from it; the
   * modification revision protects values that were proclaimed since.
   */
  #putTxn(value: string): Txn {
    const { name, revision } = this;
    const key = this.#entryKey;
    return {
      queues: [name],
      compare: [
        { kind: "created at", key, revision },
        { kind: "modified at", key, revision: this.#modified },
      ],
      success: [{ kind: "put", key, value, leaseId: this.#lease.leaseId }],
      failure: [{ kind: "range", key }],
    };
  }

  async #lost(): Promise<never> {
    await this.keyDeleted();
    throw this.signal.reason as Error;
  }
}
