import type { Compare, KeyValue, Operation, Range, Txn } from "../../etcd/port.js";
import { MARKS, pathOf } from "../../keys.js";
import { queueRange, type RangeResult } from "../../lock/queue/lock-mode.js";
import type { LeaseSource } from "../../lock/session/cluster.js";
import type { Lease } from "../../lock/session/lease.js";
import type { CheckedOnce } from "./once.js";

/** As many as Number.MAX_SAFE_INTEGER has. */
const DIGITS = 16;
/** How many marks one run deletes at most: more would not fit into a shared request. */
const MAX_DELETED = 16;

/**
 * The keys of the slots of one name: `/leasehold/once/NAME//SLOT`, and at most one floor, `/leasehold/once/NAME//-SLOT`. The
 * slots up to the floor have expired. No name contains "//", so the keys of two names are never in one range.
 */
class MarkSpace {
  readonly #base: string;

  constructor(start: string) {
    this.#base = `${start}//`;
  }

  mark(slot: number): MarkKey {
    return this.#at(digits(slot));
  }

  floor(slot: number): MarkKey {
    return this.#at(`-${digits(slot)}`);
  }

  /** The floors at which `slot` has expired. */
  floorsFrom(slot: number): MarkKey & { readonly end: string } {
    return { ...this.floor(slot), end: `${this.#base}.` };
  }

  /** The floor, and then the lowest marks: "-" comes before the digits, and ":" after them. */
  lowest(): Range {
    return { ...this.#at("-"), end: `${this.#base}:`, limit: MAX_DELETED + 1, keysOnly: true };
  }

  #at(end: string): MarkKey {
    return { key: `${this.#base}${end}` };
  }

  /** Operations that leave the `keep` highest marks, by an answer to `lowest`. */
  expire({ kvs, count }: Pick<RangeResult, "kvs" | "count">, keep: number): Expiry {
    const keys = kvs.map(({ key }) => key.toString());
    const floors = keys.filter((key) => key.startsWith(`${this.#base}-`));
    const excess = Math.max(0, count - floors.length - keep);
    const marks = keys.slice(floors.length).slice(0, Math.min(excess, MAX_DELETED));
    const last = marks.at(-1);
    if (last === undefined) return NOTHING;
    const floor = this.floor(Number(last.slice(this.#base.length)));
    return {
      expires: new Set(marks),
      operations: [
        ...[...floors, ...marks].map((key): Operation => ({ kind: "delete", key })),
        { kind: "put", ...floor, value: "", leaseId: 0n },
      ],
    };
  }
}

/** Where a mark or a floor is. */
interface MarkKey {
  readonly key: string;
}

/** What the run of a slot does with the marks of lower ones. */
interface Expiry {
  readonly expires: ReadonlySet<string>;
  readonly operations: readonly Operation[];
}

export const NOTHING: Expiry = { expires: new Set(), operations: [] };

const digits = (slot: number): string => String(slot).padStart(DIGITS, "0");

/** The value of a mark. */
export interface Mark {
  readonly state: "started" | "done" | "failed";
  /** The owner of the session that ran it. */
  readonly owner: string;
  /** ISO 8601, by its clock: for people, never for a decision. */
  readonly since: string;
  /** Identifies the call. */
  readonly id: string;
  /** The queue entry of the run. */
  readonly key: string;
  /** Create revision of that entry. Missing if one transaction put both: then it is the modification revision of the mark. */
  readonly fence?: string;
}

/** The condition that a mark still is as it was read: at this modification revision; `0n`: there is none. */
export const unchanged = (at: MarkKey, revision: bigint): Compare =>
  revision === 0n ? { kind: "created at", ...at, revision } : { kind: "modified at", ...at, revision };

/** A mark has no lease: it outlives the process that put it. */
const putMark = (at: MarkKey, mark: Mark): Operation => ({
  kind: "put",
  ...at,
  value: JSON.stringify(mark),
  leaseId: 0n,
});

/** An owner has at most 256 bytes, a key 2,048. */
const MAX_MARK = 16_384;

const STATES: readonly unknown[] = ["started", "done", "failed"] satisfies Mark["state"][];
const TEXTS = ["owner", "since", "id", "key", "fence"] as const;

/** The fields that have the form of ours; undefined if the value is no object, or longer than any of ours. */
export function parseMark({ value }: Pick<KeyValue, "value">): Partial<Mark> | undefined {
  if (value.length > MAX_MARK) return undefined;
  try {
    const parsed: unknown = JSON.parse(value);
    if (typeof parsed !== "object" || parsed === null) return undefined;
    const fields = parsed as Readonly<Record<string, unknown>>;
    const texts = TEXTS.filter((name) => typeof fields[name] === "string").map((name) => [
      name,
      fields[name],
    ]);
    const state = STATES.includes(fields["state"]) ? { state: fields["state"] } : {};
    return { ...Object.fromEntries(texts), ...state } as Partial<Mark>;
  } catch {
    return undefined;
  }
}

interface PlanParts {
  readonly services: Pick<LeaseSource["services"], "clock" | "options">;
  readonly options: SlotPlan["options"];
}

/** What one call of `once` is to run, and when. */
export class SlotPlan {
  readonly options: Pick<CheckedOnce, "rerun" | "keep" | "skips">;
  readonly space: MarkSpace;
  /** Where older versions put the marks of a cluster with a prefix: in the queue of the prefix's own name. They are only read. */
  readonly oldSpace: MarkSpace | undefined;
  /** Identifies the marks of this call. */
  readonly id: string;
  readonly path: string;

  constructor(
    readonly name: string,
    readonly slot: number,
    { services, options }: PlanParts,
  ) {
    this.options = options;
    this.path = pathOf(services, name);
    this.space = new MarkSpace(`${MARKS}${this.path}`);
    this.oldSpace = this.path === name ? undefined : new MarkSpace(pathOf(services, `${MARKS}${name}`));
    this.id = services.clock.randomId().toString(36);
  }

  /** The mark. */
  get at(): MarkKey {
    return this.space.mark(this.slot);
  }

  /** For errors: a role may lack the right on the mark only. */
  get text(): string {
    return `slot ${this.slot} of "${this.name}", with the mark ${this.at.key}`;
  }

  /** The mark of a run that begins, under the entry `key`. `fence`: its create revision, if it is known by now. */
  mark({ owner, services }: Lease, key: string, fence?: bigint): Mark {
    const since = services.clock.date().toISOString();
    const started = { state: "started", owner, since, id: this.id, key } as const;
    return fence === undefined ? started : { ...started, fence: fence.toString() };
  }
}

/** Another run of a slot. */
export interface OnceRun {
  /** `owner` of the session that ran it. */
  readonly owner: string | undefined;
  /** When its call began, by its own clock. */
  readonly since: Date | undefined;
  /** Its work threw. */
  readonly failed: boolean;
}

/** The modification revisions of the marks of a slot; `0n`: there is none. */
export interface Seen {
  readonly mark: bigint;
  readonly oldMark: bigint;
}

export const NO_MARK: Seen = { mark: 0n, oldMark: 0n };

/** The state of a slot at one revision, and of its queue. */
export type Verdict = { readonly seen: Seen; readonly isEmpty: boolean } & (
  | { readonly state: "free" }
  | { readonly state: "expired" }
  | { readonly state: "done" | "running" | "lost"; readonly run: OnceRun }
);

/**
 * What a verdict is made of, in this order: the floors from the slot on, its mark, the oldest entry of the queue; old ones. An entry
 * and its delay key have one create revision, and etcd gives them in any order.
 */
function evidence({ space, oldSpace, path, slot }: SlotPlan): readonly Operation[] {
  const marksIn = (marks: MarkSpace): readonly Operation[] => [
    { kind: "range", ...marks.floorsFrom(slot), limit: 1, keysOnly: true },
    { kind: "range", ...marks.mark(slot) },
  ];
  const oldest = {
    kind: "range",
    ...queueRange(path),
    order: "oldest first",
    limit: 2,
    keysOnly: true,
  } as const;
  return [...marksIn(space), oldest, ...(oldSpace ? marksIn(oldSpace) : [])];
}

/**
 * The state of a slot, by the answers to `evidence` at one revision, which come last. A mark with `ownId` does not count: an attempt of this
 * call has put it, which has lost its entry since, and the work has not begun.
 */
export function verdictOf(
  plan: SlotPlan,
  ranges: readonly (RangeResult | undefined)[],
  ownId: string | undefined,
): Verdict {
  const answers = ranges.slice(-evidence(plan).length);
  const [floor, kv, first, oldFloor, oldKv] = answers.map((range) => range?.kvs[0]);
  const seen = { mark: kv?.modRevision ?? 0n, oldMark: oldKv?.modRevision ?? 0n };
  const common = { seen, isEmpty: first === undefined };
  if (floor ?? oldFloor) return { state: "expired", ...common };
  const last = kv ?? oldKv;
  const mark = last && parseMark(last);
  if (!last || (ownId !== undefined && mark?.id === ownId)) return { state: "free", ...common };
  // An old mark has the key without the prefix of the cluster.
  const start = kv ? 0 : plan.path.length - plan.name.length;
  const oldest = answers[2]?.kvs.filter(({ createRevision }) => createRevision === first?.createRevision);
  const entries = (oldest ?? []).map(({ key, createRevision }) => ({
    key: key.toString().slice(start),
    fence: String(createRevision),
  }));
  return { state: stateOf(last, mark, entries), ...common, run: runOf(mark) };
}

/** A value of unknown form never lets the work run a second time. */
function stateOf(
  { modRevision }: KeyValue,
  mark: Partial<Mark> | undefined,
  oldest: readonly Pick<Mark, "key" | "fence">[],
): "done" | "running" | "lost" {
  if (mark?.state !== "started") return "done";
  const fence = mark.fence ?? String(modRevision);
  // A run holds, so while its entry exists, that is the oldest one.
  const runs = oldest.some((entry) => entry.key === mark.key && entry.fence === fence);
  return runs ? "running" : "lost";
}

function runOf(mark: Partial<Mark> | undefined): OnceRun {
  const since = new Date(mark?.since ?? NaN);
  return {
    owner: typeof mark?.owner === "string" ? mark.owner : undefined,
    since: Number.isNaN(since.getTime()) ? undefined : since,
    failed: mark?.state === "failed",
  };
}

// All of them name the queue, so that no two transactions on the marks of one name share a request.

/** The mark to put, if those of the slot are as they were seen. */
export interface Begun {
  readonly mark: Mark;
  readonly seen: Seen;
}

/** The slot has not expired, and its marks are as they were seen. */
function mayRun({ space, oldSpace, slot }: SlotPlan, seen: Seen): readonly Compare[] {
  const compares: Compare[] = [
    unchanged(space.mark(slot), seen.mark),
    { kind: "nothing in", ...space.floorsFrom(slot) },
  ];
  if (!oldSpace) return compares;
  return [
    ...compares,
    unchanged(oldSpace.mark(slot), seen.oldMark),
    { kind: "nothing in", ...oldSpace.floorsFrom(slot) },
  ];
}

const lowest = ({ space }: SlotPlan): Operation => ({ kind: "range", ...space.lowest() });

/** Extends a transaction that takes the lock, or whose compare shows that it is held: it also puts the mark, or tells why not. */
export const beginTxn = (plan: SlotPlan, { queues, ...txn }: Txn, { mark, seen }: Begun): Txn => ({
  queues,
  compare: [...txn.compare, ...mayRun(plan, seen)],
  success: [...txn.success, putMark(plan.at, mark), lowest(plan)],
  failure: [...txn.failure, ...evidence(plan)],
});

/** Extends `leave`: it also marks the slot as run, and deletes the marks that are too many. If its compare fails, it reads the mark. */
export function endTxn(
  { at }: SlotPlan,
  leave: Txn,
  { mark, expiry }: { readonly mark: Mark; readonly expiry: Expiry },
): Txn {
  // A request may not put and delete the same key.
  const ended = expiry.expires.has(at.key) ? [] : [putMark(at, mark)];
  return {
    ...leave,
    success: [...ended, ...expiry.operations, ...leave.success],
    failure: [{ kind: "range", ...at }, ...leave.failure],
  };
}

/** The condition that the mark is this one. */
export const markIs = (plan: SlotPlan, mark: Mark): Compare => ({
  kind: "value is",
  ...plan.at,
  value: JSON.stringify(mark),
});

/** Deletes the mark of a run that has not begun. Never rejects: with the session, the slot counts as lost. */
export async function undo(lease: Lease, plan: SlotPlan, when: Compare): Promise<void> {
  const { at, path } = plan;
  const txn: Txn = {
    queues: [path],
    compare: [when],
    success: [{ kind: "delete", ...at }],
    failure: [],
  };
  const policy = { ...lease.policy(`give back ${plan.text}`), untilConfirmed: true };
  await lease.inFlight.track(lease.services.client.txn(txn, policy)).catch(() => undefined);
}
