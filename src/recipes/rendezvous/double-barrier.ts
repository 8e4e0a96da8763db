// The public double barrier. What a member does in one round is in member-round.ts.
import { checkFunction, checkInteger, checkName, checkWait } from "../../base/options/check.js";
import { type LeaseSource, leaseSourceOf, type SessionSource } from "../../lock/session/cluster.js";
import type { WaitOptions } from "../../lock/session/session-options.js";
import { checkOnCrash, REJECT_OR_CONTINUE } from "./await-keys.js";
import { MAX_MEMBERS } from "./member-keys.js";
import { MemberRound } from "./member-round.js";

/** Options of `enter` and `leave`. */
export interface DoubleBarrierOptions extends WaitOptions {
  /**
   * What follows when the session of another member ends before all have entered, or before it has left: "reject", with a
   * BarrierBrokenError that names it; "continue": `enter` waits for another member in its place, and `leave` counts it as left.
   * @default "reject"
   */
  readonly onCrash?: "reject" | "continue" | undefined;
}

/**
 * A barrier that a number of members enter together and leave together, in any processes: `enter()` resolves when all have entered, `leave()` when all
 * have left. Each object is one member. After its `leave()`, it may enter the next round. The keys are those of Go's
 * `recipe.DoubleBarrier`, so members with either client meet.
 *
 * A member whose session ends is told to the others that wait, by a BarrierBrokenError, and waited for no longer. Its keys are below
 * the name, so a lock of the same name waits for them: give the barrier a name of its own.
 *
 * Go's client tells its caller of no death, and opens the barrier by what it has read a moment before. The end of a member in Go is told
 * while others enter; when they leave, it counts as left.
 */
export class DoubleBarrier {
  readonly #source: LeaseSource;
  #round: MemberRound | undefined;
  /** The one that it has entered last, or has tried to. */
  #last: MemberRound | undefined;
  #state: "outside" | "entering" | "inside" | "leaving" = "outside";

  /**
   * @param members how many there are, 1..100: the same for all of them.
   * @throws {TypeError | RangeError} on bad arguments.
   */
  constructor(
    source: SessionSource,
    readonly name: string,
    members: number,
  ) {
    this.#source = leaseSourceOf(source);
    checkName(name);
    if (members === undefined) throw new TypeError("Expected members to be a number, got undefined");
    this.members = checkInteger("members", members, { min: 1, max: MAX_MEMBERS, fallback: NaN });
  }

  readonly members: number;

  /**
   * Enters, and resolves when all members have entered. Costs a request, a read and a watch; for the last one, two requests more. No limit of time by default.
   *
   * On abort, or after `timeoutMs`: rejects at once, and leaves in the background; the others wait for another member. If the barrier opened
   * in that moment, they see a member that has entered, and left at once. The next call of this member first waits until it has left.
   * @throws {BarrierBrokenError} if a member died meanwhile: see `onCrash`. This one has left.
   * @throws {BarrierFullError} if the barrier has all its members. @throws {CountMismatchError} if an earlier one waits for another number.
   * @throws {WaitTimeoutError} after `timeoutMs`. @throws {EtcdUnavailableError} after `timeoutMs`, if etcd does not answer.
   * @throws {SessionLostError | SessionClosedError} if the session ends. @throws {EtcdRefusedError} if etcd rejects a request.
   * @throws {TypeError | RangeError} on bad options, and on a call of a member that is not outside.
   */
  async enter(options?: DoubleBarrierOptions): Promise<void> {
    const { signal, timeoutMs } = checkWait("enter", options, ["onCrash"]);
    const rejects = checkOnCrash(options?.onCrash, REJECT_OR_CONTINUE) === "reject";
    this.#go("outside", "entering", "enter");
    try {
      const start = this.#source.services.clock.monotonic();
      const lease = await this.#source.lease({ signal, timeoutMs });
      lease.assertOpen();
      signal?.throwIfAborted();
      const passed = this.#source.services.clock.monotonic() - start;
      const leftMs = timeoutMs === undefined ? undefined : Math.max(1, timeoutMs - passed);
      const after = this.#last?.leaving;
      const round = (this.#last = new MemberRound(this.name, this.members, lease));
      await round.enter({ signal, timeoutMs: leftMs, saidMs: timeoutMs ?? 0, rejects, after });
      this.#round = round;
      this.#state = "inside";
    } catch (error) {
      this.#state = "outside";
      throw error;
    }
  }

  /**
   * Leaves, and resolves when all members have left. Costs a request and a read; for the last one a request more, and for the others a read and a watch. No limit of time by default.
   *
   * On abort, or after `timeoutMs`: rejects at once; this member leaves nevertheless. It is outside after each end of the call; the next `enter` first
   * waits until it has left.
   * @throws {BarrierBrokenError} if members died without leaving, when all others have left: see `onCrash`.
   * @throws {WaitTimeoutError} after `timeoutMs`. @throws {EtcdUnavailableError} after `timeoutMs`, if etcd does not answer.
   * @throws {SessionLostError | SessionClosedError} if the session ends, or has: the others are told. @throws {EtcdRefusedError} if etcd rejects a request.
   * @throws {TypeError | RangeError} on bad options, and on a call of a member that is not inside.
   */
  async leave(options?: DoubleBarrierOptions): Promise<void> {
    const wait = checkWait("leave", options, ["onCrash"]);
    const rejects = checkOnCrash(options?.onCrash, REJECT_OR_CONTINUE) === "reject";
    this.#go("inside", "leaving", "leave");
    const round = this.#round as MemberRound;
    try {
      await round.leave({ ...wait, rejects });
    } finally {
      this.#round = undefined;
      this.#state = "outside";
    }
  }

  /**
   * Enters, does `work`, and leaves: resolves with its value when all have left. If it throws, this member leaves, and the call rejects
   * with that error, without a wait for the others. `signal` and `timeoutMs` apply to `enter` and `leave`, each by itself.
   * @throws what `work` threw. @throws as `enter` and `leave`.
   */
  async within<T>(work: () => T | PromiseLike<T>, options?: DoubleBarrierOptions): Promise<T> {
    checkFunction("work", work);
    await this.enter(options);
    let value: T;
    try {
      value = await work();
    } catch (error) {
      const round = this.#round;
      [this.#round, this.#state] = [undefined, "outside"];
      await round?.goOut().catch(() => undefined);
      throw error;
    }
    await this.leave(options);
    return value;
  }

  #go(from: DoubleBarrier["state"], to: DoubleBarrier["state"], call: string): void {
    if (this.#state !== from)
      throw new TypeError(`Cannot ${call} the barrier "${this.name}": this member is ${this.#state}`);
    this.#state = to;
  }

  /** Where this member is. */
  get state(): "outside" | "entering" | "inside" | "leaving" {
    return this.#state;
  }
}
