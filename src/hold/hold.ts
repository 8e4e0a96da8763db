import { setMaxListeners } from "node:events";
import {
  LockExpiringError,
  LockLostError,
  LockReleasedError,
  SessionLostError,
  type Loss,
} from "../errors.js";
import { KeyWatch } from "./key-watch.js";
import type { Dependent, SessionEnd } from "../session/lease.js";
import { Once } from "../async/once.js";
import { checkAtLeast } from "../options/check.js";
import type { Queue } from "../queue/queue.js";
import { settleWithin } from "../async/settle-within.js";
import type { Grant } from "../queue/waiter.js";

/** A held place of any kind. Ends once, by release or by loss. */
export interface Hold extends AsyncDisposable {
  readonly name: string;
  readonly key: string;
  /** Create revision of `key`: identifies this hold. */
  readonly revision: bigint;
  /** Aborts when the hold ends, *also on an ordinary release*: with LockLostError, or LockReleasedError after `release()`. Tell them apart by `reason.code`. */
  readonly signal: AbortSignal;
  /**
   * True until the hold ends or its deadline passes. Reads the clocks itself, so it is right in the first line that runs
   * after a pause of the process. False with `signal` not aborted means: in doubt, a renewal will tell.
   */
  readonly held: boolean;
  /** Milliseconds until the deadline if no further renewal is accepted; 0 when the hold has ended. */
  remainingMs(): number;
  /**
   * @throws {LockLostError | LockReleasedError} when the hold has ended.
   * @throws {LockExpiringError} when less than `atLeastMs` (default 0) is left. @throws {TypeError | RangeError} on misuse.
   */
  assertHeld(atLeastMs?: number): void;
  /**
   * Gives the place back: `held` is false and `signal` aborted before this returns. Resolves when etcd has confirmed, or
   * when the lease is over, and after one TTL in any case: what is not deleted by then is deleted in the background.
   * Idempotent. May be left un-awaited.
   * @throws {LockLostError} when the hold was lost before, and nothing else. Where a proxy has been seen to send requests
   * twice, a key that is gone already is no proof: the first of two releases may have deleted it. The loss of a hold that
   * lasts less than a second, whose key is not watched yet, is then reported only if its lease is gone, too.
   */
  release(): Promise<void>;
  /** Same as `release()`. */
  [Symbol.asyncDispose](): Promise<void>;
  /** bigints as decimal strings. */
  toJSON(): {
    readonly name: string;
    readonly key: string;
    readonly revision: string;
    readonly held: boolean;
  };
}

/** An exclusive hold. Only these have a fencing token: of holders that share, an older one would be refused after a newer one wrote. */
export interface Lock extends Hold {
  /** Fencing token, equal to `revision`. Strictly rises per name. */
  readonly fence: bigint;
}

type End = LockLostError | LockReleasedError;

/** However much of a program listens to one lock, that is no leak. */
function unlimited(controller: AbortController): AbortController {
  setMaxListeners(0, controller.signal);
  return controller;
}

export class HoldHandle implements Lock, Dependent {
  /** Not there at all where several may hold: see `Hold`. */
  declare readonly fence: bigint;
  readonly name: string;
  readonly key: string;
  readonly revision: bigint;
  readonly #queue: Queue;
  readonly #grant: Grant;
  readonly #heldKey: KeyWatch;
  #ended: "released" | End | undefined;
  /** The key is not there any more; why is still being asked. */
  #gone = false;
  /** Made when somebody asks: most holds are short, and nobody listens. */
  #controller: AbortController | undefined;
  readonly #released = new Once(() => this.#release());

  constructor(queue: Queue, grant: Grant) {
    const { entry } = grant;
    this.name = entry.name;
    this.key = entry.key;
    this.revision = entry.revision;
    if (!entry.mode.shared) Object.defineProperty(this, "fence", { value: entry.revision });
    this.#queue = queue;
    this.#grant = grant;
    this.#heldKey = new KeyWatch(entry, grant.ownWatch, grant.deletedAt, () => void this.keyDeleted());
    queue.lease.holds.add(this);
  }

  get signal(): AbortSignal {
    this.#hearSession();
    this.#controller ??= unlimited(new AbortController());
    if (this.#end && !this.#controller.signal.aborted) this.#controller.abort(this.#end);
    return this.#controller.signal;
  }

  get held(): boolean {
    // The standing first: reading it may end this hold.
    return this.#queue.lease.standing === "held" && !this.#ended && !this.#gone;
  }

  remainingMs(): number {
    const left = this.#queue.lease.remainingMs();
    return this.#ended || this.#gone ? 0 : left;
  }

  assertHeld(atLeastMs = 0): void {
    checkAtLeast(atLeastMs);
    const left = this.remainingMs();
    this.#hearSession();
    if (this.#end) throw this.#end;
    if (!this.held || left < atLeastMs) throw new LockExpiringError(this.name, left);
  }

  release(): Promise<void> {
    return this.#released.run();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  toJSON(): {
    readonly name: string;
    readonly key: string;
    readonly revision: string;
    readonly held: boolean;
  } {
    return { name: this.name, key: this.key, revision: this.revision.toString(), held: this.held };
  }

  /** Somebody deleted the key, or it went with its lease: that is asked before the loss gets its name. Resolves at the end. */
  async keyDeleted(): Promise<void> {
    this.#gone = true;
    await this.#askForLease();
    this.#endAsDeleted();
  }

  #endAsDeleted(): void {
    // Released meanwhile, or the session is over.
    if (this.#ended) return;
    this.#endWith(this.#loss("deleted"));
    this.#queue.lost(this.#grant.entry);
    this.#queue.lease.holdEnded(this);
  }

  sessionEnded(reason: SessionEnd): void {
    this.#endWith(this.#loss(reason.code === "SESSION_LOST" ? reason.loss : "closed", reason));
    this.#queue.lease.holds.delete(this);
  }

  /** A listener of the session's own signal runs before the session tells its holds. */
  #hearSession(): void {
    const { signal } = this.#queue.lease;
    if (signal.aborted) this.sessionEnded(signal.reason as SessionEnd);
  }

  #loss(loss: Loss, cause?: Error): LockLostError {
    return new LockLostError(this.name, this.key, loss, cause);
  }

  /** The error of an ordinary release is made when somebody asks for it: hardly anybody does. */
  get #end(): End | undefined {
    if (this.#ended === "released") this.#ended = new LockReleasedError(this.name);
    return this.#ended;
  }

  #endWith(end: "released" | End): void {
    if (this.#ended) return;
    this.#ended = end;
    this.#heldKey.stop();
    this.#controller?.abort(this.#end);
  }

  async #release(): Promise<void> {
    // Brings the hold up to the clocks: its deadline may have passed unseen.
    void this.#queue.lease.over;
    this.#hearSession();
    if (this.#gone) this.#endAsDeleted();
    if (this.#end) throw this.#end;
    this.#endWith("released");
    const { lease } = this.#queue;
    // Renewals may pass while deletes do not: the deletion goes on, but nobody waits for it longer than this.
    const limit = { signal: undefined, timeoutMs: lease.ttlMs };
    const onTimeout = (): Error => new Error("not confirmed within one TTL");
    const leaving = settleWithin(this.#queue.leave(this.#grant.entry), limit, lease.connection, {
      onTimeout,
    });
    // The session is over, and the key with it: released. Or not confirmed yet: the deletion goes on.
    const deleted = await leaving.catch(() => true);
    if (!deleted) await this.#askForLease();
    lease.holdEnded(this);
    const reason: unknown = lease.signal.reason;
    if (!deleted && reason instanceof SessionLostError) throw this.#loss(reason.loss, reason);
    if (!deleted && !lease.connection.path.requestsAreRepeated) throw this.#loss("deleted");
  }

  /** The session hears the answer; resolves when it has, or after a while. */
  async #askForLease(): Promise<void> {
    const { lease } = this.#queue;
    const limit = { signal: undefined, timeoutMs: lease.patienceMs };
    const onTimeout = (): Error => new Error("no answer to a renewal");
    await settleWithin(lease.renewNow(), limit, lease.connection, { onTimeout }).catch(() => undefined);
  }
}
