import type { Clock, Timer } from "../base/util/clock.js";

/** Whether etcd answers. */
export interface Contact {
  readonly state: "not yet" | "answers" | "silent";
  /** When the last answer came, in monotonic milliseconds; before the first one, when the first question was sent. */
  readonly since: number;
  readonly error: Error | undefined;
}

const INTERVAL_MS = 1000;
const TIMEOUT_MS = 2000;

/** Resolves with why etcd has not answered; with undefined if it has, also if it refuses. */
export type Ask = (timeoutMs: number, signal: AbortSignal) => Promise<Error | undefined>;

/** Asks etcd every second: a watch without events looks the same as a dead one. What is shown is as old as the last answer. */
export class ContactCheck {
  #contact: Contact;
  #timer: Timer | undefined;
  readonly #stopped = new AbortController();

  /** @param changed called when etcd falls silent, and when it answers again */
  constructor(
    private readonly clock: Clock,
    private readonly ask: Ask,
    private readonly changed: (contact: Contact) => void,
  ) {
    this.#contact = { state: "not yet", since: clock.monotonic(), error: undefined };
    void this.#ask();
  }

  get contact(): Contact {
    return this.#contact;
  }

  stop(): void {
    this.#stopped.abort();
    this.#timer?.cancel();
  }

  /** Never rejects. */
  async #ask(): Promise<void> {
    const { signal } = this.#stopped;
    // The answer tells of this moment at the earliest.
    const asked = this.clock.monotonic();
    const error = await this.ask(TIMEOUT_MS, signal).catch((reason: unknown) => reason as Error);
    if (signal.aborted) return;
    this.#timer = this.clock.after(INTERVAL_MS, () => void this.#ask());
    const before = this.#contact;
    const state = error ? "silent" : "answers";
    this.#contact = { state, since: error ? before.since : asked, error };
    if (state !== before.state) this.changed(this.#contact);
  }
}
