// Bare requests: a deletion on one side and its event on the other, and another client's writes.
import { setTimeout as delay } from "node:timers/promises";
import type { BareKey } from "../peers/client.js";
import { now } from "./clock.js";
import type { BareTask } from "./protocol.js";

/** Writes come in small groups, because timers are no more precise. */
const GROUP_MS = 10;

export class Requests {
  readonly journal: number[] = [];
  readonly granted = 0;
  #stopped = false;
  #ended: Promise<unknown> = Promise.resolve();

  static async start(key: BareKey, task: BareTask): Promise<Requests> {
    const requests = new Requests(key);
    if (task.kind === "watch") await requests.#watch();
    else requests.#ended = task.kind === "delete" ? requests.#delete(task) : requests.#write(task);
    return requests;
  }

  private constructor(private readonly key: BareKey) {}

  async stop(close: () => Promise<void>): Promise<void> {
    this.#stopped = true;
    await this.#ended;
    await close();
    this.key.close();
  }

  #watch(): Promise<void> {
    return this.key.watch((revision) => void this.journal.push(now(), revision));
  }

  async #delete({ everyMs }: { readonly everyMs: number }): Promise<void> {
    while (!this.#stopped) {
      await this.key.put();
      await delay(everyMs);
      const at = now();
      this.journal.push(at, await this.key.delete());
    }
  }

  async #write({ perSecond }: { readonly perSecond: number }): Promise<void> {
    const begun = performance.now();
    for (let sent = 0; !this.#stopped; await delay(GROUP_MS)) {
      const due = Math.floor(((performance.now() - begun) / 1000) * perSecond) - sent;
      const puts = Array.from({ length: due }, () => this.key.put());
      sent += due;
      // Waits for them, so that an etcd that cannot keep up is not overloaded.
      await Promise.all(puts);
    }
  }
}
