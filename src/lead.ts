import type { Cluster } from "./cluster.js";
import { connectionOf } from "./connection.js";
import { Election } from "./election.js";
import { EtcdUnavailableError, LockLostError, SessionLostError } from "./errors.js";
import type { Leader } from "./leader.js";
import type { Leadership } from "./leadership.js";
import { checkFunction, checkName, checkSession, checkSignal, checkValue } from "./options.js";
import { Session, type SessionOptions } from "./session.js";
import { pause, type Clock } from "./time.js";

export interface LeadOptions extends SessionOptions {
  /** What others see of this candidate in `leader()` and `observe()`, at most 65536 bytes. @default `owner` */
  readonly value?: string | undefined;
  /**
   * The stop signal. Campaigning ends at once. Work that runs is not interrupted: it leads until it ends by itself, so let
   * it listen to the same signal; then it is resigned.
   */
  readonly signal?: AbortSignal | undefined;
  /** Hears of every leader, as `observe()` tells them; undefined = nobody. What it throws is an `uncaughtException`. */
  readonly onLeader?: ((leader: Leader | undefined) => void) | undefined;
}

/** Work that ends soon after it was begun must not be begun again and again: others may do better. */
const FIRST_PAUSE_MS = 1000;
const MAX_PAUSE_MS = 30_000;
/** After a term as long as this it starts with the first pause again. */
const LONG_TERM_MS = 30_000;

/** What is checked, and known by its default where it was not given. */
interface Candidacy {
  readonly cluster: Cluster;
  readonly clock: Clock;
  readonly name: string;
  readonly work: (leadership: Leadership) => unknown;
  readonly session: SessionOptions;
  readonly value: string | undefined;
}

/**
 * Runs `work` whenever this process leads the election, in a session of its own, until `signal` aborts. Goes on through
 * outages of etcd and lost sessions: they cost the term, and after that it campaigns again. On a loss
 * `leadership.signal` aborts, and `work` is awaited before the next campaign. When `work` resolves it resigns and
 * campaigns again after a pause (1 s, doubling to 30 s). Resolves when it was stopped and has resigned: a stop is no
 * error, nor is an AbortError, or the signal's own reason, thrown by `work` then.
 * Rejects with what `work` throws while it leads, after it has resigned. What `work` throws after the term was lost is
 * ignored, even if etcd knew of the loss before this session did.
 * @throws {EtcdRefusedError} when etcd said no. @throws {SessionClosedError} when the cluster is closed.
 * @throws {TypeError | RangeError} on bad arguments.
 */
export async function lead(
  cluster: Cluster,
  name: string,
  work: (leadership: Leadership) => unknown,
  options?: LeadOptions,
): Promise<void> {
  const { clock } = connectionOf(cluster);
  checkName(name);
  checkFunction("work", work);
  const session = checkSession("lead", options, ["value", "signal", "onLeader"]);
  const { value, onLeader } = options ?? {};
  if (value !== undefined) checkValue("value", value);
  if (onLeader !== undefined) checkFunction("onLeader", onLeader);
  const following = new Following(new Election(cluster, name), onLeader);
  const given = checkSignal(options?.signal);
  const stop = given ? AbortSignal.any([given, following.failed]) : following.failed;
  try {
    await new Candidate({ cluster, clock, name, work, session, value }, stop).run();
    following.failed.throwIfAborted();
  } finally {
    following.end();
  }
}

/** Tells a listener of every leader. */
class Following {
  readonly #leaders: AsyncIterableIterator<Leader | undefined>;
  readonly #failed = new AbortController();

  constructor(election: Election, onLeader: LeadOptions["onLeader"]) {
    this.#leaders = election.observe();
    if (onLeader) void this.#follow(onLeader).catch((error: unknown) => this.#failed.abort(error));
  }

  /** Aborts when nobody will be told any more, though this has not been ended. */
  get failed(): AbortSignal {
    return this.#failed.signal;
  }

  end(): void {
    void this.#leaders.return?.();
  }

  async #follow(onLeader: (leader: Leader | undefined) => void): Promise<void> {
    // By itself: what it throws is its own affair.
    for await (const leader of this.#leaders) queueMicrotask(() => onLeader(leader));
  }
}

class Candidate {
  #session: Session | undefined;
  #pauseMs = FIRST_PAUSE_MS;

  constructor(
    private readonly candidacy: Candidacy,
    private readonly stop: AbortSignal,
  ) {}

  async run(): Promise<void> {
    try {
      while (!this.stop.aborted) {
        const leadership = await this.#elected();
        if (leadership) await this.#term(leadership);
      }
    } finally {
      // Nothing is held any more: there is nothing to wait for.
      await this.#session?.close({ drainMs: 0 });
    }
  }

  /** undefined = stopped, or to be tried again. */
  async #elected(): Promise<Leadership | undefined> {
    const { name, value } = this.candidacy;
    try {
      const session = await this.#openSession();
      return await new Election(session, name).campaign(value ?? session.owner, { signal: this.stop });
    } catch (error) {
      const passes = error instanceof SessionLostError || error instanceof EtcdUnavailableError;
      if (passes || this.stop.aborted) return undefined;
      throw error;
    }
  }

  async #openSession(): Promise<Session> {
    const { cluster, session } = this.candidacy;
    const state = this.#session?.state;
    if (this.#session && state !== "lost" && state !== "closed") return this.#session;
    this.#session = await Session.open(cluster, { ...session, signal: this.stop });
    return this.#session;
  }

  async #term(leadership: Leadership): Promise<void> {
    const { clock } = this.candidacy;
    const begin = clock.monotonic();
    const { lost } = await this.#work(leadership);
    if (clock.monotonic() - begin > LONG_TERM_MS) this.#pauseMs = FIRST_PAUSE_MS;
    if (lost) return;
    await pause(clock, this.#pauseMs, this.stop);
    this.#pauseMs = Math.min(MAX_PAUSE_MS, 2 * this.#pauseMs);
  }

  /** Rejects with what the work threw while it led. */
  async #work(leadership: Leadership): Promise<{ readonly lost: boolean }> {
    let failure: { readonly error: unknown } | undefined;
    try {
      await this.candidacy.work(leadership);
    } catch (error) {
      failure = { error };
    }
    // Reads the clocks: the loss may have come unseen.
    void leadership.held;
    const lost = leadership.signal.reason instanceof LockLostError;
    // The work may have learned of a loss from etcd before the session did: then there is nothing to resign.
    const led = await leadership.resign().then(
      () => true,
      () => false,
    );
    if (failure && led && !this.#isStop(failure.error)) throw failure.error;
    return { lost };
  }

  #isStop(error: unknown): boolean {
    const abort = error instanceof Error && error.name === "AbortError";
    return this.stop.aborted && (abort || error === this.stop.reason);
  }
}
