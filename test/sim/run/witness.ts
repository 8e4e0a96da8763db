import type { Range, RangeAnswer, Txn, TxnAnswer, WatchAnswer } from "../../../src/etcd/port.js";
import type { Sight } from "../../lab/runner/history.js";
import type { TraceEvent } from "../trace/events.js";
import { RecordedMember } from "../trace/recording/recorded-member.js";
import type { Build } from "./build.js";

type Owned = { readonly session?: { readonly owner?: string | undefined } | undefined };

/**
 * What the client of each process has received about the keys of places, as the invariant I20 needs it. It changes nothing in the
 * run: the hash of its log is the same.
 */
export class Witness {
  readonly sights: Sight[] = [];
  readonly #asked = new Map<number, readonly Txn[] | Range>();
  #ids = 0;
  #processes = 0;

  /** `now`: later than each time in the history so far, and no later than the next one. */
  constructor(
    private readonly places: string,
    private readonly now: () => bigint,
  ) {}

  /** A build whose clients are watched. */
  watched(build: Build): Build {
    return {
      ...build,
      createCluster: (options, surroundings = {}) => {
        const { newMember } = surroundings;
        if (newMember === undefined) return build.createCluster(options, surroundings);
        const p = (options as Owned).session?.owner?.split("/")[0] ?? "";
        const recording = {
          process: this.#processes++,
          add: (event: TraceEvent) => this.#add(p, event),
          nextId: () => ++this.#ids,
        };
        return build.createCluster(options, {
          ...surroundings,
          newMember: (...args) => new RecordedMember(newMember(...args), recording),
        });
      },
    };
  }

  #add(p: string, event: TraceEvent): void {
    if (event.is === "txns") this.#asked.set(event.call, event.txns);
    else if (event.is === "range") this.#asked.set(event.call, event.range);
    else if (event.is === "failed") this.#asked.delete(event.call);
    else if (event.is === "watch answered") this.#heard(p, event.answer);
    else if (event.is === "range answered") this.#read(p, this.#takeAsked(event.call) as Range, event.answer);
    else if (event.is === "txns answered") {
      const txns = this.#takeAsked(event.call) as readonly Txn[];
      txns.forEach((txn, n) => this.#executed(p, txn, event.answers[n]!));
    }
  }

  #takeAsked(call: number): readonly Txn[] | Range {
    const asked = this.#asked.get(call)!;
    this.#asked.delete(call);
    return asked;
  }

  #heard(p: string, { events }: WatchAnswer): void {
    for (const { kind, kv } of events)
      if (kind === "DELETE") this.#gone(p, kv.key.toString(), kv.modRevision);
  }

  #gone(p: string, key: string, revision: bigint): void {
    if (key.startsWith(this.places)) this.sights.push({ p, t: this.now(), revision, deleted: [key] });
  }

  /** The condition of a guarded request that was refused, and each read in the part that was executed. */
  #executed(p: string, { compare, success, failure }: Txn, { succeeded, header, ranges }: TxnAnswer): void {
    const [only, ...more] = compare;
    // Another one with the same key may have been put since.
    if (!succeeded && only?.kind === "created at" && only.revision > 0n && more.length === 0)
      this.#gone(p, only.key.toString(), only.revision + 1n);
    const operations = succeeded ? success : failure;
    const put = operations.flatMap((it) =>
      it.kind === "put" && it.key.startsWith(this.places) ? [it.key] : [],
    );
    if (put.length > 0) this.sights.push({ p, t: this.now(), revision: header.revision, put });
    const own = operations.find((it) => it.kind === "range" && it.end === undefined);
    const lease = leaseIn((only ?? own)?.key.toString() ?? put[0] ?? "");
    operations.forEach((operation, n) => {
      if (operation.kind === "range") this.#read(p, operation, { ...ranges[n]!, header }, lease);
    });
  }

  /** An answer that has all keys of its range shows which of them are missing. */
  #read(p: string, range: Range, { more, kvs, header }: RangeAnswer, lease?: string): void {
    const key = range.key.toString();
    if (more || range.revision !== undefined || !key.startsWith(this.places)) return;
    const { maxCreateRevision } = range;
    const read = { lease, key, end: range.end?.toString(), maxCreateRevision, found: kvs };
    this.sights.push({ p, t: this.now(), revision: header.revision, read });
  }
}

/** The lease of the session that a key belongs to, as its name says. */
const leaseIn = (key: string): string => key.slice(key.lastIndexOf("/") + 1).split("-")[0]!;
