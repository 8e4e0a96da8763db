import type { KeyValue } from "../../../../src/etcd/port.js";
import { checked, type Checked } from "../checked.js";
import { revisionsByHand, type EventOf, type StreamEvent, type TraceEvent } from "../events.js";
import { CallCheck } from "./calls.js";
import { nameOf, type SharedQueue } from "./places.js";
import { SharedQueues } from "./queues.js";
import { ReportCheck } from "./reports.js";

/** Whether each step of a run with readers or permits is one that its client may take by what it has been shown. */
export function checkAdmission(events: readonly TraceEvent[], locks: string): Checked {
  const check = new AdmissionCheck(events, locks);
  return checked(check.stats, () => {
    for (const event of events) check.follow(event);
  });
}

class AdmissionCheck {
  readonly #queues: SharedQueues;
  readonly #calls: CallCheck;
  readonly #reports: ReportCheck;
  readonly #byHand: ReadonlySet<bigint>;

  constructor(events: readonly TraceEvent[], locks: string) {
    this.#queues = new SharedQueues(locks);
    this.#calls = new CallCheck(this.#queues);
    this.#reports = new ReportCheck(this.#queues);
    this.#byHand = revisionsByHand(events);
  }

  get stats(): SharedQueues["stats"] {
    return this.#queues.stats;
  }

  follow(event: TraceEvent): void {
    switch (event.is) {
      case "txns":
        return this.#calls.txnsSent(event);
      case "txns answered":
        return this.#calls.txnsAnswered(event);
      case "range":
        return this.#calls.rangeSent(event);
      case "range answered":
        return this.#calls.rangeAnswered(event);
      case "failed":
        return this.#calls.failed(event);
      case "revoke":
        return void this.#queues.over.add(event.leaseId.toString(16));
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

  #change({ change }: EventOf<"change">): void {
    const revision = Number(change.revision);
    const excused = change.leaseEnded !== undefined || this.#byHand.has(change.revision);
    const queues = new Set<SharedQueue>();
    for (const { kind, kv } of change.events) {
      const key = kv.key.toString();
      if (!key.startsWith(this.#queues.locks)) continue;
      const queue = this.#queues.ofKey(key);
      queues.add(queue);
      this.stats.steps++;
      if (kind === "PUT") this.#put(queue, { key, kv, revision });
      else this.#deleted(queue, { key, revision, excused });
    }
    for (const queue of queues) queue.admit(revision);
  }

  #put(queue: SharedQueue, { key, kv, revision }: { key: string; kv: KeyValue; revision: number }): void {
    const what = `etcd puts ${key} at revision ${revision}`;
    const old = queue.livingAt(key);
    this.#queues.writes.put(what, { key, value: kv.value, created: old?.created ?? 0 });
    if (old) queue.putAgain(old, kv.value, revision);
    else queue.put(key, kv.value, revision);
  }

  #deleted(queue: SharedQueue, of: { key: string; revision: number; excused: boolean }): void {
    const { key, revision, excused } = of;
    const place = queue.livingAt(key);
    if (place && !excused) this.#queues.writes.deleted(`etcd deletes ${key} at revision ${revision}`, place);
    queue.delete(key, revision);
  }

  #watch(event: StreamEvent): void {
    const { evidence, all, locks } = this.#queues;
    const over = evidence.watch(event);
    if (over) {
      const leases = evidence.leasesOf(event.process);
      for (const queue of all)
        for (const { lease, shown } of queue.living) if (leases.has(lease)) shown.verified = false;
    }
    if (event.is !== "watch answered") return;
    for (const { kv } of event.answer.events)
      if (kv.key.toString().startsWith(locks))
        evidence.heard(event.process, nameOf(kv.key.toString()), Number(kv.modRevision));
  }
}
