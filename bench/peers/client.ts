// What a lock client must offer to be measured.

export interface Held {
  release(): Promise<void>;
}

/** A name as used by one contender. */
export interface Lockable {
  /** Waits for its turn. Clients that poll give up after `timeoutMs`; the others wait until their session is closed. */
  lock(timeoutMs: number): Promise<Held>;
  tryLock?(): Promise<Held | undefined>;
  /** One transaction that puts a key; for bare requests only. */
  call?(): Promise<void>;
}

/** What keeps the locks of one owner alive: a lease, if the client has one. */
export interface Session {
  lockable(name: string): Lockable;
  close(): Promise<void>;
}

/** Bare requests about one key, without a lease. */
export interface BareKey {
  put(): Promise<void>;
  /** Resolves with the revision of the deletion. */
  delete(): Promise<number>;
  /** Resolves when the watch exists. */
  watch(deleted: (revision: number) => void): Promise<void>;
  close(): void;
}

/** The TTL of the leases of bare requests. They are not renewed: the TTL is longer than any run with its warm-up. */
export const UNRENEWED_SECONDS = 300;

/** One connection, which its sessions share, as in a program with many sessions. */
export interface Client {
  session(): Promise<Session>;
  close(): Promise<void>;
}

export interface Where {
  /** "127.0.0.1:2379": one address per server. */
  readonly addresses: readonly string[];
  readonly ttlSeconds: number;
  /** Another build of leasehold. */
  readonly build?: string | undefined;
}

export type Connect = (where: Where) => Client | Promise<Client>;
