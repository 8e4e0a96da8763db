import type { Header, KeyValue, Range, Txn } from "../../../../src/etcd/port.js";
import type { Step } from "../../../lab/runner/history.js";
import type { Checked } from "../check.js";
import type { TraceEvent } from "../events.js";
import { Rejected } from "../rejected.js";
import { Evidence } from "./evidence.js";
import { folderOf, SharedQueue, type SharedPlace } from "./places.js";
import { readerOf, sharedRequestOf, type SharedRequest } from "./requests.js";
import { Writes } from "./writes.js";

type Of<Is extends TraceEvent["is"]> = Extract<TraceEvent, { is: Is }>;

/** Whether each step of a run with readers or permits is one that its client may take by what it has been shown. */
export function checkAdmission(events: readonly TraceEvent[], locks: string): Checked {
  const check = new AdmissionCheck(events, locks);
  let rejected: string | undefined;
  try {
    for (const event of events) check.follow(event);
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    rejected = error.message;
  }
  return { ...check.stats, rejected };
}

interface Sent {
  readonly requests: readonly SharedRequest[];
  readonly read: { readonly name: string; readonly created: number } | undefined;
}

const NOTHING: Sent = { requests: [], read: undefined };

class AdmissionCheck {
  readonly stats = { steps: 0, largest: 1, counts: {} as Record<string, number> };
  readonly #queues = new Map<string, SharedQueue>();
  readonly #writes = new Writes();
  readonly #evidence = new Evidence();
  readonly #sent = new Map<number, Sent>();
  readonly #keyOf = new Map<string, string>();
  /** The leases whose sessions are over for their clients. */
  readonly #over = new Set<string>();
  readonly #byHand: ReadonlySet<bigint>;

  constructor(
    events: readonly TraceEvent[],
    private readonly locks: string,
  ) {
    this.#byHand = new Set(
      events.flatMap((event) =>
        event.is === "step" && event.step.k === "nemesis" ? (event.step.took ?? []) : [],
      ),
    );
  }

  follow(event: TraceEvent): void {
    switch (event.is) {
      case "txns":
        return this.#txns(event);
      case "txns answered":
        return this.#txnsAnswered(event);
      case "range":
        return this.#readSent(event, [event.range]);
      case "range answered":
        return this.#readAnswered(event, event.answer.header);
      case "failed":
        return this.#failed(event);
      case "revoke":
        return void this.#over.add(event.leaseId.toString(16));
      case "change":
        return this.#change(event);
      case "step":
        return this.#reported(event.step);
      case "watch":
      case "unwatch":
      case "watch answered":
      case "stream over":
        return this.#watch(event);
    }
  }

  #txns({ txns, call, process }: Of<"txns">): void {
    const requests = txns.map((txn) => sharedRequestOf(txn, this.locks));
    for (const request of requests) this.#requested(request, process);
    const [only] = txns;
    const ranges = txns.length === 1 && only ? rangesOf(only) : [];
    if (ranges.length > 0) this.#readSent({ call, process }, ranges);
    this.#sent.set(call, { requests, read: this.#sent.get(call)?.read });
  }

  #requested(request: SharedRequest, process: number): void {
    if (request.is === "other") return;
    const { key } = request;
    const what = `the ${request.is} of ${key} is sent`;
    if (request.is === "unknown") throw new Rejected(`${what}: no such transaction`, []);
    this.#count(request.is);
    this.#evidence.ownedBy(leaseOf(key), process);
    if (request.is === "announcement") this.#announced(what, request);
    if (request.is === "leave") this.#left(what, request);
    this.#writes.sent(request);
  }

  /** A permit that waited announces its grant: it changes nothing but the revision of its key. */
  #announced(what: string, { key, created, value }: Extract<SharedRequest, { is: "announcement" }>): void {
    const queue = this.#queueOf(key);
    const place = queue.at(key, created);
    if (!place || place.value !== value) throw new Rejected(`${what}: there was no such place`, []);
    this.#assertAdmitted(what, place);
  }

  #left(what: string, { key, created, value }: Extract<SharedRequest, { is: "leave" }>): void {
    const place = created > 0 ? this.#queueOf(key).at(key, created) : undefined;
    if (created > 0 && !place)
      throw new Rejected(`${what}, created at ${created}: there was no such place`, []);
    if (created === 0 && !this.#writes.mayExist(key, value))
      throw new Rejected(`${what}, by its value: no unanswered request has put it`, []);
    if (place) place.shown.left = true;
  }

  #txnsAnswered({ call, answers }: Of<"txns answered">): void {
    const { requests, read } = this.#sent.get(call) ?? NOTHING;
    for (const [i, request] of requests.entries()) {
      const { succeeded, header } = answers[i]!;
      this.#writes.over(request);
      if (request.is === "other" || request.is === "unknown") continue;
      const revision = Number(header.revision);
      if (request.is === "leave")
        this.#evidence.answered(leaseOf(request.key), nameOf(request.key), revision);
      const placed = (request.is === "join" && request.asks) || request.is === "try";
      const place = placed && succeeded ? this.#queueOf(request.key).at(request.key, revision) : undefined;
      if (place) place.shown.join = revision;
    }
    const header = answers[0]?.header;
    if (read && header) this.#readAnswered({ call }, header);
    this.#sent.delete(call);
  }

  #failed({ call, why }: Of<"failed">): void {
    const requests = why.inDoubt ? [] : (this.#sent.get(call)?.requests ?? []);
    for (const request of requests) this.#writes.over(request);
    this.#sent.delete(call);
    this.#evidence.failed(call);
  }

  #readSent({ call, process }: { call: number; process: number }, ranges: readonly Range[]): void {
    const read = readerOf(ranges, this.locks);
    if (read === undefined) return;
    this.#count("read");
    this.#sent.set(call, { requests: [], read });
    this.#evidence.readSent(call, process);
  }

  #readAnswered({ call }: { call: number }, header: Header): void {
    const read = this.#sent.get(call)?.read;
    this.#sent.delete(call);
    if (!read) return;
    const queue = this.#queue(read.name);
    const place = queue.living.find(({ created }) => created === read.created);
    if (place) this.#evidence.readAnswered(call, { place, queue, revision: Number(header.revision) });
  }

  #change({ change, leaseEnded }: Of<"change">): void {
    const revision = Number(change.revision);
    const queues = new Set<SharedQueue>();
    for (const { kind, kv } of change.events) {
      const key = kv.key.toString();
      if (!key.startsWith(this.locks)) continue;
      const queue = this.#queueOf(key);
      queues.add(queue);
      this.stats.steps++;
      if (kind === "PUT") this.#put(queue, { key, kv, revision });
      else this.#deleted(queue, { key, revision, excused: leaseEnded || this.#byHand.has(change.revision) });
    }
    for (const queue of queues) queue.admit(revision);
  }

  #put(queue: SharedQueue, { key, kv, revision }: { key: string; kv: KeyValue; revision: number }): void {
    const what = `etcd puts ${key} at revision ${revision}`;
    const old = queue.livingAt(key);
    this.#writes.put(what, { key, value: kv.value, created: old?.created ?? 0 });
    if (!old) queue.put(key, kv.value, revision);
  }

  #deleted(queue: SharedQueue, of: { key: string; revision: number; excused: boolean }): void {
    const { key, revision, excused } = of;
    const place = queue.livingAt(key);
    if (place && !excused) this.#writes.deleted(`etcd deletes ${key} at revision ${revision}`, place);
    queue.delete(key, revision);
  }

  #watch(event: Extract<TraceEvent, { stream: number }>): void {
    const over = this.#evidence.watch(event);
    if (over) {
      const leases = this.#evidence.leasesOf(event.process);
      for (const queue of this.#queues.values())
        for (const { lease, shown } of queue.living) if (leases.has(lease)) shown.verified = false;
    }
    if (event.is !== "watch answered") return;
    for (const { kv } of event.answer.events)
      if (kv.key.toString().startsWith(this.locks))
        this.#evidence.heard(event.process, nameOf(kv.key.toString()), Number(kv.modRevision));
  }

  #reported(step: Step): void {
    if (step.k === "ok" && step.token !== undefined && step.key !== undefined) {
      this.#keyOf.set(`${step.p} ${step.id} ${step.lock}`, step.key);
      if (step.held) this.#granted(step);
    } else if (step.k === "claim" && step.held) this.#claimed(step);
    else if (step.k === "end" && step.reason !== "released") this.#ended(step, step.reason);
  }

  #granted(step: OnHold): void {
    const { what, place } = this.#placeOf(step);
    if (!place) throw new Rejected(`${what} is granted without a place`, []);
    this.#count("grant");
    this.#assertAdmitted(`${what} is granted its hold`, place);
    if (this.#over.has(place.lease))
      throw new Rejected(`${what} is granted its hold: its session is over`, []);
    place.shown.granted = true;
  }

  #assertAdmitted(what: string, place: SharedPlace): void {
    const queue = this.#queueOf(place.key);
    const at = queue.admitted(what, place);
    place.shown.known ||= this.#evidence.shows(place, at, queue);
    if (!place.shown.known)
      throw new Rejected(`${what}: etcd admits it from revision ${at} on, which its client cannot know`, []);
  }

  #claimed(step: OnHold): void {
    const { what, place } = this.#placeOf(step);
    this.#count("claim");
    if (!place?.shown.granted) throw new Rejected(`${what} claims a hold that it was not granted`, []);
    if (place.shown.left) throw new Rejected(`${what} claims its hold: its client has deleted the key`, []);
    if (this.#over.has(place.lease)) throw new Rejected(`${what} claims its hold: its session is over`, []);
  }

  #ended(step: OnHold, reason: string): void {
    const { what, place } = this.#placeOf(step);
    if (reason !== "deleted") {
      if (place) this.#over.add(place.lease);
    } else if (place?.deleted === 0)
      throw new Rejected(`${what} is notified that the key of its hold is gone: it is there`, []);
  }

  #placeOf({ p, id, lock, token }: OnHold) {
    const key = this.#keyOf.get(`${p} ${id} ${lock}`) ?? "";
    const place = this.#queueOf(key).at(key, Number(token));
    return { place, what: `${p}, call ${id}, with ${key} created at ${token},` };
  }

  #queueOf(key: string): SharedQueue {
    return this.#queue(nameOf(key));
  }

  #queue(name: string): SharedQueue {
    const queue = this.#queues.get(name) ?? new SharedQueue();
    this.#queues.set(name, queue);
    return queue;
  }

  #count(step: string): void {
    const { counts } = this.stats;
    this.stats.steps++;
    counts[step] = (counts[step] ?? 0) + 1;
  }
}

interface OnHold {
  readonly p: string;
  readonly id: number;
  readonly lock: string;
  readonly token?: bigint;
}

const nameOf = (key: string): string => folderOf(key).name;

const leaseOf = (key: string): string => key.slice(key.lastIndexOf("/") + 1).split("-")[0]!;

/** Of a transaction that only reads. */
const rangesOf = ({ compare, success }: Txn): Range[] =>
  compare.length === 0 && success.every(({ kind }) => kind === "range")
    ? success.flatMap((operation) => (operation.kind === "range" ? [operation] : []))
    : [];
