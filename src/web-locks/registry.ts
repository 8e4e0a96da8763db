import type { EtcdServices } from "../session/connection.js";
import type { LockRequestArguments } from "./arguments.js";

/** A request as the registry and `query` see it. */
export interface RegisteredRequest {
  readonly id: string;
  /** Position of its call among all calls. */
  readonly order: number;
  /** The manager that was called. */
  readonly client: { readonly clientId: string; readonly prefix: string };
  readonly args: LockRequestArguments;
  /** It waits, whether its entry is in the queue at this moment or not. */
  readonly pending: boolean;
  /** Resolves when `answer` is called: the request is known to wait, is decided, or must not delay later ones any longer. */
  readonly answered: Promise<void>;
  answer(): void;
}

const registries = new WeakMap<EtcdServices, RequestRegistry>();

/** The requests under way in all managers of one cluster in this process. */
export class RequestRegistry {
  /** Requests, by ID, whose callbacks have not settled and whose locks are not lost. */
  readonly live = new Map<string, RegisteredRequest>();
  #answered: Promise<void> = Promise.resolve();

  static of(services: EtcdServices): RequestRegistry {
    const registry = registries.get(services) ?? new RequestRegistry();
    registries.set(services, registry);
    return registry;
  }

  /** Resolves when each request so far has been granted and called back, is known to wait, or has ended. */
  get answered(): Promise<void> {
    return this.#answered;
  }

  add(request: RegisteredRequest): void {
    this.live.set(request.id, request);
    this.#answered = this.#answered.then(() => request.answered);
  }

  /** Later requests no longer wait for those before `request`, because etcd is too slow in deciding them. */
  pass({ order }: RegisteredRequest): void {
    for (const earlier of this.live.values()) {
      if (earlier.order < order) earlier.answer();
    }
  }
}
