import { EtcdUnavailableError, list, type Cluster } from "../../index.js";
import type { Clock, Timer } from "../../async/clock.js";

/** Whether etcd answers. */
export interface Contact {
  readonly state: "not yet" | "answers" | "silent";
  /** Monotonic milliseconds. */
  readonly since: number;
  readonly error: Error | undefined;
}

const INTERVAL_MS = 1000;
const TIMEOUT_MS = 2000;

/** Asks etcd every second: a watch without events looks the same as a dead one. */
export class ContactCheck {
  contact: Contact;
  #timer: Timer | undefined;
  readonly #stopped = new AbortController();

  constructor(
    private readonly asked: { readonly cluster: Cluster; readonly prefix: string; readonly clock: Clock },
    private readonly changed: (contact: Contact) => void,
  ) {
    this.contact = { state: "not yet", since: asked.clock.monotonic(), error: undefined };
    this.#ask();
  }

  stop(): void {
    this.#stopped.abort();
    this.#timer?.cancel();
  }

  #ask(): void {
    const { cluster, prefix } = this.asked;
    const options = { limit: 1, timeoutMs: TIMEOUT_MS, signal: this.#stopped.signal };
    void list(cluster, prefix, options).then(
      () => this.#told("answers"),
      // What etcd rejects fails the board too.
      (error: unknown) =>
        error instanceof EtcdUnavailableError ? this.#told("silent", error) : this.#told("answers"),
    );
  }

  #told(state: Contact["state"], error?: Error): void {
    if (this.#stopped.signal.aborted) return;
    const { clock } = this.asked;
    this.#timer = clock.after(INTERVAL_MS, () => this.#ask());
    if (state === this.contact.state) return;
    this.contact = { state, since: clock.monotonic(), error };
    this.changed(this.contact);
  }
}
