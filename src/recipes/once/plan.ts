// What one call is to run: under which lock, by which keys of etcd that is decided, and what the answer of etcd says.
import type { Compare, KeyValue, Operation, Txn, TxnAnswer } from "../../etcd/port.js";
import { pathOf } from "../../keys.js";
import { queueRange, type RangeResult } from "../../lock/queue/lock-mode.js";
import type { LeaseSource } from "../../lock/session/cluster.js";
import type { Lease } from "../../lock/session/lease.js";
import type { Lifetime } from "./mark-leases.js";
import {
  type Mark,
  type MarkKey,
  type OnceRun,
  parseMark,
  putBack,
  putMark,
  runOf,
  unchanged,
} from "./marks.js";

export type Rerun = "never" | "if_lost" | "if_failed";

export interface PlanOptions {
  readonly rerun: Rerun;
  /** "queue": the call joins the queue behind the run, to take over. */
  readonly ifRunning: "wait" | "skip" | "fail" | "queue";
  /** The call does not wait while another holder has the lock. */
  readonly skips: boolean;
  readonly keepsResult: boolean;
  /** A call that has waited for a run gets its failure, too, even if it may run the slot again. */
  readonly sharesFailures?: boolean;
  /** SHA-256 of what the user gave. */
  readonly fingerprint: string | undefined;
}

/** The marks of a slot. */
export interface Seen {
  readonly mark: KeyValue | undefined;
  /** The modification revision of that of an older version; `0n`: there is none. */
  readonly oldMark: bigint;
}

export const NO_MARK: Seen = { mark: undefined, oldMark: 0n };

/** The state of a slot at one revision, and of its queue. */
export type Verdict = {
  readonly seen: Seen;
  /** The oldest entry of the queue. Its value was read for a call that skips. */
  readonly oldest: KeyValue | undefined;
  readonly revision: bigint;
} &
  /** `isOwn`: but for a mark of this call. */
  (
    | { readonly state: "free"; readonly isOwn: boolean }
    | { readonly state: "expired" }
    | ({ readonly state: "done" | "lost" | "missed" } & Found)
    | ({ readonly state: "running"; readonly entry: RunningEntry } & Found)
  );

interface Found {
  readonly run: OnceRun;
  readonly mark: Partial<Mark>;
}

/** The entry of a run: while it's there, the work may run. */
export interface RunningEntry {
  readonly key: string;
  readonly revision: bigint;
}

export interface PlanParts {
  readonly services: LeaseSource["services"];
  readonly options: PlanOptions;
}

/** The mark to put, if those of the slot are as they were seen. */
export interface Begun {
  readonly mark: Mark;
  readonly seen: Seen;
  /** One for each lifetime. */
  readonly leases: readonly bigint[];
}

export interface Ended extends Omit<Begun, "seen"> {
  /** The lowest marks when the run began; undefined if that answer was lost. */
  readonly lowest: RangeResult | undefined;
}

export abstract class Plan {
  readonly services: LeaseSource["services"];
  readonly options: PlanOptions;
  /** Identifies the marks of this call. */
  readonly id: string;
  /** Of the queue of its lock. */
  readonly path: string;
  /** Where its mark is. */
  abstract readonly at: MarkKey;
  /** As errors name it. */
  abstract readonly what: string;
  /** Of the lease of a mark that has begun. None: it stays until it's deleted. */
  readonly begun: readonly Lifetime[] = [];
  /** Of the leases of what the end puts, beginning with that of the mark. */
  readonly ended: readonly Lifetime[] = [];
  /** The last mark of another call over which this one has put its own, or may have. */
  #replaced: KeyValue | undefined;

  constructor(
    /** The name of its lock. */
    readonly lock: string,
    { services, options }: PlanParts,
  ) {
    this.services = services;
    this.options = options;
    this.path = pathOf(services, lock);
    this.id = services.clock.randomId().toString(36);
  }

  /** For errors of etcd: a role may lack the right on the mark only. */
  get text(): string {
    return `${this.what}, with the mark ${this.at.key}`;
  }

  /** The mark of a run that begins, under the entry `key`. `fence`: its create revision, if it is known by now. */
  mark({ owner, services }: Lease, key: string, fence?: bigint): Mark {
    const since = services.clock.date().toISOString();
    const { id, options } = this;
    return {
      ...{ state: "started", owner, since, id, key },
      ...(fence !== undefined && { fence: fence.toString() }),
      ...(options.fingerprint !== undefined && { fingerprint: options.fingerprint }),
    };
  }

  /** Whether the slot is ours to run, or can be when our turn comes. */
  mayRun(found: Verdict): boolean {
    const { rerun } = this.options;
    if (found.state === "free" || found.state === "expired") return found.state === "free";
    if (found.state === "missed") return false;
    if (found.state === "done") return rerun === "if_failed" && found.run.failed;
    return rerun !== "never";
  }

  // All transactions name the queue, so that no two on the marks of one slot share a request.

  /** Extends a transaction that takes the lock, or whose compare shows that it is held: it also puts the mark, or tells why not. */
  beginTxn({ queues, ...txn }: Txn, { mark, seen, leases: [leaseId = 0n] }: Begun): Txn {
    if (seen.mark && parseMark(seen.mark)?.id !== this.id) this.#replaced = seen.mark;
    return {
      queues,
      compare: [...txn.compare, ...this.conditions(seen)],
      success: [...txn.success, putMark(this.at, mark, leaseId), ...this.readsToEnd()],
      failure: [...txn.failure, ...this.evidence()],
    };
  }

  /**
   * Undoes the begin: the mark that was there before is there again, with its lease. If that is gone, etcd rejects this, and the slot counts
   * as lost.
   */
  undo(): Operation {
    return this.#replaced ? putBack(this.at, this.#replaced) : { kind: "delete", ...this.at };
  }

  /** Extends `leave`: it also ends the mark. If its compare fails, it reads the mark. */
  endTxn(leave: Txn, ended: Ended): Txn {
    return {
      ...leave,
      success: [...this.ends(ended), ...leave.success],
      failure: [{ kind: "range", ...this.at }, ...leave.failure],
    };
  }

  /**
   * The state of the slot, by the answer to `evidence` at one revision. A mark with `ownId` does not count: an attempt of this
   * call has put it, which has lost its entry since, and the work has not begun.
   */
  verdict({ ranges, header }: Pick<TxnAnswer, "ranges" | "header">, ownId: string | undefined): Verdict {
    const count = this.evidence().length;
    const {
      last,
      seen,
      oldest,
      start = 0,
      state,
    } = this.judge(ranges.slice(-count).map((each) => each?.kvs ?? []));
    const common = { seen, oldest: oldest[0], revision: header.revision };
    if (state === "expired") return { state, ...common };
    const mark = last && (parseMark(last) ?? {});
    const isOwn = mark !== undefined && mark.id !== undefined && mark.id === ownId;
    if (state === "free" || !last || !mark || isOwn) return { state: "free", ...common, isOwn };
    const run = runOf(mark);
    // A value of unknown form never lets the work run a second time.
    if (mark.state !== "started")
      return { state: mark.state === "missed" ? "missed" : "done", ...common, run, mark };
    const entry = runningEntry(last, mark, { oldest, start });
    return entry
      ? { state: "running", ...common, run, mark, entry }
      : { state: "lost", ...common, run, mark };
  }

  /** The conditions of a run: its marks are as they were seen. */
  protected conditions(seen: Seen): readonly Compare[] {
    return [unchanged(this.at, seen.mark?.modRevision ?? 0n)];
  }

  /** What a verdict is made of: the mark, the oldest entry of the queue, and what else the plan needs. */
  evidence(): readonly Operation[] {
    return [{ kind: "range", ...this.at }, oldestIn(this.path, !this.options.skips)];
  }

  /** `kvs`: as `evidence` has asked. */
  protected judge([marks = [], oldest = []]: readonly (readonly KeyValue[])[]): Judged {
    return { last: marks[0], seen: { ...NO_MARK, mark: marks[0] }, oldest };
  }

  /** What the begin of a run reads for its end. */
  protected readsToEnd(): readonly Operation[] {
    return [];
  }

  protected ends({ mark, leases: [leaseId = 0n] }: Ended): readonly Operation[] {
    return [putMark(this.at, mark, leaseId)];
  }
}

interface Judged {
  /** The mark that counts. */
  readonly last: KeyValue | undefined;
  readonly seen: Seen;
  /** The oldest entry of the queue and its delay key, which have one create revision; etcd gives them in any order. */
  readonly oldest: readonly KeyValue[];
  /** Where the key of an entry begins in this mark. */
  readonly start?: number;
  /** Whatever the mark says. */
  readonly state?: "expired" | "free" | undefined;
}

const oldestIn = (path: string, keysOnly: boolean): Operation => ({
  kind: "range",
  ...queueRange(path),
  order: "oldest first",
  limit: 2,
  keysOnly,
});

/** The entry under which the work runs. A run holds, so while its entry exists, that is the oldest one. */
function runningEntry(
  { modRevision }: KeyValue,
  mark: Partial<Mark>,
  { oldest, start }: { readonly oldest: readonly KeyValue[]; readonly start: number },
): RunningEntry | undefined {
  const fence = mark.fence ?? String(modRevision);
  const [first] = oldest;
  const entry = oldest.find(
    ({ key, createRevision }) =>
      createRevision === first?.createRevision &&
      key.toString().slice(start) === mark.key &&
      String(createRevision) === fence,
  );
  return entry && { key: entry.key.toString(), revision: entry.createRevision };
}
