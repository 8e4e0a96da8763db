import { type Cluster, type Contender, LeaseholdError, type QueueKind } from "../../index.js";
import type { Clock, Timer } from "../../base/util/clock.js";
import type { Board, BoardDoor, BoardEvent } from "../../observe/board.js";
import { type Ask, type Contact, ContactCheck } from "../../observe/contact.js";
import type { Rows } from "./overview.js";

/** In UTF-16 code units. The keys of this library have at most 1,400 bytes; another client's can be as long as a request. */
export const MAX_KEY = 2048;

/** A key as the page shows it. It then ends with "…" if it is longer than the key of any lock. */
export function shortKey(key: string): string {
  if (key.length <= MAX_KEY) return key;
  // A part of a longer string would keep all of it in memory.
  return `${Buffer.from(key.slice(0, MAX_KEY), "utf16le").toString("utf16le")}…`;
}

/** What the rows keep of a queue. One without entries has no holders and no waiters. */
export interface QueueView {
  readonly name: string;
  readonly kind: QueueKind;
  /** Their keys as `shortKey` cuts them. */
  readonly holders: readonly (Pick<Contender, "key" | "owner" | "since" | "revision" | "value"> & {
    /** Whether the holder's client has died: what is left is the delay until the next one may hold. */
    readonly isDelay?: boolean;
    readonly sticky?: boolean;
  })[];
  readonly waiters: number;
  /** All that the board has counted under this name. Undefined: nobody is in the queue now. */
  readonly grants: number | undefined;
}

/** How a hold has ended. */
export interface Ending {
  readonly name: string;
  readonly revision: bigint;
  readonly end: "released" | "lease ended";
}

/** How often to look whether a board is to be opened again. */
const CHECK_MS = 2000;
/** A board that has failed is opened again after 2 s, and then after pauses that double: to fail may take 200 reads. */
const MAX_REOPEN_MS = 300_000;
/** Questions about leases under way. In a storm of hand-overs, the other holds just end. */
const MAX_QUESTIONS = 16;

/** Queues and holders that the rows get in one turn of the event loop. */
const SLICE = 500;

/** What a board is opened with. */
export interface BoardSetting {
  readonly cluster: Cluster;
  readonly door: BoardDoor;
  readonly prefix: string;
  readonly clock: Clock;
}

/** Keeps the rows up to date with all queues under a prefix, until it is closed: one board, opened again when it has failed. */
export class BoardSource {
  #board: Board | undefined;
  #contact: ContactCheck | undefined;
  #timer: Timer | undefined;
  #failure: string | undefined;
  #reopenMs = CHECK_MS;
  #reopenAt = 0;
  #closed = false;
  #questions = 0;
  readonly #reported = new WeakSet<BoardEvent>();
  /** Names whose changes the rows have not got yet. */
  readonly #pending = new Set<string>();
  #next: Timer | undefined;
  /** Names whose rows had a queue when the last board failed. */
  #known = new Set<string>();

  constructor(
    private readonly setting: BoardSetting,
    private readonly rows: Rows,
  ) {
    this.#open();
    this.#check();
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#next?.cancel();
    this.#contact?.stop();
    this.#board?.stop();
  }

  #open(): void {
    const { door, prefix, clock } = this.setting;
    const board = door.open(prefix, {
      changed: (names) => this.#changed(names),
      failed: (error) => this.#failed(error),
    });
    this.#board = board;
    const ask: Ask = (timeoutMs, signal) => board.ask(timeoutMs, signal);
    this.#contact = new ContactCheck(clock, ask, (contact) => this.#heard(contact));
  }

  #failed(error: Error): void {
    const { message } = error;
    if (error instanceof LeaseholdError && error.code === "SESSION_CLOSED") return this.close();
    this.#reopenAt = this.setting.clock.monotonic() + this.#reopenMs;
    this.#reopenMs = Math.min(2 * this.#reopenMs, MAX_REOPEN_MS);
    this.#known = new Set(this.rows.inUse());
    this.#board = undefined;
    this.#pending.clear();
    this.#contact?.stop();
    this.#failure = message;
    this.rows.problem(message);
  }

  /** Opens a board that has failed again. */
  #check(): void {
    this.#timer = this.setting.clock.after(CHECK_MS, () => {
      this.#check();
      if (this.#board === undefined && this.setting.clock.monotonic() >= this.#reopenAt) this.#open();
    });
  }

  /** Reports an outage and its end. */
  #heard({ error }: Contact): void {
    const { members } = this.setting.cluster.health();
    const failed = members.find(({ inUse, error }) => inUse && error) ?? members.find((each) => each.error);
    if (error) this.rows.problem(`etcd does not answer: ${failed?.error ?? error.message}`);
    else if (this.#failure === undefined && (this.#board?.revision ?? 0n) > 0n) {
      // The rows are as old as the last answer to the board that they are from.
      const check = this.#contact;
      this.rows.answered = () => check?.contact.since;
      this.rows.problem(undefined);
    }
  }

  #changed(names: ReadonlySet<string>): void {
    const board = this.#board;
    if (board === undefined || this.#closed) return;
    this.#failure = undefined;
    this.#reopenMs = CHECK_MS;
    if (this.#contact) this.#heard(this.#contact.contact);
    for (const name of names) this.#pending.add(name);
    for (const name of this.#known) if (board.queue(name) === undefined) this.#pending.add(name);
    this.#known = new Set();
    this.#next ??= this.setting.clock.afterPendingEvents(() => this.#take());
  }

  /** Hands over as many names as do not stop the event loop; the others follow. A name that changes meanwhile is there once. */
  #take(): void {
    this.#next = undefined;
    const board = this.#board;
    if (board === undefined || this.#closed) return;
    const views: QueueView[] = [];
    const names: string[] = [];
    let work = 0;
    for (const name of this.#pending) {
      if (work >= SLICE) break;
      this.#pending.delete(name);
      const view = viewOf(board, name);
      views.push(view);
      names.push(name);
      work += 1 + view.holders.length;
    }
    const more = this.#pending.size > 0;
    this.rows.changed(views, board.handOvers, more);
    for (const name of names) for (const event of board.history(name)) this.#report(name, event);
    if (more) this.#next ??= this.setting.clock.afterPendingEvents(() => this.#take());
  }

  #report(name: string, event: BoardEvent): void {
    const { kind, entry } = event;
    if (kind === "granted" || this.#reported.has(event)) return;
    this.#reported.add(event);
    const { createRevision: revision, leaseId } = entry;
    if (kind === "released") this.rows.ended({ name, revision, end: "released" });
    else if (leaseId !== 0n && this.#questions < MAX_QUESTIONS) void this.#ask(name, revision, leaseId);
  }

  /** Keys alone do not tell whether the lease has ended. Never rejects. */
  async #ask(name: string, revision: bigint, leaseId: bigint): Promise<void> {
    this.#questions++;
    try {
      const hasEnded = await this.setting.door.hasEnded(leaseId);
      if (!this.#closed) this.rows.ended({ name, revision, end: hasEnded ? "lease ended" : "released" });
    } catch {
      // The hold has ended, nobody knows how.
    } finally {
      this.#questions--;
    }
  }
}

function viewOf(board: Board, name: string): QueueView {
  const queue = board.queue(name);
  if (queue === undefined) return { name, kind: "unknown", holders: [], waiters: 0, grants: undefined };
  const holders = queue.holders.map((entry) => {
    const { createRevision: revision, key, owner, since, value, isDelay, sticky } = entry;
    return { revision, key: shortKey(key), owner, since, value, isDelay, sticky };
  });
  return { name, kind: queue.kind, holders, waiters: queue.waiterCount, grants: queue.grants };
}
