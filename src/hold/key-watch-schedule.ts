import { KeyAudit, type AuditListener } from "../session/key-audit.js";
import type { Lease } from "../session/lease.js";
import type { Timer } from "../async/clock.js";

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

const ofLease = new WeakMap<Lease, KeyWatchSchedule>();

/**
 * When the holds of one session watch and read their keys. One timer for the young ones, and one list of the session's
 * keys for all long ones: ten thousand locks that nobody touches cost what one costs.
 */
export class KeyWatchSchedule implements AuditListener {
  /** Not watched yet, with the moment of their grant, oldest first: most are released before they are long. */
  readonly #young = new Map<LongHold, number>();
  readonly #watched = new Set<LongHold>();
  readonly #unread = new Set<LongHold>();
  #reading = 0;
  #agingTimer: Timer | undefined;
  readonly #audit: KeyAudit;

  private constructor(private readonly lease: Lease) {
    this.#audit = KeyAudit.of(lease);
    this.#audit.add(this);
  }

  static of(lease: Lease): KeyWatchSchedule {
    const holds = ofLease.get(lease) ?? new KeyWatchSchedule(lease);
    ofLease.set(lease, holds);
    return holds;
  }

  /** Granted now, and not watched: that begins when it lasts. */
  addUnwatched(hold: LongHold): void {
    const { clock } = this.lease.connection;
    this.#young.set(hold, clock.monotonic());
    this.#agingTimer ??= clock.after(LONG_HOLD_MS, () => this.#age());
  }

  addWatched(hold: LongHold): void {
    this.#watched.add(hold);
    this.#audit.within(SLOW_LOOK_MS);
  }

  delete(hold: LongHold): void {
    this.#young.delete(hold);
    this.#watched.delete(hold);
    this.#unread.delete(hold);
    if (this.#young.size === 0) {
      this.#agingTimer?.cancel();
      this.#agingTimer = undefined;
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

  /**
   * Bounds the damage of an event that never came: what is missing in the list is read. The list may be of an older state:
   * the read decides, and a key that it shows too long is missing in the next one. It tells no create revisions, so a key
   * that was deleted and put anew in between, with our own lease, looks untouched: that takes a lost event *and* somebody
   * who forges our keys, and a fence still refuses the one who held it before.
   */
  audited(keys: readonly Buffer[] | undefined): void {
    // Refused it may be for ever: then all are read.
    const listed = new Set(keys?.map((key) => key.toString()));
    for (const hold of this.#watched) if (!listed.has(hold.key)) this.read(hold);
    if (this.#watched.size > 0) this.#audit.within(SLOW_LOOK_MS);
  }
}
