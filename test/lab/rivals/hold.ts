import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "./client.js";
import { Deferred } from "./patience.js";
import type { Store, Visit } from "./store.js";

/** The client is asked at this interval while it holds, so that its claims are known at all times. */
const LOOK_MS = 20;
/** The time between reading the counter and writing the next number. */
const WORK_MS = 10;

/** A lock that a client was granted, and its use. */
export class Hold {
  readonly #client: Client;
  readonly #store: Store;
  readonly #lost = new Deferred<void>();
  #over = false;

  constructor(
    client: Client,
    store: Store,
    readonly id: number,
    readonly name: string,
    readonly token: bigint | undefined,
  ) {
    this.#client = client;
    this.#store = store;
    void this.#look();
  }

  /** Resolves when the client was notified of the loss, or reported it when asked. */
  get lost(): Promise<void> {
    return this.#lost.promise;
  }
  get over(): boolean {
    return this.#over;
  }

  told(): void {
    this.#lost.resolve();
  }

  /** Asks the client whether it holds; false also when its process has ended. */
  async claims(): Promise<boolean> {
    const held = await this.#client.claim(this.id);
    if (!held && !this.#over) this.#lost.resolve();
    return held;
  }

  /** The counter; undefined = the client does not claim to hold, or the store refused it. */
  async read(): Promise<number | undefined> {
    if (!(await this.claims())) return undefined;
    const visit = this.#store.read(this.#visitor);
    this.#note("read", visit);
    return visit.accepted ? visit.before : undefined;
  }

  /** Whether it was written. */
  async write(seq: number): Promise<boolean> {
    const deliver = await this.send(seq);
    return deliver?.() ?? false;
  }

  /** A write in transit: the claim has been made, but the store has not received it yet. */
  async send(seq: number): Promise<(() => boolean) | undefined> {
    if (!(await this.claims())) return undefined;
    return () => {
      const visit = this.#store.write(this.#visitor, seq);
      this.#note("write", visit, seq);
      return visit.accepted;
    };
  }

  async increment(): Promise<boolean> {
    const seq = await this.read();
    if (seq === undefined) return false;
    await delay(WORK_MS);
    return this.write(seq + 1);
  }

  /** Resolves when the subject has resolved or rejected, or the process has ended. */
  async release(): Promise<void> {
    this.#over = true;
    await this.#client.release(this.id);
  }

  async #look(): Promise<void> {
    while (!this.#over && !this.#client.ended) {
      await this.claims();
      await delay(LOOK_MS);
    }
  }

  get #visitor() {
    return { name: this.name, ...(this.token !== undefined && { token: this.token }) };
  }

  #note(k: "read" | "write", visit: Visit, seq?: number): void {
    this.#client.note({ k, id: this.id, name: this.name, ...visit, ...(seq !== undefined && { seq }) });
  }
}
