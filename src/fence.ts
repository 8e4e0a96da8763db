import { StaleFenceError } from "./errors.js";
import { rangeError, typeError } from "./base/options/check.js";

/**
 * The arguments of etcd3's `client.if(...)` and `.and(...)` for a condition that is true while this very hold lasts.
 *
 *     await client.if(...whileHeld(lock)).then(client.put("balance").value("7")).commit()
 *
 * The condition compares the create revision of the lock's key, as Go's `Mutex.IsOwner()` does. A later hold under the
 * same key does not satisfy it, and a new value (`proclaim`) does not break it. etcd evaluates it in the transaction
 * itself, so it needs no clock.
 * @throws {TypeError | RangeError} when `hold` is not a hold: a malformed guard could allow any write.
 */
export function whileHeld(hold: {
  readonly key: string;
  readonly revision: bigint;
}): readonly [key: string, column: "Create", comparator: "==", revision: string] {
  const { key, revision } = checkHold(hold);
  return [key, "Create", "==", revision.toString()];
}

/**
 * The resource's side of fencing, in memory: admits a token unless it has admitted a higher one before.
 * If `highest` must outlive the process, store it with the data and pass it to the constructor.
 */
export class FenceGate {
  #highest: bigint;

  /** @throws {TypeError} when `highest` is not a bigint. @throws {RangeError} when it is negative. */
  constructor(highest = 0n) {
    this.#highest = checkFence("highest", highest);
  }

  /** The highest token admitted so far. */
  get highest(): bigint {
    return this.#highest;
  }

  /**
   * Returns if `fence` is at least as high as every token admitted before, and remembers it.
   * @throws {StaleFenceError} when a higher token was admitted. @throws {TypeError} when `fence` is not a bigint.
   * @throws {RangeError} when it is negative.
   */
  admit(fence: bigint): void {
    checkFence("fence", fence);
    if (fence < this.#highest) throw new StaleFenceError(fence, this.#highest);
    this.#highest = fence;
  }

  /** `highest` as a decimal string. */
  toJSON(): { readonly highest: string } {
    return { highest: this.#highest.toString() };
  }
}

function checkHold(hold: unknown): { readonly key: string; readonly revision: bigint } {
  if (typeof hold !== "object" || hold === null) throw typeError("hold", "a hold", hold);
  const { key, revision } = hold as { readonly key?: unknown; readonly revision?: unknown };
  if (typeof key !== "string") throw typeError("hold.key", "a string", key);
  // etcd would compare with 0, which is true if the key does not exist: such a guard would allow any write.
  if (checkFence("hold.revision", revision) === 0n) throw rangeError("hold.revision", "1n or more", revision);
  return { key, revision: revision as bigint };
}

function checkFence(option: string, value: unknown): bigint {
  if (typeof value !== "bigint") throw typeError(option, "a bigint, as BigInt(text) gives", value);
  if (value < 0n) throw rangeError(option, "0n or more", value);
  return value;
}
