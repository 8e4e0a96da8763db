// What a lock client must offer to be compared: the smallest common interface of all subjects.

/** A lock as its holder sees it. What a subject does not offer is absent. */
export interface Held {
  /** Fencing token. */
  readonly token?: bigint;
  /** The subject's own answer to whether the lock is still held. */
  held?(): boolean;
  /** Calls `told` each time the subject reports that the lock was lost. */
  onLost?(told: () => void): void;
  release(): Promise<void>;
}

export interface LockClient {
  /** Waits for its turn. Rejects with a `TimeUpError` when the time is up, otherwise with the subject's own error. */
  acquire(name: string, options: { timeoutMs: number }): Promise<Held>;
  close(): Promise<void>;
}

export class TimeUpError extends Error {}

export interface Connection {
  /** "127.0.0.1:2379": one address per server. */
  readonly addresses: readonly string[];
  readonly ttlSeconds: number;
}

export type Connect = (connection: Connection) => LockClient;
