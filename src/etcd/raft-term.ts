import type { Header, Range } from "./port.js";

/**
 * The highest raft term of an answer that needed a quorum. A keepalive answer of an older one comes from a deposed leader.
 * Answers without a quorum do not count: the term of an isolated member climbs.
 */
export class RaftTermFloor {
  #term = 0n;
  #question: Range | undefined;

  get term(): bigint {
    return this.#term;
  }

  /** A read that this user may surely make; undefined before anything was asked. */
  get probe(): Range | undefined {
    return this.#question;
  }

  sent(key: string | Buffer | undefined): void {
    if (key !== undefined) this.#question ??= { key, limit: 1 };
  }

  observed({ raftTerm }: Header): void {
    if (raftTerm > this.#term) this.#term = raftTerm;
  }

  /** The present term, asked for on purpose: counts also when it is lower, as after a restore. */
  reset({ raftTerm }: Header): void {
    this.#term = raftTerm;
  }
}
