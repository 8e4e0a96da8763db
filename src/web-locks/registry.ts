import type { Connection } from "../session/connection.js";
import type { LockRequest } from "./request.js";

const registries = new WeakMap<Connection, RequestRegistry>();

/** The requests that all managers of one cluster in this process have under way. */
export class RequestRegistry {
  /** Their callbacks have not settled, and their locks are not lost. By ID. */
  readonly live = new Map<string, LockRequest>();
  #answered: Promise<void> = Promise.resolve();

  static of(connection: Connection): RequestRegistry {
    const registry = registries.get(connection) ?? new RequestRegistry();
    registries.set(connection, registry);
    return registry;
  }

  /** Resolves when each of the requests so far is granted and called back, known to wait, or over. */
  get answered(): Promise<void> {
    return this.#answered;
  }

  add(request: LockRequest): void {
    this.live.set(request.id, request);
    this.#answered = this.#answered.then(() => request.answered);
  }

  /** Later requests wait no longer for those before `request`, which etcd is too slow with. */
  pass({ order }: LockRequest): void {
    for (const earlier of this.live.values()) {
      if (earlier.order < order) earlier.answer();
    }
  }
}
