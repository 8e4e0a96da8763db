import { noop } from "cockatiel";
import { Etcd3 } from "etcd3";
import type { whileHeld } from "../../../src/index.js";
import type { Gripped } from "./subject.js";

const CALL_MS = 1000;

export interface RegisterOptions {
  readonly hosts: readonly string[];
  readonly auth: { readonly username: string; readonly password: string } | undefined;
  readonly credentials: { readonly rootCertificate: Buffer } | undefined;
  readonly prefix: string;
  /** The index of the host to use first. */
  readonly first: number;
  readonly whileHeld: typeof whileHeld;
}

/**
 * A counter in etcd per lock, written only under the lock's guard and never retried: it uses a separate etcd client, as
 * a user's program would.
 */
export class Register {
  readonly #options: RegisterOptions;
  readonly #clients: readonly Etcd3[];
  #at: number;

  constructor(options: RegisterOptions) {
    const settings = {
      faultHandling: { global: noop, host: () => noop },
      grpcOptions: {
        "grpc.initial_reconnect_backoff_ms": 100,
        "grpc.max_reconnect_backoff_ms": 500,
      },
    };
    this.#options = options;
    const { hosts, auth, credentials } = options;
    // etcd3 cannot log in where no password is required.
    this.#clients = (auth ? [{ auth }, {}] : [{}]).flatMap((login) =>
      hosts.map(
        (host) => new Etcd3({ hosts: host, ...settings, ...login, ...(credentials && { credentials }) }),
      ),
    );
    this.#at = options.first % options.hosts.length;
  }

  /** A quorum read. */
  async read(lock: string): Promise<{ seq: number; rev: bigint }> {
    const key = this.#options.prefix + lock;
    const answer = await this.#call((client) => client.get(key).options({ deadline: deadline() }).exec());
    const [kv] = answer.kvs;
    const { seq } = kv === undefined ? { seq: 0 } : (JSON.parse(kv.value.toString()) as { seq: number });
    return { seq, rev: BigInt(answer.header.revision) };
  }

  /** Rejects when the outcome is unknown. */
  async write(
    place: Gripped,
    value: { seq: number; write: string },
  ): Promise<{ accepted: boolean; rev: bigint }> {
    const { prefix, whileHeld } = this.#options;
    const text = JSON.stringify({ token: String(place.token), ...value });
    const [key, column, comparator, made] = whileHeld(
      place.guard ?? { key: place.key, revision: place.token },
    );
    // By the token, also after the hold has ended in its process: etcd must reject the write. Only a broken guard compares differently.
    const revision = (comparator as string) === "==" ? String(place.token) : made;
    const answer = await this.#call((client) =>
      client
        .if(key, column, comparator, revision)
        .then(client.put(prefix + place.name).value(text))
        .options({ deadline: deadline() })
        .commit(),
    );
    return { accepted: answer.succeeded, rev: BigInt(answer.header.revision) };
  }

  close(): void {
    for (const client of this.#clients) client.close();
  }

  async #call<T>(send: (client: Etcd3) => Promise<T>): Promise<T> {
    try {
      return await send(this.#clients[this.#at] as Etcd3);
    } catch (error) {
      this.#at = (this.#at + 1) % this.#clients.length;
      throw error;
    }
  }
}

const deadline = () => Date.now() + CALL_MS;
