import { pause } from "../async/clock.js";
import { EtcdRefusedError, LockLostError } from "../errors.js";
import { Backoff } from "../etcd/backoff.js";
import type { Txn, TxnAnswer } from "../etcd/port.js";
import type { CallPolicy } from "../etcd/retry.js";
import { HeldScope } from "../hold/reentrancy.js";
import type { Lock } from "../hold/hold.js";
import type { Lease } from "../session/lease.js";
import type { Claim } from "./claim.js";
import { NOTHING, parseMark } from "./marks.js";
import type { SlotPlan } from "./plan.js";
import { endTxn } from "./txns.js";

/** A claimed slot, from the grant until its mark says that it was run and the lock is released. */
export class SlotRun {
  #failed = true;

  constructor(
    private readonly lease: Lease,
    private readonly plan: SlotPlan,
    private readonly claim: Claim,
  ) {}

  get hold(): Claim["hold"] {
    return this.claim.hold;
  }

  /** @throws the error of `work`. @throws LockLostError when the lock was lost before the mark was put. */
  run<T>(work: (lock: Lock) => T): Promise<Awaited<T>> {
    const scope = new HeldScope(this.lease.services, this.claim.hold);
    const marked = async (lock: Lock): Promise<Awaited<T>> => {
      const value = await work(lock);
      this.#failed = false;
      return value;
    };
    return scope.enter(marked, () => this.#leave());
  }

  async #leave(): Promise<void> {
    const { hold } = this.claim;
    try {
      await this.#end();
    } catch (error) {
      // Nothing else releases a lock that was held for too long, or whose mark etcd rejects.
      void hold.release().catch(() => undefined);
      throw error;
    }
    // The mark was put while the lock was held: a later loss changes nothing.
    await hold.release().catch(() => undefined);
  }

  async #end(): Promise<void> {
    const { hold, mark } = this.claim;
    hold.refresh();
    hold.signal.throwIfAborted();
    const ended = {
      ...mark,
      state: this.#failed ? "failed" : "done",
      fence: hold.revision.toString(),
    } as const;
    const { lowest } = this.claim;
    const expiry = lowest ? this.plan.space.expire(lowest, this.plan.options.keep) : NOTHING;
    const txn = endTxn(this.plan, hold.revision, { mark: ended, expiry });
    const policy = this.lease.policy(`mark as run ${this.plan.text}`);
    const ending = this.lease.inFlight.track(this.#putEnd(txn, policy));
    const { succeeded, ranges } = await ending.catch((error: unknown) => {
      throw hold.signal.aborted ? hold.signal.reason : error;
    });
    if (succeeded || isEnded(ranges[0]?.kvs[0], mark.id)) return;
    // It says why the key is gone.
    await hold.release();
    throw new LockLostError(hold.name, hold.key, "deleted");
  }

  /** etcd may reject a put for as long as its database is full. The lock is not held longer than one TTL for that. */
  async #putEnd(txn: Txn, policy: CallPolicy): Promise<TxnAnswer> {
    const { services, signal, ttlMs } = this.lease;
    const { clock, client } = services;
    const backoff = new Backoff(clock);
    for (const until = clock.monotonic() + ttlMs; ;) {
      try {
        return await client.txn(txn, policy);
      } catch (error) {
        if (!(error instanceof EtcdRefusedError) || clock.monotonic() >= until) throw error;
        await pause(clock, backoff.nextMs(), signal);
      }
    }
  }
}

/** An unanswered attempt of ours has put the mark, and the lock was lost after that. */
const isEnded = (kv: Parameters<typeof parseMark>[0] | undefined, id: string): boolean => {
  const mark = kv && parseMark(kv);
  return mark?.id === id && mark.state !== "started";
};
