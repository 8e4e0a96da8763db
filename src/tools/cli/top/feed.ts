import type { Cluster } from "../../../index.js";
import type { SeenEntry } from "../../../lock/queue/seen-entry.js";
import type { Clock, Timer } from "../../../base/util/clock.js";
import { Board, TooManyKeysError } from "../../../observe/board.js";
import { type Ask, type Contact, ContactCheck } from "../../../observe/contact.js";
import { CliError, EXIT, type Io } from "../io.js";

export interface FeedSettings {
  readonly cluster: Cluster;
  readonly prefix: string;
  readonly clock: Clock;
  readonly io: Io;
  /** Shortest time between two writes that changes lead to. */
  readonly intervalMs: number;
  /** Aborts when the program is asked to stop. */
  readonly signal: AbortSignal;
}

/** What is made of a board. */
export interface FeedView {
  /** Queues have changed; the board's first picture is the first call. */
  changed(names: ReadonlySet<string>): void;
  contact(contact: Contact): void;
  /** What to write now; may be empty. Called when the output has taken all that was written before. */
  draw(): string;
}

/** A board, whether etcd answers, and an output that is written to no more often than it was asked for. */
export class Feed {
  /** The exit code; rejects with what ended the feed. */
  readonly ended: Promise<number>;
  readonly board: Board;
  readonly #check: ContactCheck;
  #resolve: (code: number) => void = () => {};
  #reject: (error: Error) => void = () => {};
  #next: { readonly at: number; readonly timer: Timer } | undefined;
  #last = -Infinity;
  #stopped = false;
  /** When the leases of dead entries end by etcd's word, in monotonic milliseconds. Nobody renews them. */
  readonly #ends = new Map<bigint, number>();
  #isAsking = false;

  constructor(
    private readonly settings: FeedSettings,
    private readonly view: FeedView,
  ) {
    const { cluster, prefix, clock, intervalMs, io, signal } = settings;
    this.ended = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // Whoever made the feed awaits it later.
    this.ended.catch(() => {});
    const changed = this.guard((names: ReadonlySet<string>) => {
      view.changed(names);
      this.request(intervalMs);
    });
    this.board = Board.open(cluster, prefix, { changed, failed: (error) => this.fail(error) });
    const ask: Ask = (timeoutMs, signal) => this.board.ask(timeoutMs, signal);
    this.#check = new ContactCheck(clock, ask, (contact) => {
      this.guard(() => view.contact(contact))();
      this.request(intervalMs);
    });
    io.stdout.on("drain", this.#drained);
    signal.addEventListener("abort", this.#aborted);
    if (signal.aborted) this.#aborted();
  }

  get contact(): Contact {
    return this.#check.contact;
  }

  /** Milliseconds until the place of a dead entry is free; undefined: etcd has not been asked, or the lease should have ended. */
  freeInMs({ leaseId }: SeenEntry): number | undefined {
    const ms = (this.#ends.get(leaseId) ?? 0) - this.settings.clock.monotonic();
    return ms > 0 ? ms : undefined;
  }

  /** Asks etcd for how long the dead ones of these entries keep their places, unless it is known. Never rejects; true: there is news. */
  async askFree(entries: readonly SeenEntry[]): Promise<boolean> {
    const unknown = entries.filter((entry) => entry.isDelay && this.freeInMs(entry) === undefined);
    if (unknown.length === 0 || this.#isAsking || this.#stopped) return false;
    this.#isAsking = true;
    try {
      const ttls = await this.board.ttlsOf(unknown.map(({ leaseId }) => leaseId));
      const now = this.settings.clock.monotonic();
      for (const [leaseId, end] of this.#ends) if (end <= now) this.#ends.delete(leaseId);
      for (const [leaseId, ms] of ttls) this.#ends.set(leaseId, now + ms);
      return [...ttls.values()].some((ms) => ms > 0);
    } catch {
      // Whether etcd answers is told by the contact.
      return false;
    } finally {
      this.#isAsking = false;
    }
  }

  /** Draws soon, but not earlier than `gapMs` after the last time. */
  request(gapMs: number): void {
    if (this.#stopped) return;
    const { clock } = this.settings;
    const now = clock.monotonic();
    const at = Math.max(now, this.#last + gapMs);
    if (this.#next && this.#next.at <= at) return;
    this.#next?.timer.cancel();
    const draw = this.guard(() => this.#draw());
    this.#next = { at, timer: clock.after(at - now, draw) };
  }

  end(code: number): void {
    this.stop();
    this.#resolve(code);
  }

  fail(error: Error): void {
    this.stop();
    const tooMany = error instanceof TooManyKeysError;
    this.#reject(tooMany ? new CliError(EXIT.usage, error.message) : error);
  }

  /** A callback that ends the feed with what it throws, so that the terminal is restored. */
  guard<A extends readonly unknown[]>(run: (...args: A) => void): (...args: A) => void {
    return (...args) => {
      try {
        if (!this.#stopped) run(...args);
      } catch (error) {
        this.fail(error as Error);
      }
    };
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    const { io, signal } = this.settings;
    this.board.stop();
    this.#check.stop();
    this.#next?.timer.cancel();
    io.stdout.off("drain", this.#drained);
    signal.removeEventListener("abort", this.#aborted);
  }

  #draw(): void {
    const { io, clock } = this.settings;
    this.#next = undefined;
    // A slow terminal gets fewer pictures, not older ones: `#drained` draws the next one.
    if (io.stdout.writableNeedDrain) return;
    this.#last = clock.monotonic();
    const text = this.view.draw();
    if (text !== "") io.stdout.write(text);
  }

  readonly #drained = (): void => this.request(this.settings.intervalMs);
  readonly #aborted = (): void => this.fail(this.settings.signal.reason as Error);
}
