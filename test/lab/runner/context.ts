import type { Cluster } from "../../../src/index.js";
import type { Beats } from "./beats.js";
import type { load } from "./leasehold.js";
import type { Register } from "./register.js";
import type { Of } from "./subject.js";
import type { LabTime } from "./time.js";

/** What all lanes of a process share. */
export interface Context {
  readonly p: string;
  readonly leasehold: Awaited<ReturnType<typeof load>>;
  readonly cluster: Cluster;
  readonly register: Pick<Register, "read" | "write">;
  readonly ttlSeconds: number;
  /** Of the sessions that lanes open. */
  readonly releaseDelayMs?: number | undefined;
  readonly locks: readonly string[];
  /** What is acquired under these names. */
  readonly of: Of;
  /** How often a holder keeps the lock until it loses it, or for more than a TTL. */
  readonly camp: number;
  /** Holders listen for waiters. */
  readonly wanted: boolean;
  /** The keys of locks may stay with their sessions. */
  readonly sticky: boolean;
  /** No call joins a queue in which so many wait. */
  readonly maxWaiting?: number | undefined;
  /** Most calls end the older ones that wait. */
  readonly newest?: boolean | undefined;
  /** Of each group of shards. */
  readonly shards: number;
  /** So long the members of a group stay when nothing new happens any more. */
  readonly calmMs: number;
  /** The least length of what candidates and leaders say. */
  readonly valueBytes: number;
  readonly finishing: () => boolean;
  readonly note: (step: object) => void;
  readonly time: LabTime;
  /** Unique in the process. */
  readonly nextId: () => number;
  /** If present, lanes acquire and release their locks in step. */
  readonly beats: Beats | undefined;
}
