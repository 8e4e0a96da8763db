import { AsyncLocalStorage } from "node:async_hooks";
import { LockLostError } from "../../errors.js";
import { ExclusiveHoldHandle, type HoldHandle } from "./hold.js";
import { WriteHoldHandle } from "./write-lock.js";

/** A lock that `withLock` holds while code runs in its async context. */
export class HeldScope<H extends HoldHandle = HoldHandle> {
  /** The number of callbacks inside, including the first one. */
  #inside = 0;
  #lastLeft: () => void = () => {};

  constructor(
    /** The same name on two clusters means two different locks. */
    readonly cluster: object,
    readonly lock: H,
  ) {}

  /** The lock has not ended, so a call inside that waited for it would wait for itself. */
  get open(): boolean {
    this.lock.refresh();
    return this.#inside > 0 && !this.lock.end;
  }

  /**
   * Runs `work`, waits for the callbacks that entered again, and releases, by `leave`. If both fail, the error of `work` is
   * thrown.
   */
  async enter<T>(work: (lock: H) => T, leave = () => this.lock.release()): Promise<Awaited<T>> {
    const everybodyLeft = new Promise<void>((resolve) => (this.#lastLeft = resolve));
    let result: Awaited<T>;
    try {
      result = await this.#run(work);
    } catch (error) {
      await everybodyLeft;
      await leave().catch(() => undefined);
      throw error;
    }
    await everybodyLeft;
    await leave();
    return result;
  }

  /**
   * Runs `work` with the lock that is already held. @throws LockExpiringError when a renewal has to confirm that first, after the
   * process was suspended. @throws LockLostError when `work` succeeded but the lock was lost.
   */
  async enterAgain<T>(work: (lock: H) => T): Promise<Awaited<T>> {
    this.lock.assertHeld();
    const result = await this.#run(work);
    this.lock.refresh();
    // A release is not a loss: the outer callback may have ended before this one and only waited for it.
    const { end } = this.lock;
    if (!(end instanceof LockLostError)) return result;
    await this.lock.explained;
    throw end;
  }

  async #run<T>(work: (lock: H) => T): Promise<Awaited<T>> {
    this.#inside++;
    const outer = (storage.getStore() ?? []).filter((scope) => scope.open);
    try {
      return await storage.run([...outer, this], () => work(this.lock));
    } finally {
      if (--this.#inside === 0) this.#lastLeft();
    }
  }
}

const storage = new AsyncLocalStorage<readonly HeldScope[]>();

/** Others may read beside a writer that has become a reader. */
const isExclusive = (scope: HeldScope): scope is HeldScope<ExclusiveHoldHandle> =>
  scope.lock instanceof ExclusiveHoldHandle &&
  !(scope.lock instanceof WriteHoldHandle && scope.lock.downgraded);

/** This context's exclusive hold of exactly this name. A shared hold cannot be entered again. */
export function enclosingHold(cluster: object, name: string): HeldScope<ExclusiveHoldHandle> | undefined {
  return storage
    .getStore()
    ?.filter(isExclusive)
    .find((scope) => scope.cluster === cluster && scope.lock.name === name && scope.open);
}

/** The held name that a `lock()` here would wait for in vain: `name` itself, or one under it, whose keys are in its range. */
export function enclosingConflict(cluster: object, name: string): string | undefined {
  const blocks = (held: string): boolean => held === name || held.startsWith(`${name}/`);
  return storage
    .getStore()
    ?.find((scope) => scope.cluster === cluster && scope.open && blocks(scope.lock.name))?.lock.name;
}
