import type { ServerEvent } from "../../lab/runner/history.js";
import type { KeyValue } from "../../../src/etcd/port.js";
import { isAscii } from "../etcd/bytes.js";
import type { Change } from "../etcd/store.js";

/** The key-value pair that a deletion removed. */
interface Living {
  readonly create: bigint;
  readonly lease: string;
  readonly value: string;
}

const livingOf = ({ createRevision: create, leaseId, value }: KeyValue): Living => ({
  ...{ create, lease: leaseId.toString(16), value },
});

/** The history of the simulated etcd as the lab's observer would record it, dated when it happened. */
export class ServerEvents {
  readonly events: ServerEvent[] = [];
  readonly #living = new Map<string, Living>();

  constructor(private readonly now: () => bigint) {}

  add({ revision, events, names }: Change): void {
    events.forEach(({ kind, kv }, n) => {
      const name = names[n]!;
      const key = isAscii(name) ? name : kv.key.toString();
      const put = kind === "PUT" ? livingOf(kv) : undefined;
      const { create, lease, value } = put ?? this.#living.get(key) ?? livingOf(kv);
      if (put === undefined) this.#living.delete(key);
      else this.#living.set(key, put);
      this.events.push({ rev: revision, type: kind, key, create, lease, value, tSeen: this.now() });
    });
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
