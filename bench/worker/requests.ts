// Bare requests: a deletion on one side and its event on the other, and another client's writes.
import { setTimeout as delay } from "node:timers/promises";
import type { Etcd3 } from "etcd3";
import { now } from "./clock.js";
import type { CycleTask, Task } from "./protocol.js";

/** Writes come in small groups, because timers are no more precise. */
const GROUP_MS = 10;

export class Requests {
  readonly journal: number[] = [];
  readonly granted = 0;
  #stopped = false;
  #ended: Promise<unknown> = Promise.resolve();
  #hangUp = () => {};

  static async start(client: Etcd3, task: Exclude<Task, CycleTask>): Promise<Requests> {
    const requests = new Requests(client, Buffer.from(task.name));
    if (task.kind === "watch") await requests.#watch();
    else requests.#ended = task.kind === "delete" ? requests.#delete(task) : requests.#write(task);
    return requests;
  }

  private constructor(
    private readonly client: Etcd3,
    private readonly key: Buffer,
  ) {}

  async stop(close: () => Promise<void>): Promise<void> {
    this.#stopped = true;
    await this.#ended;
    this.#hangUp();
    await close();
  }

  /** Resolves when the watch exists. */
  async #watch(): Promise<void> {
    const stream = await this.client.watchClient.watch();
    this.#hangUp = () => {
      stream.end();
      stream.cancel();
    };
    return new Promise((resolve, reject) => {
      stream.on("error", reject);
      stream.on("data", ({ created, events }) => {
        const at = now();
        if (created) resolve();
        for (const { kv, type } of events)
          if (type === "Delete") this.journal.push(at, Number(kv.mod_revision));
      });
      stream.write({ create_request: { key: this.key, start_revision: "0" } });
    });
  }

  async #delete({ everyMs }: { readonly everyMs: number }): Promise<void> {
    const { kv } = this.client;
    while (!this.#stopped) {
      await kv.put({ key: this.key, value: this.key });
      await delay(everyMs);
      const at = now();
      const { header } = await kv.deleteRange({ key: this.key });
      this.journal.push(at, Number(header.revision));
    }
  }

  async #write({ perSecond }: { readonly perSecond: number }): Promise<void> {
    const begun = performance.now();
    for (let sent = 0; !this.#stopped; await delay(GROUP_MS)) {
      const due = Math.floor(((performance.now() - begun) / 1000) * perSecond) - sent;
      const puts = Array.from({ length: due }, () => this.client.kv.put({ key: this.key, value: this.key }));
      sent += due;
      // Waits for them, so that an etcd that cannot keep up is not overloaded.
      await Promise.all(puts);
    }
  }
}
