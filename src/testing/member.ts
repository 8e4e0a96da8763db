import type { Address } from "./link.js";

export interface StartLimits {
  readonly signal: AbortSignal | undefined;
  readonly timeoutMs: number;
}

/** A member of the cluster: a process, or a container. */
export interface Member {
  readonly name: string;
  readonly running: boolean;
  /** Where it answers, past the link. */
  readonly address: Address;
  /** Also after `kill()`. Resolves when it answers, which requires a majority. */
  start(limits: StartLimits): Promise<void>;
  kill(): Promise<void>;
  pause(): Promise<void>;
  resume(): Promise<void>;
}

/** The members of one cluster. */
export interface Fleet {
  readonly members: readonly Member[];
  /** The version of etcd, as far as it is known. */
  readonly version: string | undefined;
  /** Kills the members, and removes their data. */
  remove(): Promise<void>;
}
