import type {
  KeyValue,
  Member,
  WatchAnswer,
  WatchEvent,
  WatchRequest,
  WatchStream,
} from "../../../../src/etcd/port.js";
import type { Normalizer } from "./normalize.js";
import { textOfError } from "./normalize.js";
import type { Key, Outcome } from "../programs/program.js";
import { covers } from "./ranges.js";

/** A watch of the program. */
export interface RunningWatch {
  readonly step: number;
  readonly request: WatchRequest;
  readonly id: number;
  /** The first revision that it covers. */
  readonly from: bigint;
  /** Started in the past: etcd serves it from a loop, so that its events are grouped by the loop's time. */
  readonly past: boolean;
  readonly lines: string[];
  /** Of the last event. */
  last: bigint;
  live: boolean;
}

/** Written at the end: the events of one stream keep their order, so none that is not expected is still on its way. */
export const MARK = "~mark";
const MARK_ID = 1000;

/** The streams of one program, and what arrived on them. */
export class RunWatches {
  readonly watches: RunningWatch[] = [];
  /** All events of the program. */
  readonly events: WatchEvent[] = [];
  readonly strays: string[] = [];
  probes: string[] = [];
  readonly #keys = new Map<string, KeyValue>();
  #created: WatchAnswer | undefined;
  #next: { readonly request: WatchRequest; readonly step: number | undefined } | undefined;
  #seen = 0n;
  #marked = 0n;
  #failure: string | undefined;
  private readonly normalizer: Normalizer;
  private readonly changed: () => void;
  readonly #streams: readonly WatchStream[];
  readonly #main: WatchStream;

  /** `start`: the revision before the first event. */
  constructor(
    member: Member,
    start: bigint,
    how: { readonly normalizer: Normalizer; readonly changed: () => void },
  ) {
    this.#seen = start;
    this.normalizer = how.normalizer;
    this.changed = how.changed;
    const ended = (error: Error): void => this.#end(error);
    const reference = member.watch({ answer: (answer) => this.#refer(answer), ended });
    reference.create({ watchId: 1, key: "\0", end: "\0", startRevision: 0n, events: "ALL" });
    this.#main = member.watch({ answer: (answer) => this.#take(answer), ended });
    this.#main.create({ watchId: MARK_ID, key: MARK, startRevision: 0n, events: "PUT" });
    this.#streams = [reference, this.#main];
  }

  /** Both streams watch. */
  get ready(): boolean {
    return this.#readies === 2 || this.failed;
  }
  #readies = 0;

  get failed(): boolean {
    return this.#failure !== undefined;
  }

  get failure(): string {
    return this.#failure ?? "";
  }

  get created(): WatchAnswer | undefined {
    return this.#created;
  }

  /** `step`: that of the program; undefined: the watch is none of the program. */
  create(request: WatchRequest, step?: number): void {
    this.#created = undefined;
    this.#next = { request, step };
    this.#main.create(request);
  }

  /** The watch that the last create has started. */
  get latest(): RunningWatch {
    return this.watches.at(-1)!;
  }

  #start(answer: WatchAnswer): void {
    this.#created = answer;
    const { request, step } = this.#next!;
    if (step !== undefined) this.watches.push(this.#watchOf(request, step, answer));
  }

  #watchOf(request: WatchRequest, step: number, answer: WatchAnswer): RunningWatch {
    const { startRevision } = request;
    const { revision } = answer.header;
    const past = startRevision !== 0n && startRevision <= revision;
    const from = startRevision === 0n ? revision + 1n : startRevision;
    const live = !answer.cancelled && answer.watchId !== -1;
    const lines = [this.normalizer.watch(answer)];
    return { step, request, id: answer.watchId, from, past, live, lines, last: 0n };
  }

  find(watchId: number): RunningWatch | undefined {
    return this.watches.find(({ live, id }) => live && id === watchId);
  }

  /** Watches from the past of which nothing was seen yet, and no event is to come. */
  get unserved(): readonly RunningWatch[] {
    return this.watches.filter(
      (watch) => watch.live && watch.past && watch.last === 0n && this.#complete(watch),
    );
  }

  cancel(watchId: number): void {
    this.#main.cancel(watchId);
  }

  probe(): void {
    this.#main.probe();
  }

  /** All events up to `revision` have arrived, for each watch that etcd has not cancelled. */
  settled(revision: bigint): boolean {
    return this.reached(revision) && this.watches.every((watch) => this.#complete(watch));
  }

  /** Requests what etcd rejects: the answer takes the way of those to creates and cancels. */
  flush(): void {
    this.create({ watchId: MARK_ID, key: MARK, startRevision: 0n, events: "PUT" });
  }

  /** The watches that wait for events. */
  missing(): string {
    const behind = this.watches.filter((watch) => !this.#complete(watch));
    return behind
      .map(({ step, last }) => `watch of step ${step} after ${this.normalizer.revision(last)}`)
      .join();
  }

  /** The mark of `revision` has arrived, and so have the events before it. */
  marked(revision: bigint): boolean {
    return this.failed || this.#marked >= revision;
  }

  /** Every event up to `revision` has arrived, though perhaps not at each watch of the program. */
  reached(revision: bigint): boolean {
    return this.failed || this.#seen >= revision;
  }

  /** The key after the last event. */
  current(key: Key): KeyValue | undefined {
    return this.#keys.get(Buffer.from(key).toString("hex"));
  }

  #complete(watch: RunningWatch): boolean {
    if (!watch.live) return true;
    for (let n = this.events.length - 1; n >= 0; n--) {
      const event = this.events[n]!;
      if (event.kv.modRevision <= watch.last) return true;
      if (expected(watch, event)) return false;
    }
    return true;
  }

  outcomes(): Outcome[] {
    const watched = this.watches.map(({ step, lines }) => ({ step, text: lines.join("\n") }));
    const strays = this.strays.map((text) => ({ step: -1, text }));
    return [...watched, ...strays, { step: -1, text: this.failure }];
  }

  close(): void {
    for (const stream of this.#streams) stream.close();
  }

  #refer(answer: WatchAnswer): void {
    if (answer.created) this.#readies++;
    this.events.push(...answer.events);
    for (const { kind, kv } of answer.events)
      if (kind === "PUT") this.#keys.set(kv.key.toString("hex"), kv);
      else this.#keys.delete(kv.key.toString("hex"));
    const last = answer.events[answer.events.length - 1];
    if (last) this.#seen = last.kv.modRevision;
    this.changed();
  }

  #take(answer: WatchAnswer): void {
    const { watchId, created, events } = answer;
    const watch = this.find(watchId);
    if (watchId === MARK_ID) this.#mark(answer);
    // Immediately: the first events may arrive in the same chunk.
    else if (created) this.#start(answer);
    else if (watchId === -1) this.probes.push(this.normalizer.watch(answer));
    else if (!watch || (events.length === 0 && !answer.cancelled))
      this.strays.push(
        this.normalizer.watch(answer) + events.map((event) => this.normalizer.event(event)).join(),
      );
    else this.#record(watch, answer);
    this.changed();
  }

  #mark({ created, events }: WatchAnswer): void {
    if (created) this.#readies++;
    for (const { kv } of events) this.#marked = kv.modRevision;
  }

  #record(watch: RunningWatch, answer: WatchAnswer): void {
    for (const event of answer.events) {
      const { modRevision } = event.kv;
      // etcd puts as many revisions into an answer as are there; only an answer that is on time has the revision of its event.
      const late = watch.past ? answer.header.revision < modRevision : answer.header.revision !== modRevision;
      watch.lines.push(
        this.normalizer.event(event) + (late ? ` in ${this.normalizer.header(answer.header)}` : ""),
      );
      watch.last = modRevision;
    }
    if (!answer.cancelled) return;
    watch.lines.push(this.normalizer.watch(answer));
    watch.live = false;
  }

  #end(error: Error): void {
    this.#failure ??= `watch stream ended: ${textOfError(error)}`;
    this.changed();
  }
}

const expected = ({ request, from }: RunningWatch, { kind, kv }: WatchEvent): boolean =>
  kv.modRevision >= from &&
  (request.events === "ALL" || request.events === kind) &&
  covers(request.key, request.end, kv.key);
