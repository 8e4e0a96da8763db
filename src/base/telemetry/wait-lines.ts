import { type Contender, heldText } from "../../contender.js";
import type { Timer } from "../util/clock.js";
import { printable } from "../util/printable.js";
import { Timers } from "../util/timers.js";
import { duration, listed, quoted } from "./log-lines.js";
import type { LineContext, QueueReport } from "./log.js";
import type { AcquireMessage } from "./messages.js";

/** A wait that takes longer has a line; the next ones follow after twice that time, four times that time, and so on. */
const FIRST_MS = 30_000;
const GRAIN_MS = 500;
/** At most so many lines in `FIRST_MS`, each with a read of a queue: thousands of names may wait behind one outage. */
const MAX_LINES = 16;

/** The calls of this process that wait for the same lock. */
interface Waiting {
  readonly key: string;
  /** When each call began. The first one is the oldest. */
  readonly calls: Map<AcquireMessage, number>;
  /** From the next line to the one after it. */
  spacingMs: number;
  timer: Timer | undefined;
}

const keyOf = ({ name, names }: AcquireMessage): string =>
  names.length === 1 ? name : JSON.stringify(names);

/** One line for each lock that a call waits for too long, however many calls wait for it. */
export class WaitLines {
  readonly #waiting = new Map<string, Waiting>();
  readonly #timers: Timers;
  #windowStart = -Infinity;
  #lines = 0;

  constructor(private readonly context: LineContext) {
    this.#timers = new Timers(context.clock);
  }

  began(call: AcquireMessage): void {
    const key = keyOf(call);
    const waiting = this.#waiting.get(key) ?? this.#add(key);
    waiting.calls.set(call, this.context.clock.monotonic());
  }

  ended(call: AcquireMessage): void {
    const waiting = this.#waiting.get(keyOf(call));
    waiting?.calls.delete(call);
    if (waiting === undefined || waiting.calls.size > 0) return;
    this.#waiting.delete(waiting.key);
    waiting.timer?.cancel();
  }

  close(): void {
    this.#waiting.clear();
    this.#timers.close();
  }

  #add(key: string): Waiting {
    const waiting: Waiting = { key, calls: new Map(), spacingMs: FIRST_MS, timer: undefined };
    this.#waiting.set(key, waiting);
    waiting.timer = this.#timers.add(FIRST_MS, () => this.#due(waiting), GRAIN_MS);
    return waiting;
  }

  #due(waiting: Waiting): void {
    const [oldest] = waiting.calls;
    if (oldest === undefined) return;
    const [call, began] = oldest;
    const waitedMs = this.context.clock.monotonic() - began;
    const isLong = waitedMs >= FIRST_MS;
    // The call that waited before has got its lock.
    if (!isLong) waiting.spacingMs = FIRST_MS;
    const nextMs = isLong ? waiting.spacingMs : FIRST_MS - waitedMs;
    waiting.timer = this.#timers.add(nextMs, () => this.#due(waiting), GRAIN_MS);
    if (!isLong) return;
    waiting.spacingMs *= 2;
    if (this.#mayWrite()) void this.#report(waiting, call, waitedMs);
  }

  #mayWrite(): boolean {
    const now = this.context.clock.monotonic();
    if (now - this.#windowStart >= FIRST_MS) {
      this.#windowStart = now;
      this.#lines = 0;
    }
    this.#lines++;
    if (this.#lines === MAX_LINES + 1) {
      const text = `waiting for ${this.#waiting.size} locks: further ones are not listed for ${duration(FIRST_MS)}`;
      this.context.write("warn", text, { event: "wait.many" });
    }
    return this.#lines <= MAX_LINES;
  }

  async #report(waiting: Waiting, call: AcquireMessage, waitedMs: number): Promise<void> {
    const report = await this.#read(call);
    // The call ended while the queue was read.
    if (!waiting.calls.has(call)) return;
    const others = waiting.calls.size - 1;
    const more =
      others > 0 ? `; ${others} more ${others === 1 ? "call" : "calls"} of this process also waiting` : "";
    const what = `waiting ${duration(waitedMs)} for ${listed(call.names.slice(0, 5), call.names.length)}`;
    // Candidates of an election stand by for days.
    const level = call.kind === "leadership" ? "debug" : "warn";
    const queue = typeof report === "object" ? report : undefined;
    this.context.write(level, `${what}: ${this.#queue(call, report)}${more}`, {
      event: "wait.long",
      kind: call.kind,
      name: queue?.name ?? call.name,
      durationMs: waitedMs,
      ...(queue && { ahead: queue.ahead }),
      ...(queue?.holder && { holder: printable(holderOf(queue.holder)) }),
    });
  }

  async #read(call: AcquireMessage): Promise<QueueReport | "unread" | undefined> {
    try {
      return await this.context.readWait(call);
    } catch {
      return "unread";
    }
  }

  #queue(call: AcquireMessage, report: QueueReport | "unread" | undefined): string {
    if (report === "unread") return "etcd does not answer";
    if (report === undefined) return "not in the queue yet";
    const { name, holder, ahead } = report;
    const of = call.names.length > 1 ? `${quoted(name)}${holder?.state === "dead" ? ": " : " is "}` : "";
    return `${of}${holder ? `${heldText(holder, this.#who(holder))}, ` : ""}${ahead} ahead`;
  }

  #who(holder: Contender): string {
    const { since } = holder;
    const agoMs = since && this.context.clock.date().getTime() - since.getTime();
    // By the clock of another machine, which may be ahead.
    const joined = agoMs !== undefined && agoMs >= 0 ? ` (joined ${duration(agoMs)} ago)` : "";
    return `${quoted(holderOf(holder))}${joined}`;
  }
}

const holderOf = ({ owner, value, key }: Contender): string => owner ?? value ?? key;
