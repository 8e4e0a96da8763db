import type { Header, Range } from "./port.js";

/**
 * The highest raft term in an answer that needed a quorum. A keepalive answer with a lower one comes from a deposed leader.
 * Answers without a quorum do not count: the raft term of an isolated member keeps growing.
 */
export class RaftTermFloor {
  #term = 0n;
  #probe: Range | undefined;

  get term(): bigint {
    return this.#term;
  }

  /** A read of a key that this user has requested before, and so may read; `undefined` until a request was sent. */
  get probe(): Range | undefined {
    return this.#probe;
  }

  sent(key: string | Buffer | undefined): void {
    if (key !== undefined) this.#probe ??= { key, limit: 1 };
  }

  observed({ raftTerm }: Header): void {
    if (raftTerm > this.#term) this.#term = raftTerm;
  }

  /** Takes the current term from an explicit probe, even if it is lower than before, as after a restore. */
  reset({ raftTerm }: Header): void {
    this.#term = raftTerm;
  }
}
