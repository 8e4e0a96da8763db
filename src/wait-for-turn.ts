import { blockedHere, heldHere } from "./context.js";
import { DeadlockError, EtcdUnavailableError, LockTimeoutError } from "./errors.js";
import type { Lease } from "./lease.js";
import type { CheckedWait } from "./options.js";
import { readAhead, type Ahead } from "./places.js";
import type { LeaseSource } from "./source.js";
import type { Timer } from "./time.js";
import { settleWithin } from "./wait.js";
import { withLease, type Attempt } from "./with-lease.js";

/** The last part of a wait, in which the holder is asked for, so that a timeout can name it. */
const ASK_HOLDER_MS = 500;
const OPENING = "its session was still being opened";

/** A call that waits for its turn under one name, or under several. */
interface TurnWaiter<T> {
  readonly granted: Promise<T>;
  /** It has, or had, a place in the queue. */
  readonly joined: boolean;
  /** The caller waits no longer; its place is removed in the background. */
  giveUp(): void;
}

/** A name that is waited for, with the create revision of its place; 0n when it has none yet. */
interface Waited {
  readonly name: string;
  readonly revision: bigint;
}

interface Wanted<T, W extends TurnWaiter<T>> {
  readonly names: readonly string[];
  enter(lease: Lease): W;
  waitedFor(waiter: W): Waited;
  /** Its turn came after the caller had left. */
  giveBack(granted: T): void;
}

/** Puts a call into its queues, and waits for its turn there. */
export async function waitForTurn<T, W extends TurnWaiter<T>>(
  source: LeaseSource,
  wait: CheckedWait,
  wanted: Wanted<T, W>,
): Promise<T> {
  const { connection } = source;
  wait.signal?.throwIfAborted();
  assertFree(source, wanted.names);
  const begin = (lease: Lease, left: CheckedWait): Attempt<T> => {
    const waiter = wanted.enter(lease);
    const question = new HolderQuestion(lease, () => wanted.waitedFor(waiter), left.timeoutMs);
    const settled = settleWithin(waiter.granted, left, connection, {
      onTimeout: () => question.timeout(wait.timeoutMs ?? 0),
      onGiveUp: () => waiter.giveUp(),
      onUnwanted: (granted) => wanted.giveBack(granted),
    });
    return { settled: question.during(settled), joined: () => waiter.joined };
  };
  return withLease(source, wait, begin).catch((error: unknown) => {
    // No member has failed: the time was too short for opening the first session.
    const tooShort = error instanceof EtcdUnavailableError && !connection.members.failing;
    if (!tooShort || wait.timeoutMs === undefined) throw error;
    const [name = ""] = wanted.names;
    throw new LockTimeoutError(name, wait.timeoutMs, undefined, undefined, OPENING);
  });
}

/** @throws DeadlockError when this async context would wait for itself. */
function assertFree({ connection }: LeaseSource, names: readonly string[]): void {
  for (const name of names) {
    const blocking = blockedHere(connection, name);
    if (blocking === undefined) continue;
    const advice = heldHere(connection, name)
      ? "; a Mutex can be entered again with { reentrant: true }"
      : "";
    const why = `would wait for "${blocking}", which this async context already holds${advice}`;
    throw new DeadlockError(name, `Lock "${name}" ${why}`);
  }
}

/** Asks who holds shortly before the time is over: a timeout says it without keeping its caller any longer. */
class HolderQuestion {
  #name: string | undefined;
  #ahead: Ahead | undefined;
  readonly #timer: Timer | undefined;

  constructor(
    private readonly lease: Lease,
    private readonly waitedFor: () => Waited,
    timeoutMs: number | undefined,
  ) {
    if (timeoutMs === undefined) return;
    const askMs = Math.min(ASK_HOLDER_MS, timeoutMs / 2);
    this.#timer = lease.connection.clock.after(timeoutMs - askMs, () => void this.#ask(askMs));
  }

  /** The same promise, or one that ends the question when it settles. */
  during<T>(settled: Promise<T>): Promise<T> {
    const timer = this.#timer;
    return timer ? settled.finally(() => timer.cancel()) : settled;
  }

  /** With what was answered so far. */
  timeout(timeoutMs: number): LockTimeoutError {
    const { name } = this.waitedFor();
    const known = this.#name === name ? this.#ahead : undefined;
    return new LockTimeoutError(name, timeoutMs, known?.holder, known?.ahead);
  }

  async #ask(askMs: number): Promise<void> {
    const { connection } = this.lease;
    const { name, revision } = this.waitedFor();
    const policy = { ...this.lease.policy("read the queue"), giveUpMs: askMs, attemptMs: askMs };
    this.#name = name;
    // Not answered, or the session is over, which rejects the call itself.
    this.#ahead = await readAhead(connection, name, revision, policy).catch(() => undefined);
  }
}
