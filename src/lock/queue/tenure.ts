// A key that stays with its session after a release, so that the session takes the lock again without a request, as long as no other
// session is known to want it. A join is all that it takes to ask for it, from any client: `Demand` hears of it.
//
//   state    the lock                                  the key
//   held     a caller has it                           stays after the release
//   kept     nobody has it                             a call of this session takes it, if `clear`: one more `turn` of the same fence
//   over     a caller has it, or it has been given     leaves with the release, or has left
//
//   event                                              held                      kept
//   release                                            kept                      -
//   a read after the watch: the key, and no stranger   clear                     clear: the next in line holds
//   2 ms without a turn of the event loop              -                         not clear until pending events are read
//   an entry of another session joins (1)              over                      over, the key leaves
//   the watch moves or is refused; the key is gone     over                      over, the key leaves
//   a call of this session that can't use the key      over                      over, the key leaves
//   close, orphan, the end of the session              over                      over, the key leaves
//   nobody has used it for five minutes                -                         over, the key leaves
//   it has been used in the last five minutes          a read                    a read
//
// (1) With `local`, a key that is held, or for which callers of this process wait until it is clear, is passed on to them until so many turns
// or milliseconds have passed.
import type { CheckedLocal } from "../../base/options/lock.js";
import type { Timed, Timers } from "../../base/util/timers.js";
import { inOwnContext } from "../../base/util/own-context.js";
import { settleWithin } from "../../base/util/settle.js";
import { KindMismatchError } from "../../errors.js";
import type { KeyValue } from "../../etcd/port.js";
import { parseEntryValue } from "../../keys.js";
import { Demand, LOOK_MS } from "./demand.js";
import type { JoinedEntry, QueueEntry } from "./entry.js";
import type { LockMode } from "./lock-mode.js";
import type { JoinOptions, Queue } from "./queue.js";
import type { LocalLine, Waiter } from "./waiter.js";

/** It bounds the watches of names that nobody uses any more, and the damage of a lost event: a key in use is read so often. */
const MAX_KEPT_MS = 300_000;
const KEPT_GRAIN_MS = 1000;
/** Holds that follow each other without a request let the event loop turn so often: an event that asks for the key has to be read. */
const MAX_TURN_MS = 2;

/** The time in which one session has one key, for one hold after the other. */
export class Tenure implements Timed {
  dueAt = 0;
  readonly tenure = this;
  readonly #demand: Demand;
  readonly #timers: Timers;
  #state: "held" | "kept" | "over" = "held";
  /** etcd has shown the key, and reports what changes: nobody of another session is behind it, or its caller in this process comes first. */
  #clear = false;
  /** Until a read has shown the key, when it was granted: whoever has joined before that read may have waited since then. */
  #unreadSince: number | undefined;
  #keptMs = 0;
  /** What is left of `local`, once another session has asked. */
  #passes = 0;
  #passesUntil = Infinity;

  constructor(
    readonly entry: JoinedEntry,
    private readonly queue: Queue,
    private readonly local: CheckedLocal | undefined,
  ) {
    this.#timers = queue.lease.services.timers;
    this.#unreadSince = this.#timers.now();
    this.#demand = Demand.of(queue, entry);
    this.#demand.attend(this);
  }

  /** For `Demand`: there is nobody whom it could tell in vain. */
  get held(): boolean {
    return this.#state !== "over";
  }

  get revision(): bigint {
    return this.entry.revision;
  }

  get kept(): boolean {
    return this.#state === "kept";
  }

  /** A key that nothing watches might have been deleted, by hand, before the watch began: only the read after it rules that out. */
  get mayBeTaken(): boolean {
    return this.#state === "kept" && this.#clear;
  }

  /** Milliseconds since the last release. */
  get idleMs(): number {
    return this.#timers.now() - this.#keptMs;
  }

  /** Callers of this process wait for the key, and not in the queue. Beside a key that is held and others share, they join it. */
  get hasLine(): boolean {
    if (this.entry.mode.shared) return this.kept;
    return this.#state !== "over" || this.#mayPass;
  }

  get #mayPass(): boolean {
    return this.#passes > 0 && this.#timers.now() < this.#passesUntil;
  }

  /** The hold has ended by a release: whether its key stays. `inLine`: whether a caller of this process waits for it. */
  released(inLine: boolean): boolean {
    if (this.#state === "over") {
      if (!inLine || !this.#mayPass) return false;
      this.#passes--;
    } else {
      this.#keptMs = this.#timers.now();
      if (this.dueAt === 0) this.#timers.set(this, MAX_KEPT_MS, KEPT_GRAIN_MS);
    }
    this.#state = "kept";
    if (this.#clear && this.#timers.turnMs() > MAX_TURN_MS) {
      this.#clear = false;
      this.queue.lease.services.clock.afterPendingEvents(() => this.clear());
    }
    return true;
  }

  /** A caller takes it. */
  take(): void {
    this.#state = this.#passesUntil === Infinity ? "held" : "over";
    this.entry.nextTurn();
  }

  clear(): void {
    this.#shown();
    if (this.kept) this.#goOn();
  }

  #shown(): void {
    this.#clear = true;
    this.#unreadSince = undefined;
  }

  /** It goes to the next in line, if one waits in this process, and leaves if it stays and somebody else waits. */
  #goOn(): void {
    if (this.#timers.now() < this.#passesUntil) this.queue.lineMayGoOn();
    if (this.kept && this.#passesUntil < Infinity) this.end();
  }

  demanded(isShown = false): void {
    if (this.#passesUntil === Infinity) this.#asked();
    if (isShown) this.#shown();
    if (this.kept && (this.#clear || !this.queue.tenures.isNextFor(this.entry))) this.#goOn();
  }

  /** Another session has. From here on, `local` counts. */
  #asked(): void {
    if (this.#state === "over") return;
    this.queue.contended();
    if (!this.local) return this.end();
    const now = this.#timers.now();
    const { turns, ms } = this.local;
    // A caller in line waits for it to be clear.
    this.#passes = this.kept ? turns - 1 : turns;
    this.#passesUntil = (this.#unreadSince ?? now) + ms;
    this.#timers.set(this, Math.max(0, this.#passesUntil - now));
    if (!this.kept) this.#state = "over";
  }

  unwatched(): void {
    this.end();
  }

  due(): void {
    const leftMs = this.kept ? MAX_KEPT_MS - this.idleMs : MAX_KEPT_MS;
    if (this.#state === "over" || this.#passesUntil < Infinity || leftMs <= 0) return this.end();
    this.#timers.set(this, leftMs, KEPT_GRAIN_MS);
    this.#demand.lookAgain();
  }

  /** From here on, the key leaves: at once if nobody has it. */
  end(): void {
    const { kept } = this;
    this.#state = "over";
    this.#passes = 0;
    this.#timers.delete(this);
    this.#demand.ended(this);
    if (kept) this.queue.giveBack(this.entry);
    else this.queue.lineMayGoOn();
  }
}

const NONE: readonly Tenure[] = [];

/** The keys of one session in one queue that stay after a release, or may, and the callers of this process that wait for them. */
export class Tenures {
  #all: readonly Tenure[] = NONE;

  constructor(
    private readonly queue: Queue,
    private readonly line: LocalLine,
  ) {}

  of(entry: QueueEntry): Tenure | undefined {
    return this.#all.find((each) => each.entry === entry);
  }

  /** Those that nobody has. */
  get kept(): readonly Tenure[] {
    return this.#all.filter(({ kept }) => kept);
  }

  /** Callers of this process wait for one of these keys, and not in the queue. */
  get areAwaited(): boolean {
    return this.#all.some(({ entry }) => !entry.mode.shared);
  }

  /** An entry holds. Another session may ask for its key from the first moment on. */
  begin(entry: JoinedEntry, local: CheckedLocal | undefined): void {
    const tenure = inOwnContext(() => new Tenure(entry, this.queue, local));
    this.#all = [...this.#all, tenure];
  }

  /** Gives a key that nobody has to a caller. `first`: only if that one is first in line. */
  take(mode: LockMode, first?: Waiter): JoinedEntry | undefined {
    const find = (): Tenure | undefined =>
      this.#all.find((each) => each.mayBeTaken && each.entry.mode === mode);
    if (!find()) return undefined;
    const { lease } = this.queue;
    // After a suspend, a renewal decides whether the key is still there: a join waits for that.
    const isThere = lease.standing === "held" && lease.open;
    // A listener of the session's state may just have been notified, and have locked, closed the session, or ended the wait of `first`.
    if (first && this.line.first !== first) return undefined;
    const tenure = find();
    if (!isThere) return void tenure?.end();
    tenure?.take();
    return tenure?.entry;
  }

  /** The hold of an entry was released: whether its key stays. */
  released(entry: JoinedEntry): boolean {
    return this.of(entry)?.released(this.isNextFor(entry)) ?? false;
  }

  /** Whether the first in line may take this key. */
  isNextFor({ mode }: JoinedEntry): boolean {
    const { first } = this.line;
    return first?.sticky === true && first.mode === mode;
  }

  /** Gives the keys that nobody has to the first in line. True if the next one waits for one of them. */
  serveLine(): boolean {
    for (;;) {
      const { first } = this.line;
      if (this.#all.length === 0 || !first?.sticky) return false;
      const entry = this.queue.takeKept(first.mode, first);
      if (!entry && this.line.first !== first) continue;
      if (!entry) return this.#all.some((tenure) => tenure.entry.mode === first.mode && tenure.hasLine);
      this.line.next();
      this.queue.lease.waits.delete(first);
      first.options.onAhead?.(0);
      first.succeed(entry);
      first.options.onJoined?.();
    }
  }

  /** With `local`, one caller waits in the queue, and then passes the lock on to the others: with keys of their own, they would wait for those. */
  get lineWaitsForPass(): boolean {
    const { first } = this.line;
    if (!first?.local || first.mode.shared) return false;
    const isBehind = this.queue.own.staying.some(
      ({ held, sticky, mode }) => !held && sticky && mode === first.mode,
    );
    return isBehind && this.line.isLocal(first.mode);
  }

  /** A caller comes that waits for the key of a tenure, or for its end. */
  endUnlessOf({ sticky, mode }: Waiter): void {
    if (!sticky || this.#all.some(({ entry }) => entry.mode !== mode)) this.end();
  }

  /** Keys that nobody has leave now, and those of holds with their release. */
  end(): void {
    for (const tenure of this.#all) tenure.end();
  }

  endKept(): void {
    for (const tenure of this.#all) if (tenure.kept) tenure.end();
  }

  /** Ends the kept keys, and resolves when they have left. Never rejects. */
  async keptHaveLeft(): Promise<void> {
    if (this.kept.length === 0) return;
    this.endKept();
    await this.queue.left();
  }

  /** An entry leaves, or is gone. */
  forget(entry: QueueEntry): void {
    const tenure = this.of(entry);
    if (!tenure) return;
    this.#all = this.#all.filter((each) => each !== tenure);
    tenure.end();
  }
}

/** A try waits so long for a key that its session may give back, or for so many round trips. */
const ASK_MS = 50;
const ASK_ROUND_TRIPS = 4;
/** Nobody outside sees this error. */
const NOT_GIVEN_BACK = new Error("the key was not given back");

/** The key of another session's sticky lock. */
export const mayBeKept = ({ value }: KeyValue): boolean => parseEntryValue(value).sticky === true;

/**
 * For a try that finds the key of another session's sticky lock. Nobody may have it, and a join makes its session give it back. Whether
 * somebody has it shows only in the time that this takes. The same key is not asked for again at once: it leaves with its hold, unless its
 * session has missed the question.
 */
export async function askFor(
  queue: Queue,
  call: JoinOptions,
  { key, leftMs }: { readonly key: KeyValue; readonly leftMs: number },
): Promise<JoinedEntry | undefined> {
  const { services, locks } = queue.lease;
  const answeredMs = Math.max(ASK_MS, ASK_ROUND_TRIPS * services.client.hosts.roundTripMs);
  const shared = call.mode?.permits !== undefined;
  const timeoutMs = Math.min(leftMs / 2, shared ? answeredMs + LOOK_MS : answeredMs);
  if (!locks?.stickiness.mayAsk(queue.name, key.createRevision)) return undefined;
  const waiter = queue.join(call);
  try {
    return await settleWithin(waiter.granted, { signal: undefined, timeoutMs }, services, {
      onTimeout: () => NOT_GIVEN_BACK,
      onGiveUp: () => waiter.giveUp(),
      onUnwanted: (entry) => queue.leaveInBackground(entry),
    });
  } catch (error) {
    // To a try, a lock of another kind is taken, too.
    if (error === NOT_GIVEN_BACK || error instanceof KindMismatchError) return undefined;
    throw error;
  }
}

/** So many names are remembered. */
const MAX_NAMES = 10_000;
/** After another session has asked for a key, its name isn't sticky for this time, twice as long after each further time, and at most: */
const FIRST_PAUSE_MS = 200;
const MAX_PAUSE_MS = 10_000;
/**
 * A try asks again for the same key after this time, twice as long after each further time, and at most: somebody may have it, or its session may have
 * missed the question.
 */
const FIRST_ASK_MS = 1000;
const MAX_ASK_MS = 60_000;

interface Use {
  /** How often another session has asked, without a pause that was long enough. */
  demands: number;
  /** Infinity: it was not locked yet. */
  plainUntil: number;
  /** The last key of another session that a try has asked for, by its create revision, and when it may ask again. */
  asked?: { readonly key: bigint; readonly pauseMs: number; readonly againAt: number };
}

/** Which names are sticky: a name that one process uses again and again. */
export class Stickiness {
  /** The names that were locked by now, the last ones last. */
  readonly #names = new Map<string, Use>();

  constructor(private readonly timers: Timers) {}

  /** Whether the key of this join may stay. The first one is plain: a name that is used once costs no watch. */
  begins(name: string, local = false): boolean {
    const use = this.#names.get(name);
    if (use && use.plainUntil < Infinity) return local || !this.isPaused(name);
    this.#set(name, { ...use, demands: 0, plainUntil: 0 });
    return false;
  }

  /** Whether other sessions want it, too: its keys leave with their holds. */
  isPaused(name: string): boolean {
    return this.timers.now() < (this.#names.get(name)?.plainUntil ?? 0);
  }

  /** Whether a try may ask for this key of another session now: it has not done so lately. */
  mayAsk(name: string, key: bigint): boolean {
    const now = this.timers.now();
    const use = this.#names.get(name);
    const last = use?.asked?.key === key ? use.asked : undefined;
    if (last && now < last.againAt) return false;
    const pauseMs = last ? Math.min(MAX_ASK_MS, 2 * last.pauseMs) : FIRST_ASK_MS;
    const asked = { key, pauseMs, againAt: now + pauseMs };
    this.#set(name, { demands: 0, plainUntil: Infinity, ...use, asked });
    return true;
  }

  contended(name: string): void {
    const now = this.timers.now();
    const use = this.#names.get(name) ?? { demands: 0, plainUntil: 0 };
    // Left alone for as long again as it was plain: it begins anew.
    const demands = now - use.plainUntil > MAX_PAUSE_MS ? 1 : use.demands + 1;
    const plainUntil = now + Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (demands - 1));
    this.#set(name, { ...use, demands, plainUntil });
  }

  #set(name: string, use: Use): void {
    this.#names.delete(name);
    this.#names.set(name, use);
    const [oldest] = this.#names.keys();
    if (this.#names.size > MAX_NAMES && oldest !== undefined) this.#names.delete(oldest);
  }
}
