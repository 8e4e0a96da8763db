import { checkInteger, checkName, checkOptions, checkSignal, typeError } from "../../base/options/check.js";
import { printable } from "../../base/util/printable.js";
import { type Cluster, servicesOf } from "../../lock/session/cluster.js";
import type { Member } from "../members/member.js";
import { type ShardOwner, type ShardOwners, ShardView } from "./view.js";

const BITS = 48;

/**
 * The shard of a key: `floor(h * count / 2^48)`, where `h` is the first 48 bits of its SHA-256, and a text is its UTF-8. With twice as
 * many shards, the keys of shard n are those of the shards 2n and 2n + 1.
 */
function shardOf(key: string | Uint8Array, count: number): number {
  if (typeof key !== "string" && !((key as unknown) instanceof Uint8Array))
    throw typeError("key", "a string or bytes", key);
  const { createHash } = process.getBuiltinModule("node:crypto");
  const hash = createHash("sha256")
    .update(key)
    .digest()
    .readUIntBE(0, BITS / 8);
  return Math.floor((hash / 2 ** BITS) * count);
}

/** The owners of the shards of a group, as etcd has told last. */
export interface ShardMap extends AsyncDisposable {
  readonly name: string;
  /** The number of shards; 0 while the group has no member, and no number is given. */
  readonly count: number;
  /** The shard of a key: `floor(h * count / 2^48)`, where `h` is the first 48 bits of the SHA-256 of the key in UTF-8, in each language. */
  shardOf(key: string | Uint8Array): number;
  /**
   * Returns who owns the shard of a key; undefined if nobody does, also as long as another number of shards is in force. A moment later it
   * may be another member. So send the `fence` along, and let the owner compare it with its own: it refuses a request that was meant for
   * another owner.
   */
  ownerOf(key: string | Uint8Array): ShardOwner | undefined;
  /** Who owns a shard. Nobody, as long as another number of shards is in force. @throws {RangeError} if there is no such shard. */
  owner(shard: number): ShardOwner | undefined;
  /** All owners, by the number of shards in force, now and after each change. A slow loop gets the latest state, not each. On abort: `next()` rejects with the signal's reason, and after `close()` with SessionClosedError. */
  owners(options?: { readonly signal?: AbortSignal | undefined }): AsyncIterableIterator<ShardOwners>;
  /** The members of the group, in the order of their joins. */
  readonly members: readonly Member[];
  close(): Promise<void>;
}

/** A view with the methods that its users have. */
export abstract class ShardMapHandle implements ShardMap {
  readonly #view: ShardView;

  constructor(view: ShardView) {
    this.#view = view;
  }

  abstract close(): Promise<void>;

  get name(): string {
    return this.#view.name;
  }

  get count(): number {
    return this.#view.count ?? 0;
  }

  get members(): readonly Member[] {
    return this.#view.members.map(({ member }) => member);
  }

  shardOf(key: string | Uint8Array): number {
    return shardOf(key, this.count);
  }

  ownerOf(key: string | Uint8Array): ShardOwner | undefined {
    return this.#owner(this.shardOf(key));
  }

  owner(shard: number): ShardOwner | undefined {
    const max = Math.max(0, this.count - 1);
    return this.#owner(checkInteger("shard", shard, { min: 0, max, fallback: 0 }));
  }

  #owner(shard: number): ShardOwner | undefined {
    const { count = this.count } = this.#view;
    return count === this.count ? this.#view.owner(shard) : undefined;
  }

  owners(options?: { readonly signal?: AbortSignal | undefined }): AsyncIterableIterator<ShardOwners> {
    const { signal } = checkOptions("owners", options, ["signal"]);
    return this.#view.feed(checkSignal(signal));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

class WatchedShards extends ShardMapHandle {
  readonly #stop: () => void;

  constructor(view: ShardView, stop: () => void) {
    super(view);
    this.#stop = stop;
  }

  override close(): Promise<void> {
    this.#stop();
    return Promise.resolve();
  }
}

const MAX_WARNING = 500;

/**
 * Watches who owns which shard of a group, in a process that owns none, such as a router: one watch, no session. Resolves when etcd has
 * shown the owners once. `close()` ends the watch, and so does that of the cluster.
 *
 * On abort: rejects with the signal's own reason; later it's the same as `close()`.
 * @throws {EtcdRefusedError} when etcd refuses to show the keys. @throws {SessionClosedError} when the cluster is closed.
 * @throws {TypeError | RangeError} on bad arguments.
 */
export async function watchShards(
  cluster: Cluster,
  name: string,
  options?: { readonly signal?: AbortSignal | undefined },
): Promise<ShardMap> {
  const services = servicesOf(cluster);
  checkName(name);
  const signal = checkSignal(checkOptions("watchShards", options, ["signal"]).signal);
  signal?.throwIfAborted();
  services.closed.throwIfAborted();
  const view = new ShardView(services, name, ({ message }) =>
    process.emitWarning(printable(`The shards of "${name}" can't be seen: ${message}`, MAX_WARNING), {
      type: "LeaseholdWarning",
      code: "SHARDS",
    }),
  );
  const stops = [signal, services.closed].map((each) => services.aborts.add(each, () => stop()));
  const stop = (): void => {
    view.stop();
    for (const end of stops) end();
  };
  try {
    await view.ready;
  } catch (error) {
    stop();
    signal?.throwIfAborted();
    services.closed.throwIfAborted();
    throw error;
  }
  return new WatchedShards(view, stop);
}
