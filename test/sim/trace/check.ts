import { checked, type Checked } from "./checked.js";
import { revisionsByHand, type EventOf, type StreamEvent, type TraceEvent } from "./events.js";
import type { ChangedKey } from "./queue/name-trace.js";
import { Queues } from "./queue/queues.js";
import { ReadCheck } from "./reads.js";
import { ReportCheck } from "./reports.js";
import { partsOf } from "./requests.js";
import { TransactionCheck } from "./transactions.js";
import { firstKeyOf, rangeOf } from "./watched.js";

/** Whether the protocol steps of a run are a path of the model. `locks`: the prefix of the names. */
export function checkTrace(events: readonly TraceEvent[], locks: string): Checked {
  const check = new TraceCheck(events, locks);
  return checked(check.stats, () => {
    for (const [i, event] of events.entries()) {
      if (INPUTS.has(event.is)) check.turn(events, i);
      check.follow(event);
    }
  });
}

/** What happens to a client from outside: it does nothing between two of these but what follows from the first. */
const INPUTS: ReadonlySet<TraceEvent["is"]> = new Set([
  "change",
  "txns answered",
  "range answered",
  "failed",
  "watch answered",
  "stream over",
]);

class TraceCheck {
  readonly #queues: Queues;
  readonly #transactions: TransactionCheck;
  readonly #reads: ReadCheck;
  readonly #reports: ReportCheck;
  readonly #byHand: ReadonlySet<bigint>;

  constructor(events: readonly TraceEvent[], locks: string) {
    this.#queues = new Queues(locks);
    this.#reads = new ReadCheck(this.#queues);
    this.#transactions = new TransactionCheck(this.#queues, this.#reads);
    this.#reports = new ReportCheck(this.#queues);
    this.#byHand = revisionsByHand(events);
  }

  get stats(): Queues["stats"] {
    return this.#queues.stats;
  }

  /** The watches that a client asks for because of this, and not because of a timer. */
  turn(events: readonly TraceEvent[], from: number): void {
    const input = events[from]!;
    const coming = new Map<number, Set<string>>();
    for (let i = from + 1; i < events.length && !INPUTS.has(events[i]!.is); i++) {
      const event = events[i]!;
      if (event.is !== "watch" || !("at" in input)) continue;
      const { process, at, request } = event;
      if (process !== input.process || at !== input.at) continue;
      const ranges = coming.get(process) ?? new Set();
      coming.set(process, ranges.add(rangeOf(request)));
    }
    this.#queues.watches.turn(coming);
  }

  follow(event: TraceEvent): void {
    switch (event.is) {
      case "txns":
        return this.#transactions.sent(event);
      case "txns answered":
        return this.#transactions.answered(event);
      case "range":
        return this.#reads.rangeSent(event);
      case "range answered":
        return this.#reads.rangeAnswered(event);
      case "failed":
        return this.#failed(event);
      case "revoke":
        return this.#queues.over(event.leaseId.toString(16), "revokes its lease");
      case "change":
        return this.#change(event);
      case "step":
        return this.#reports.reported(event.step);
      case "watch":
      case "unwatch":
      case "watch answered":
      case "stream over":
        return this.#watch(event);
    }
  }

  #failed(event: EventOf<"failed">): void {
    this.#reads.failed(event);
    this.#transactions.failed(event);
  }

  #change({ change }: EventOf<"change">): void {
    const byName = new Map<string, ChangedKey[]>();
    for (const { kind, kv } of change.events) {
      const key = kv.key.toString();
      if (!key.startsWith(this.#queues.locks)) continue;
      const { name } = partsOf(key);
      byName.set(name, [...(byName.get(name) ?? []), { key, kv: kind === "PUT" ? kv : undefined }]);
    }
    this.#queues.joints.put(change);
    const byHand = this.#byHand.has(change.revision);
    const { stopped } = this.#reports;
    const leaseEnded = change.leaseEnded !== undefined;
    const more = { revision: Number(change.revision), byHand, leaseEnded, stopped };
    for (const [name, events] of byName) {
      const keys = events.map(({ key, kv }) => `${kv ? "puts" : "deletes"} ${key}`).join(", ");
      this.#queues.of(name).changed(`etcd ${keys} at revision ${change.revision}`, events, more);
    }
  }

  #watch(event: StreamEvent): void {
    const { ranges, over } = this.#queues.watches.of(event.process).follow(event);
    for (const name of new Set(ranges.map((range) => partsOf(firstKeyOf(range)).name)))
      for (const session of this.#queues.sessionsOf(event.process, name)) session.received(ranges, over);
  }
}
