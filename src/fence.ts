import { StaleFenceError } from "./errors.js";
import { rangeError, typeError } from "./base/options/check.js";

/** A condition on this hold is made, so its key must leave with the release. Returns false if the hold has ended. */
export const GUARDS: unique symbol = Symbol("guards writes");

/** No revision gets so high, and clients that make a number of it keep it exact. */
const NEVER = BigInt(Number.MAX_SAFE_INTEGER);

/**
 * The arguments of etcd3's `client.if(...)` and `.and(...)` for a condition that is true while this very hold lasts, also of a
 * read lock or a permit.
 *
 *     await client.if(...whileHeld(lock)).then(client.put("balance").value("7")).commit()
 *
 * The condition compares the create revision of the lock's key, as Go's `Mutex.IsOwner()` does. A later hold under the
 * same key does not satisfy it, and a new value (`proclaim`) does not break it. etcd evaluates it in the transaction
 * itself, so it needs no clock. The key of a sticky lock that was passed to this leaves with the release: otherwise a later hold of the
 * same session would satisfy the condition. Pass the lock itself, as a copy of its `key` and `revision` can't do that. Of a hold that has
 * ended, the condition is never true.
 * @throws {TypeError | RangeError} when `hold` is not a hold: a malformed guard could allow any write.
 */
export function whileHeld(hold: {
  readonly key: string;
  readonly revision: bigint;
}): readonly [key: string, column: "Create", comparator: "==", revision: string] {
  const { key, revision: own } = checkHold(hold);
  const hasEnded = (hold as { [GUARDS]?(): boolean })[GUARDS]?.() === false;
  const revision = hasEnded ? NEVER : own;
  return [key, "Create", "==", revision.toString()];
}

/**
 * The resource's side of fencing, in memory: admits a token unless it has admitted a higher one before. The holds of a sticky lock may
 * have one `fence`; their `turn` then decides.
 * If `highest` must outlive the process, store it with the data, and `highestTurn`, and pass both to the constructor.
 */
export class FenceGate {
  #highest: bigint;
  #highestTurn: number;

  /** @throws {TypeError} when `highest` is not a bigint, or `turn` no number. @throws {RangeError} when it is negative, or `turn` no turn. */
  constructor(highest = 0n, turn = 1) {
    this.#highest = checkFence("highest", highest);
    this.#highestTurn = checkTurn(turn);
  }

  /** The highest token admitted so far. */
  get highest(): bigint {
    return this.#highest;
  }

  /** The highest turn of that token. */
  get highestTurn(): number {
    return this.#highestTurn;
  }

  /**
   * Returns if `fence` is at least as high as every token admitted before, and `turn` as every turn of the same token, and remembers them.
   * @param turn that of the lock; a lock that is not sticky has turn 1
   * @throws {StaleFenceError} when a higher one was admitted. @throws {TypeError} when `fence` is not a bigint, or `turn` no number.
   * @throws {RangeError} when `fence` is negative, or `turn` is not a whole number from 1 on.
   */
  admit(fence: bigint, turn = 1): void {
    checkFence("fence", fence);
    checkTurn(turn);
    const isOld = fence === this.#highest && turn < this.#highestTurn;
    if (fence < this.#highest || isOld)
      throw new StaleFenceError(
        fence,
        this.#highest,
        isOld ? { turn, highestTurn: this.#highestTurn } : undefined,
      );
    this.#highest = fence;
    this.#highestTurn = turn;
  }

  /** `highest` as a decimal string, and its turn if that is above 1. */
  toJSON(): { readonly highest: string; readonly highestTurn?: number } {
    const turn = this.#highestTurn;
    return { highest: this.#highest.toString(), ...(turn > 1 && { highestTurn: turn }) };
  }
}

function checkTurn(turn: unknown): number {
  if (typeof turn !== "number") throw typeError("turn", "a number", turn);
  if (!Number.isSafeInteger(turn) || turn < 1) throw rangeError("turn", "a whole number from 1 on", turn);
  return turn;
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
