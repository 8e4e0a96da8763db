import type { Compare, KeyValue, Operation, Range } from "../etcd/port.js";
import { MARKS } from "../keys.js";
import type { RangeResult } from "../queue/lock-mode.js";

/** Of Number.MAX_SAFE_INTEGER. */
const DIGITS = 16;
/** How many marks one run deletes at most: more would not fit into a shared request. */
const MAX_DELETED = 16;

/**
 * The keys of the slots of one name: `/leasehold/once/NAME//SLOT`, and at most one floor, `/leasehold/once/NAME//-SLOT`. The
 * slots up to the floor have expired. No name contains "//", so the keys of two names are never in one range.
 */
export class MarkSpace {
  readonly #base: string;

  /** `complete`: the name has the prefix of the cluster, under which the keys are not. Otherwise they are under it, too. */
  constructor(
    name: string,
    private readonly complete: boolean,
  ) {
    this.#base = `${MARKS}${name}//`;
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
    return { key: `${this.#base}${end}`, complete: this.complete };
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
    const { complete } = this;
    return {
      expires: new Set(marks),
      operations: [
        ...[...floors, ...marks].map((key): Operation => ({ kind: "delete", key, complete })),
        { kind: "put", ...floor, value: "", leaseId: 0n },
      ],
    };
  }
}

/** Where a mark or a floor is. */
export interface MarkKey {
  readonly key: string;
  readonly complete: boolean;
}

/** What the run of a slot does with the marks of lower ones. */
export interface Expiry {
  readonly expires: ReadonlySet<string>;
  readonly operations: readonly Operation[];
}

export const NOTHING: Expiry = { expires: new Set(), operations: [] };

const digits = (slot: number): string => String(slot).padStart(DIGITS, "0");

/** The value of a mark. */
export interface Mark {
  readonly state: "started" | "done" | "failed";
  /** Of the session that ran it. */
  readonly owner: string;
  /** ISO 8601, by its clock: for people, never for a decision. */
  readonly since: string;
  /** Of the call. */
  readonly id: string;
  /** The queue entry of the run: its complete key, so that clusters with and without the prefix understand it. */
  readonly key: string;
  /** Create revision of that entry. Missing if one transaction put both: then it is the modification revision of the mark. */
  readonly fence?: string;
}

/** The condition that a mark still is as it was read: at this modification revision; `0n`: there is none. */
export const unchanged = (at: MarkKey, revision: bigint): Compare =>
  revision === 0n ? { kind: "created at", ...at, revision } : { kind: "modified at", ...at, revision };

/** A mark has no lease: it outlives the process that put it. */
export const putMark = (at: MarkKey, mark: Mark): Operation => ({
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
