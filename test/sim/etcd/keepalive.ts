import type { Header, LeaseAnswer } from "../../../src/etcd/port.js";
import type { Consensus } from "./consensus.js";
import type { Refusal, ServerStream } from "./types.js";

export interface KeepaliveOptions {
  readonly renew: Consensus["renew"];
  readonly header: () => Header;
  readonly out: (answer: LeaseAnswer | Refusal) => void;
  /** Why the renewal is rejected, which ends the stream. */
  readonly check: (leaseId: bigint) => Refusal | undefined;
}

/**
 * A keepalive stream (api/v3rpc/lease.go). It handles one renewal after the other: that of an expired lease delays those
 * after it until the lease is revoked.
 */
export class KeepaliveServerStream implements ServerStream<bigint> {
  readonly #options: KeepaliveOptions;
  readonly #waiting: bigint[] = [];
  #busy = false;
  #closed = false;

  constructor(options: KeepaliveOptions) {
    this.#options = options;
  }

  send(leaseId: bigint): void {
    if (this.#closed) return;
    this.#waiting.push(leaseId);
    this.#next();
  }

  close(): void {
    this.#closed = true;
    this.#waiting.length = 0;
  }

  #next(): void {
    if (this.#busy) return;
    const leaseId = this.#waiting.shift();
    if (leaseId === undefined) return;
    this.#busy = true;
    // The header is made before the renewal, so that its revision is not later than the renewal.
    const header = this.#options.header();
    const refusal = this.#options.check(leaseId);
    if (refusal) {
      this.close();
      return this.#options.out(refusal);
    }
    this.#options.renew(leaseId, (ttlSeconds) => {
      this.#busy = false;
      if (this.#closed) return;
      if (typeof ttlSeconds === "number") this.#options.out({ header, leaseId, ttlSeconds });
      else this.#options.out(ttlSeconds);
      this.#next();
    });
  }
}
