import type { Links } from "../links.js";

/** Heals what was broken. */
export type Heal = () => Promise<void> | void;

/** The servers of one run, and how they can be broken. */
export interface Ground {
  /** For example "etcd 3.4.23". */
  readonly version: string;
  /** One client's own links to the servers. */
  open(): Promise<Links>;
  /** The lock keys that the servers store. */
  keys(): Promise<string[]>;
  /** The state that must be reached before the lock is acquired that a failover will hit. */
  beforeFailOver(): Promise<void>;
  /**
   * A server dies, and the remedy that the subject's authors intend for that is applied. Resolves when requests are
   * served again.
   */
  failOver(): Promise<Heal>;
  stop(): Promise<void>;
}

/** The prefix of all locks. */
export const PREFIX = "rivals/";
