import type { AuditListener, KeyAudit } from "./key-audit.js";
import type { Lease } from "./lease.js";
import type { Timer } from "../async/clock.js";

/** A hold that is shorter than this does not pay for a watch of its own key. */
const LONG_HOLD_MS = 1000;
/** Holds that reach that age within this time of each other begin their watches together. */
const GRAIN_MS = 100;
/** The number of watches that begin in one turn of the event loop when thousands of holds were granted at once. */
const BEGIN_AT_ONCE = 250;
/** The number of keys that are read at a time when thousands of watches moved to another member at once. */
const READ_AT_ONCE = 32;
const AUDIT_MS = 30_000;
/** Node.js needs about 13 µs for each key of a list, most of it for garbage: more holds are compared less often. */
const AUDIT_MS_PER_HOLD = 30;
const MAX_AUDIT_MS = 300_000;

/** A hold, as far as the schedule uses it. */
export interface LongHold {
  readonly key: string;
  watch(): void;
  /** Reads the key, and ends the hold if it is gone. Never rejects. */
  read(): Promise<void>;
}

/**
 * Schedules the watches and reads of the keys that one session holds. All holds without a watch share one timer, and all others
 * share one list of the session's keys: every 30 s, and with more than 1,000 holds less often, up to every 5 minutes.
 */
export class KeyWatchSchedule implements AuditListener {
  /** Holds without a watch, with the time of their grant, oldest first: most are released before they are long. */
  readonly #unwatched = new Map<LongHold, number>();
  readonly #watched = new Set<LongHold>();
  readonly #unread = new Set<LongHold>();
  #reading = 0;
  #agingTimer: Timer | undefined;

  constructor(
    private readonly lease: Lease,
    private readonly audit: KeyAudit,
  ) {
    audit.add(this);
  }

  /** Adds a hold that has just been granted. Its watch begins after `LONG_HOLD_MS`. */
  addUnwatched(hold: LongHold): void {
    const { clock } = this.lease.services;
    this.#unwatched.set(hold, clock.monotonic());
    this.#agingTimer ??= clock.after(LONG_HOLD_MS, () => this.#age());
  }

  addWatched(hold: LongHold): void {
    this.#watched.add(hold);
    this.#auditLater();
  }

  delete(hold: LongHold): void {
    this.#unwatched.delete(hold);
    this.#watched.delete(hold);
    this.#unread.delete(hold);
    if (this.#unwatched.size === 0) {
      this.#agingTimer?.cancel();
      this.#agingTimer = undefined;
    }
  }

  /** Reads the key of `hold`, after those that are waiting to be read. */
  read(hold: LongHold): void {
    this.#unread.add(hold);
    this.#readNext();
  }

  #age(): void {
    this.#agingTimer = undefined;
    const { clock } = this.lease.services;
    const now = clock.monotonic();
    let begun = 0;
    for (const [hold, grantedAt] of this.#unwatched) {
      const leftMs = grantedAt + LONG_HOLD_MS - now;
      if (leftMs > GRAIN_MS || begun++ === BEGIN_AT_ONCE) {
        this.#agingTimer = clock.after(Math.max(0, leftMs), () => this.#age());
        return;
      }
      this.#unwatched.delete(hold);
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
   * Bounds the damage of a lost event: a key that is missing from the list is read. The list may be of an older state: the
   * read decides, and a key that the list shows for too long is missing from the next one. The list has no create
   * revisions, so a key that was deleted and put again in between, with our own lease, looks unchanged. That takes a lost
   * event *and* a client that forges our keys, and a fence still rejects the former holder.
   */
  audited(keys: readonly Buffer[] | undefined): void {
    // etcd may refuse the list forever: then every key is read.
    const listed = new Set(keys?.map((key) => key.toString()));
    for (const hold of this.#watched) if (!listed.has(hold.key)) this.read(hold);
    if (this.#watched.size > 0) this.#auditLater();
  }

  #auditLater(): void {
    const holds = this.#watched.size + this.#unwatched.size;
    this.audit.within(Math.min(MAX_AUDIT_MS, Math.max(AUDIT_MS, holds * AUDIT_MS_PER_HOLD)));
  }
}
