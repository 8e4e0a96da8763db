// What two threads of a process tell each other about the leases that one of them renews, and the other one uses.
// - A deadline is in memory that both share: after a stall, the first line that asks has it without reading a message.
// - All times are of one clock: the worker's is set by that of the thread that has started it.
import type { CheckedUser } from "../base/options/connect.js";
import type { Renewed } from "../etcd/keepalive.js";
import type { Range } from "../etcd/port.js";
import type { RefusalReason } from "../errors.js";
import type { Moment } from "../base/util/clock.js";
import type { PemText } from "./reach.js";

/** How etcd is reached now. */
export interface RenewalReach {
  readonly credentials: PemText | undefined;
  readonly auth: CheckedUser | undefined;
  /** The hosts that were found since `connect`; undefined: none. */
  readonly hosts: readonly string[] | undefined;
}

/** What the thread of the locks asks for. */
export type RenewalOrder =
  | {
      readonly do: "keep";
      readonly leaseId: bigint;
      readonly ttlMs: number;
      readonly patienceMs: number;
      readonly sent: Moment;
      /** The delay lease of that lease. */
      readonly delay: { readonly leaseId: bigint; readonly patienceMs: number } | undefined;
      /** See `SharedRenewal`. */
      readonly memory: SharedArrayBuffer;
      /** Without a beat for so long, the lease is renewed no more. */
      readonly maxStallMs: number;
    }
  | { readonly do: "renew"; readonly leaseId: bigint; readonly patienceMs: number }
  | { readonly do: "detach"; readonly leaseId: bigint }
  | ({ readonly do: "reach" } & RenewalReach)
  | { readonly do: "probe"; readonly probe: Range }
  | { readonly do: "end" };

/** What the thread that renews reports. */
export type RenewalNews =
  | {
      readonly is: "renewed";
      readonly leaseId: bigint;
      readonly sent: Moment;
      /** On the monotonic clock. The other thread may read it much later. */
      readonly answeredAt: number;
      readonly ttlSeconds: number;
      readonly host: string | undefined;
    }
  /** `kept`: it renews the lease from now on. */
  | { readonly is: "kept" | "gone" | "reconnected"; readonly leaseId: bigint }
  | {
      readonly is: "refused";
      readonly leaseId: bigint;
      readonly reason: RefusalReason;
      readonly host: string;
      readonly details: string;
    }
  | { readonly is: "failing"; readonly failures: readonly FailureNews[] };

/** Why a host has failed; with a reason if it has refused. */
export type FailureNews = readonly [host: string, message: string, reason?: RefusalReason];

const US = 1000;
const micros = (ms: number): bigint => BigInt(Math.floor(ms * US));
const millis = (us: bigint): number => Number(us) / US;

/** As both threads see it: in whole microseconds, and never later than it was. */
export const shared = ({ monotonic, suspend }: Moment): Moment => ({
  monotonic: millis(micros(monotonic)),
  suspend: millis(micros(suspend)),
});

/** The cells of one lease. One thread writes them. */
export class SharedRenewal implements Renewed {
  /** When the last accepted renewal was sent, on both clocks, and its TTL. */
  readonly #last: BigInt64Array;
  readonly #gone: Int32Array;

  constructor(
    readonly memory: SharedArrayBuffer,
    private readonly of?: Pick<Renewed, "hear" | "failure">,
  ) {
    this.#last = new BigInt64Array(memory, 0, 3);
    this.#gone = new Int32Array(memory, 24, 1);
  }

  get failure(): string | undefined {
    return this.of?.failure;
  }

  hear(): void {
    this.of?.hear();
  }

  get gone(): boolean {
    return Atomics.load(this.#gone, 0) === 1;
  }

  /** In the opposite order of `write`: what belongs to a send is then of that renewal, or of a later one, which etcd has accepted, too. */
  get last(): { readonly sent: Moment; readonly ttlMs: number } {
    const monotonic = millis(Atomics.load(this.#last, 0));
    const suspend = millis(Atomics.load(this.#last, 1));
    return { sent: { monotonic, suspend }, ttlMs: millis(Atomics.load(this.#last, 2)) };
  }

  write({ monotonic, suspend }: Moment, ttlMs: number): void {
    Atomics.store(this.#last, 2, micros(ttlMs));
    Atomics.store(this.#last, 1, micros(suspend));
    Atomics.store(this.#last, 0, micros(monotonic));
  }

  end(): void {
    Atomics.store(this.#gone, 0, 1);
  }
}

/** With memory for one lease. */
export const newRenewal = (of: Pick<Renewed, "hear" | "failure">): SharedRenewal =>
  new SharedRenewal(new SharedArrayBuffer(32), of);

/** What the threads share for all leases. */
export class SharedPulse {
  readonly #beat: BigInt64Array;
  /** The cell of the raft term below which no renewal counts. */
  readonly floor: BigUint64Array;

  constructor(readonly memory = new SharedArrayBuffer(16)) {
    this.#beat = new BigInt64Array(memory, 0, 1);
    this.floor = new BigUint64Array(memory, 8, 1);
  }

  /** When the thread of the locks ran its timers last, on the monotonic clock. */
  get beatAt(): number {
    return millis(Atomics.load(this.#beat, 0));
  }

  beat(now: number): void {
    Atomics.store(this.#beat, 0, micros(now));
  }
}
