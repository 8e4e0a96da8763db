import type { ServerEvent } from "../../lab/runner/history.js";
import { splitEvents } from "../../lab/runner/delay-keys.js";
import type { Change } from "../../../src/testing/memory/store.js";

/** The key-value pair that a deletion removed. */
interface Living {
  readonly create: bigint;
  readonly lease: string;
  readonly value: string;
}

/** The history of the simulated etcd as the lab's observer would record it, dated when it happened. */
export class ServerEvents {
  readonly events: ServerEvent[] = [];
  readonly #living = new Map<string, Living>();

  constructor(private readonly now: () => bigint) {}

  add({ revision, events, leaseEnded }: Change): void {
    for (const { kind, kv } of events) {
      const key = kv.key.toString();
      const put = { create: kv.createRevision, lease: kv.leaseId.toString(16), value: kv.value };
      const { create, lease, value } = kind === "PUT" ? put : (this.#living.get(key) ?? put);
      if (kind === "PUT") this.#living.set(key, put);
      else this.#living.delete(key);
      this.events.push({
        ...{ rev: revision, type: kind, key, create, lease, value, tSeen: this.now() },
        ...(leaseEnded !== undefined && { leaseEnded: true }),
      });
    }
  }

  split(): ReturnType<typeof splitEvents> {
    return splitEvents(this.events);
  }

  /** The keys that exist under `prefix`, in create order. */
  living(prefix: string): string[] {
    const found = [...this.#living].filter(([key]) => key.startsWith(prefix));
    return found.sort(([, a], [, b]) => Number(a.create - b.create)).map(([key]) => key);
  }

  /** The create revision and the lease of a key that exists. */
  of(key: string): Living | undefined {
    return this.#living.get(key);
  }
}
