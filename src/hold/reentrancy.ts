import { AsyncLocalStorage } from "node:async_hooks";
import { LockLostError } from "../errors.js";
import type { HoldHandle } from "./hold.js";

/** A lock that `withLock` holds around the code that runs in its async context. */
export class HeldScope {
  /** Works inside, the first one included. */
  #inside = 0;
  #lastLeft: () => void = () => {};

  constructor(
    /** Names of two clusters have nothing to do with each other. */
    readonly realm: object,
    readonly lock: HoldHandle,
  ) {}

  get held(): boolean {
    return this.#inside > 0 && !this.lock.signal.aborted;
  }

  /** Runs `work`, waits for the works that entered again, releases. The error of `work` comes before the release's. */
  async enter<T>(work: (lock: HoldHandle) => T): Promise<Awaited<T>> {
    const everybodyLeft = new Promise<void>((resolve) => (this.#lastLeft = resolve));
    let result: Awaited<T>;
    try {
      result = await this.#run(work);
    } catch (error) {
      await everybodyLeft;
      await this.lock.release().catch(() => undefined);
      throw error;
    }
    await everybodyLeft;
    await this.lock.release();
    return result;
  }

  /** Runs `work` with the lock that is held already. @throws LockLostError when `work` ended well but the lock was lost. */
  async enterAgain<T>(work: (lock: HoldHandle) => T): Promise<Awaited<T>> {
    const result = await this.#run(work);
    // Reads the clocks. Released is no loss: the outer work may have ended before this one, and was waiting for it only.
    void this.lock.held;
    const reason: unknown = this.lock.signal.reason;
    if (reason instanceof LockLostError) throw reason;
    return result;
  }

  async #run<T>(work: (lock: HoldHandle) => T): Promise<Awaited<T>> {
    this.#inside++;
    const outer = (storage.getStore() ?? []).filter((entrance) => entrance.held);
    try {
      return await storage.run([...outer, this], () => work(this.lock));
    } finally {
      if (--this.#inside === 0) this.#lastLeft();
    }
  }
}

const storage = new AsyncLocalStorage<readonly HeldScope[]>();

/** What this context holds of exactly this name, by itself: who shares it, and so has no fence, has no lock to enter again. */
export function enclosingHold(realm: object, name: string): HeldScope | undefined {
  return storage
    .getStore()
    ?.find(
      (entrance) =>
        entrance.realm === realm && entrance.lock.name === name && entrance.held && "fence" in entrance.lock,
    );
}

/** The name that a `lock()` here would wait for in vain: `name` itself, or one under it, whose keys are in its range. */
export function enclosingConflict(realm: object, name: string): string | undefined {
  const blocks = (held: string): boolean => held === name || held.startsWith(`${name}/`);
  return storage
    .getStore()
    ?.find((entrance) => entrance.realm === realm && entrance.held && blocks(entrance.lock.name))?.lock.name;
}
