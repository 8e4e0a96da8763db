import type { KeepaliveStream, LeaseAnswer, Member } from "../../../../src/etcd/port.js";
import { type Normalizer, textOfError } from "./normalize.js";

/** etcd checks for expired leases every 500 ms, and the clocks of two processes differ: nothing is asked so near to an end. */
const BEFORE_MS = 700;
const AFTER_MS = 1600;

/** The keepalive stream of one program, and how much of their time its leases have left. */
export class RunLeases {
  readonly #stream: KeepaliveStream;
  #renewal: string | undefined;
  #elapsed = 0;
  /** When each lease expires. */
  readonly #ends = new Map<bigint, number>();

  constructor(
    member: Member,
    private readonly normalizer: Normalizer,
    changed: () => void,
  ) {
    this.#stream = member.keepalive({
      answer: (answer) => {
        this.#renewal = this.granted(answer);
        changed();
      },
      ended: (error) => {
        this.#renewal = `keepalive stream ended: ${textOfError(error)}`;
        changed();
      },
    });
  }

  get answered(): boolean {
    return this.#renewal !== undefined;
  }

  renew(leaseId: bigint): void {
    this.#renewal = undefined;
    this.#stream.renew(leaseId);
  }

  renewal(): string {
    return this.#renewal ?? "no answer";
  }

  granted(answer: LeaseAnswer): string {
    if (answer.ttlSeconds > 0) this.#ends.set(answer.leaseId, this.#elapsed + answer.ttlSeconds * 1000);
    return this.normalizer.lease(answer);
  }

  revoked(leaseId: bigint): void {
    this.#ends.delete(leaseId);
  }

  /** How long to wait instead of `ms`, so that no lease is about to expire. */
  elapse(ms: number): number {
    let until = this.#elapsed + ms;
    for (const end of [...this.#ends.values()].sort((one, other) => one - other))
      if (until > end - BEFORE_MS && until < end + AFTER_MS) until = end + AFTER_MS;
    for (const [leaseId, end] of this.#ends) if (end < until) this.#ends.delete(leaseId);
    const waited = until - this.#elapsed;
    this.#elapsed = until;
    return waited;
  }

  close(): void {
    this.#stream.close();
  }
}
