import { EtcdUnavailableError } from "./errors.js";
import type { Lease } from "./lease.js";
import type { Timer } from "./time.js";

/** A hold shorter than this does not pay for a watch of its own key. */
const LONG_HOLD_MS = 1000;
/** Holds that become long within this time of each other do so together. */
const GRAIN_MS = 100;
/** Of thousands that were taken at once so many begin in one turn of the event loop. */
const BEGIN_AT_ONCE = 250;
/** Of thousands whose watches moved to another member at once so many are read at a time. */
const READ_AT_ONCE = 32;
const SLOW_LOOK_MS = 30_000;

/** What a hold does about its own key when it lasts. */
export interface LongHold {
  readonly key: string;
  /** Watches the key. */
  watch(): void;
  /** Reads the key, and ends the hold if it is gone. Never rejects. */
  read(): Promise<void>;
}

const ofLease = new WeakMap<Lease, LongHolds>();

/**
 * When the holds of one session watch and read their keys. One timer each for the young and for the long ones, and one
 * slow look for all: ten thousand locks that nobody touches cost what one costs.
 */
export class LongHolds {
  /** Not watched yet, with the moment of their grant, oldest first: most are released before they are long. */
  readonly #young = new Map<LongHold, number>();
  readonly #watched = new Set<LongHold>();
  readonly #unread = new Set<LongHold>();
  #reading = 0;
  #agingTimer: Timer | undefined;
  #lookTimer: Timer | undefined;

  private constructor(private readonly lease: Lease) {}

  static of(lease: Lease): LongHolds {
    const holds = ofLease.get(lease) ?? new LongHolds(lease);
    ofLease.set(lease, holds);
    return holds;
  }

  /** Granted now, and not watched: that begins when it lasts. */
  addYoung(hold: LongHold): void {
    const { clock } = this.lease.connection;
    this.#young.set(hold, clock.monotonic());
    this.#agingTimer ??= clock.after(LONG_HOLD_MS, () => this.#age());
  }

  addWatched(hold: LongHold): void {
    this.#watched.add(hold);
    this.#lookTimer ??= this.#lookLater();
  }

  delete(hold: LongHold): void {
    this.#young.delete(hold);
    this.#watched.delete(hold);
    this.#unread.delete(hold);
    if (this.#young.size === 0) {
      this.#agingTimer?.cancel();
      this.#agingTimer = undefined;
    }
    if (this.#watched.size === 0) {
      this.#lookTimer?.cancel();
      this.#lookTimer = undefined;
    }
  }

  /** Reads its key, in its turn. */
  read(hold: LongHold): void {
    this.#unread.add(hold);
    this.#readNext();
  }

  #age(): void {
    this.#agingTimer = undefined;
    const { clock } = this.lease.connection;
    const now = clock.monotonic();
    let begun = 0;
    for (const [hold, grantedAt] of this.#young) {
      const leftMs = grantedAt + LONG_HOLD_MS - now;
      if (leftMs > GRAIN_MS || begun++ === BEGIN_AT_ONCE) {
        this.#agingTimer = clock.after(Math.max(0, leftMs), () => this.#age());
        return;
      }
      this.#young.delete(hold);
      this.addWatched(hold);
      hold.watch();
    }
  }

  #readNext(): void {
    for (const hold of this.#unread) {
      if (this.#reading === READ_AT_ONCE) return;
      this.#unread.delete(hold);
      this.#reading++;
      void hold.read().then(() => {
        this.#reading--;
        this.#readNext();
      });
    }
  }

  #lookLater(): Timer {
    const { clock } = this.lease.connection;
    return clock.after(SLOW_LOOK_MS * (0.75 + clock.random() / 2), () => void this.#look());
  }

  /**
   * Bounds the damage of an event that never came: etcd lists all keys of the lease in one answer, and what is missing
   * there is read. The list may be of an older state: the read decides, and a key that it shows too long is missing in
   * the next one. It tells no create revisions, so a key that was deleted and put anew in between, with our own lease,
   * looks untouched: that takes a lost event *and* somebody who forges our keys, and a fence still refuses the one
   * who held it before.
   */
  async #look(): Promise<void> {
    this.#lookTimer = undefined;
    const listed = await this.#keysOfLease();
    for (const hold of this.#watched) if (!listed.has(hold.key)) this.read(hold);
    if (this.#watched.size > 0) this.#lookTimer ??= this.#lookLater();
  }

  async #keysOfLease(): Promise<{ has(key: string): boolean }> {
    const { leaseId, connection } = this.lease;
    const policy = { ...this.lease.policy("list the keys of the lease"), giveUpMs: SLOW_LOOK_MS / 2 };
    try {
      const { keys } = await connection.members.call(
        (member, options) => member.timeToLive(leaseId, options),
        policy,
      );
      return new Set(keys.map((key) => key.toString()));
    } catch (error) {
      // Nobody answers: the next look may have more luck, and the deadline holds in any case. But refused (the lease has
      // keys that this user may not read, or too many for one answer) it would be for ever: then all are read.
      return { has: () => error instanceof EtcdUnavailableError };
    }
  }
}
