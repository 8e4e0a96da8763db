import type { Member } from "../../../../src/etcd/port.js";

/** What programs run against: an etcd, real or simulated. */
export interface Subject {
  readonly member: Member;
  /** Prepares the store for a program: no key, no lease, and nothing that an earlier program could have left open. */
  begin(): Promise<void>;
  /** "ok", or the code and the text with which etcd rejects it. All that it removes is removed before it is answered. */
  compact(revision: bigint): Promise<string>;
  /** Lets time pass until `settled` has settled, at most `limitMs`. Whether it has. */
  wait(settled: Promise<unknown>, limitMs: number): Promise<boolean>;
  elapse(ms: number): Promise<void>;
  close(): Promise<void>;
}
