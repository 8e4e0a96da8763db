import type { Header, Range, Txn } from "../../../../src/etcd/port.js";
import type { EventOf } from "../events.js";
import { Rejected } from "../rejected.js";
import { folderOf, leaseOf, nameOf, type SharedPlace } from "./places.js";
import type { SharedQueues } from "./queues.js";
import { readerOf, sharedRequestOf, type SharedRequest } from "./requests.js";

interface Sent {
  readonly requests: readonly SharedRequest[];
  readonly read: { readonly name: string; readonly created: number } | undefined;
}

const NOTHING: Sent = { requests: [], read: undefined };

type TxnAnswer = EventOf<"txns answered">["answers"][number];

/** The create revision of the key that the request has put, as far as the answer shows it; otherwise 0. */
function createdBy(request: SharedRequest, { succeeded, header, ranges }: TxnAnswer): number {
  if (request.is !== "join" && request.is !== "try") return 0;
  if (succeeded) return request.is === "try" || request.asks ? Number(header.revision) : 0;
  // A try that is sent again reads the key that the first one has put: nothing was in its way then.
  const mine = request.is === "try" ? ranges[0]?.kvs[0] : undefined;
  return mine?.value === request.value ? Number(mine.createRevision) : 0;
}

/** Whether `value` is that of this writer, as it has become a reader. */
function isDowngraded({ key, value: before }: SharedPlace, value: string): boolean {
  const [{ id }, now] = [saidIn(before), saidIn(value)];
  return folderOf(key).folder === "/write" && now.downgraded === true && now.id === id;
}

interface Said {
  readonly id?: string;
  readonly downgraded?: boolean;
}

const saidIn = (value: string): Said => JSON.parse(value) as Said;

/** The transactions and reads that clients send, and the answers that they get. */
export class CallCheck {
  readonly #sent = new Map<number, Sent>();

  constructor(private readonly queues: SharedQueues) {}

  txnsSent({ txns, call, process }: EventOf<"txns">): void {
    const requests = txns.map((txn) => sharedRequestOf(txn, this.queues.locks));
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
    this.queues.count(request.is);
    this.queues.evidence.ownedBy(leaseOf(key), process);
    if (request.is === "announcement") this.#announced(what, request);
    if (request.is === "leave") this.#left(what, request);
    this.queues.writes.sent(request);
  }

  /** A permit that waited announces its grant: it changes nothing but the revision of its key. A writer becomes a reader. */
  #announced(what: string, { key, created, value }: Extract<SharedRequest, { is: "announcement" }>): void {
    const queue = this.queues.ofKey(key);
    const place = queue.at(key, created);
    if (!place || (place.value !== value && !isDowngraded(place, value)))
      throw new Rejected(`${what}: there was no such place`, []);
    this.queues.evidence.assertAdmitted(what, place, queue);
  }

  #left(what: string, { key, created, value }: Extract<SharedRequest, { is: "leave" }>): void {
    const place = created > 0 ? this.queues.ofKey(key).at(key, created) : undefined;
    if (created > 0 && !place)
      throw new Rejected(`${what}, created at ${created}: there was no such place`, []);
    if (created === 0 && !this.queues.writes.mayExist(key, value))
      throw new Rejected(`${what}, by its value: no unanswered request has put it`, []);
    if (place) place.shown.left = true;
  }

  txnsAnswered({ call, answers }: EventOf<"txns answered">): void {
    const { requests, read } = this.#sent.get(call) ?? NOTHING;
    for (const [i, request] of requests.entries()) {
      this.queues.writes.over(request);
      if (request.is === "other" || request.is === "unknown") continue;
      const { key, is } = request;
      const revision = Number(answers[i]!.header.revision);
      const frees = is === "leave" || (is === "announcement" && saidIn(request.value).downgraded === true);
      if (frees) this.queues.evidence.answered(leaseOf(key), nameOf(key), revision);
      const at = createdBy(request, answers[i]!);
      const place = at > 0 ? this.queues.ofKey(key).at(key, at) : undefined;
      if (place) place.shown.join = at;
    }
    const header = answers[0]?.header;
    if (read && header) this.#readAnswered(call, header);
    this.#sent.delete(call);
  }

  rangeSent({ range, ...of }: EventOf<"range">): void {
    this.#readSent(of, [range]);
  }

  rangeAnswered({ call, answer }: EventOf<"range answered">): void {
    this.#readAnswered(call, answer.header);
  }

  failed({ call, why }: EventOf<"failed">): void {
    const requests = why.inDoubt ? [] : (this.#sent.get(call)?.requests ?? []);
    for (const request of requests) this.queues.writes.over(request);
    this.#sent.delete(call);
    this.queues.evidence.failed(call);
  }

  #readSent({ call, process }: { call: number; process: number }, ranges: readonly Range[]): void {
    const read = readerOf(ranges, this.queues.locks);
    if (read === undefined) return;
    this.queues.count("read");
    this.#sent.set(call, { requests: [], read });
    this.queues.evidence.readSent(call, process);
  }

  #readAnswered(call: number, header: Header): void {
    const read = this.#sent.get(call)?.read;
    this.#sent.delete(call);
    if (!read) return;
    const queue = this.queues.of(read.name);
    // It may be deleted by now, which the answer does not show.
    const place = queue.all.find(({ created }) => created === read.created);
    const revision = Number(header.revision);
    if (place) this.queues.evidence.readAnswered(call, { place, queue, revision });
  }
}

/** Of a transaction that only reads. */
const rangesOf = ({ compare, success }: Txn): Range[] =>
  compare.length === 0 && success.every(({ kind }) => kind === "range")
    ? success.flatMap((operation) => (operation.kind === "range" ? [operation] : []))
    : [];
