import type { EtcdServices } from "../session/connection.js";
import type { LockRequest } from "./request.js";

const registries = new WeakMap<EtcdServices, RequestRegistry>();

/** The requests under way in all managers of one cluster in this process. */
export class RequestRegistry {
  /** Requests, by ID, whose callbacks have not settled and whose locks are not lost. */
  readonly live = new Map<string, LockRequest>();
  #answered: Promise<void> = Promise.resolve();

  static of(connection: EtcdServices): RequestRegistry {
    const registry = registries.get(connection) ?? new RequestRegistry();
    registries.set(connection, registry);
    return registry;
  }

  /** Resolves when each request so far has been granted and called back, is known to wait, or has ended. */
  get answered(): Promise<void> {
    return this.#answered;
  }

  add(request: LockRequest): void {
    this.live.set(request.id, request);
    this.#answered = this.#answered.then(() => request.answered);
  }

  /** Later requests no longer wait for those before `request`, because etcd is too slow in deciding them. */
  pass({ order }: LockRequest): void {
    for (const earlier of this.live.values()) {
      if (earlier.order < order) earlier.answer();
    }
  }
}
