import type { Member } from "../../../../src/etcd/port.js";
import type { Edit } from "./steps.js";

export interface Connection {
  readonly member: Member;
  /** "ok", or etcd's text. */
  readonly compact: (revision: bigint) => Promise<string>;
}

/** An etcd with authentication, real or simulated. */
export interface AuthSubject {
  connect(token: () => string | undefined): Connection;
  /** As root. "ok", or etcd's text. */
  edit(edit: Edit): Promise<string>;
  /** Lets time pass until `settled` has settled, at most `limitMs`. Whether it has. */
  wait(settled: Promise<unknown>, limitMs: number): Promise<boolean>;
  elapse(ms: number): Promise<void>;
}
