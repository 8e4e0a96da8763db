import type { Links } from "../links.js";

/** Heals what was broken. */
export type Heal = () => Promise<void> | void;

/** The servers of one run, and what can be broken about them. */
export interface Ground {
  /** Such as "etcd 3.4.23". */
  readonly version: string;
  /** Lines of its own for one client. */
  open(): Promise<Links>;
  /** What the servers have of locks. */
  keys(): Promise<string[]>;
  /** What must be so before a lock is taken that a failover is to hit. */
  beforeFailOver(): Promise<void>;
  /** A server dies, and what the makers of the subject foresee for that happens. Resolves when it is served again. */
  failOver(): Promise<Heal>;
  stop(): Promise<void>;
}

/** All locks are under it. */
export const PREFIX = "rivals/";
