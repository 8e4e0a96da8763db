// Slots that have an order, such as the ticks of a schedule: one lock for all of them, and a floor below which none is run any more.
import type { Compare, KeyValue, Operation, Range } from "../../etcd/port.js";
import { MARKS, pathOf } from "../../keys.js";
import type { RangeResult } from "../../lock/queue/lock-mode.js";
import { type MarkKey, putMark, unchanged } from "./marks.js";
import { type Ended, NO_MARK, Plan, type PlanParts, type Seen } from "./plan.js";

/** As many as Number.MAX_SAFE_INTEGER has. */
const DIGITS = 16;
/** How many marks one run deletes at most: more would not fit into a shared request. */
const MAX_DELETED = 16;

/**
 * The keys of the slots of one name: `/leasehold/once/NAME//SLOT`, and at most one floor, `/leasehold/once/NAME//-SLOT`. The
 * slots up to the floor have expired. The marks of texts are at `/leasehold/once/NAME//=TEXT`. No name contains "//", so the keys of two
 * names are never in one range.
 */
export class MarkSpace {
  readonly #base: string;

  constructor(start: string) {
    this.#base = `${start}//`;
  }

  static of(services: Parameters<typeof pathOf>[0], name: string): MarkSpace {
    return new MarkSpace(`${MARKS}${pathOf(services, name)}`);
  }

  /** Where older versions put the marks of a cluster with a prefix: in the queue of the prefix's own name. They are only read. */
  static oldOf(services: Parameters<typeof pathOf>[0], name: string): MarkSpace | undefined {
    return pathOf(services, name) === name ? undefined : new MarkSpace(pathOf(services, `${MARKS}${name}`));
  }

  mark(slot: number): MarkKey {
    return this.#at(digits(slot));
  }

  /** `encoded`: a text without a slash. */
  text(encoded: string): MarkKey {
    return this.#at(`=${encoded}`);
  }

  /** Of a value that is shared: neither a slot nor a text. */
  shared(part: "run" | "value" | "fresh"): MarkKey {
    return this.#at(`*${part}`);
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

  /** Where the floor is, if there is one. */
  floors(): Range {
    return { ...this.#at("-"), end: `${this.#base}.`, limit: 1, keysOnly: true };
  }

  /** The slot of a floor: those up to it have expired. */
  floorOf(key: string): number {
    return Number(key.slice(this.#base.length + 1));
  }

  /** The marks of all slots. */
  slots(): { readonly key: string; readonly end: string } {
    return { key: `${this.#base}0`, end: `${this.#base}:` };
  }

  /** The marks of all slots and texts, without the floor. */
  all(): { readonly key: string; readonly end: string } {
    return { key: `${this.#base}0`, end: `${this.#base}>` };
  }

  /** The slot or text of a mark; undefined for the key of anything else. */
  slotOf(key: string): number | string | undefined {
    const end = key.startsWith(this.#base) ? key.slice(this.#base.length) : "";
    if (/^\d{16}$/.test(end)) return Number(end);
    return end.startsWith("=") ? decoded(end.slice(1)) : undefined;
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
    // A "missed" mark may have been put below the floor while the run that moved it was under way: the floor never goes down.
    const lasts = [...floors.map((key) => this.floorOf(key)), Number(last.slice(this.#base.length))];
    const floor = this.floor(Math.max(...lasts));
    return {
      expires: new Set(marks),
      operations: [
        // A request may not put and delete the same key.
        ...[...floors, ...marks]
          .filter((key) => key !== floor.key)
          .map((key): Operation => ({ kind: "delete", key })),
        { kind: "put", ...floor, value: "", leaseId: 0n },
      ],
    };
  }
}

/** What the run of a slot does with the marks of lower ones. */
interface Expiry {
  readonly expires: ReadonlySet<string>;
  readonly operations: readonly Operation[];
}

const NOTHING: Expiry = { expires: new Set(), operations: [] };

const digits = (slot: number): string => String(slot).padStart(DIGITS, "0");

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** One slot of a name. */
export class SlotPlan extends Plan {
  readonly #space: MarkSpace;
  readonly #oldSpace: MarkSpace | undefined;
  readonly at: MarkKey;

  constructor(
    private readonly name: string,
    private readonly slot: number,
    private readonly parts: PlanParts & { readonly keep: number },
  ) {
    super(name, parts);
    const { services } = parts;
    this.#space = MarkSpace.of(services, name);
    this.#oldSpace = MarkSpace.oldOf(services, name);
    this.at = this.#space.mark(slot);
  }

  get what(): string {
    return `slot ${this.slot} of "${this.name}"`;
  }

  /** The slot has not expired, and its marks are as they were seen. */
  protected override conditions(seen: Seen): readonly Compare[] {
    const { slot } = this;
    const compares: Compare[] = [
      ...super.conditions(seen),
      { kind: "nothing in", ...this.#space.floorsFrom(slot) },
    ];
    if (!this.#oldSpace) return compares;
    return [
      ...compares,
      unchanged(this.#oldSpace.mark(slot), seen.oldMark),
      { kind: "nothing in", ...this.#oldSpace.floorsFrom(slot) },
    ];
  }

  override evidence(): readonly Operation[] {
    const floors = (marks: MarkSpace): Operation => ({
      kind: "range",
      ...marks.floorsFrom(this.slot),
      limit: 1,
      keysOnly: true,
    });
    const old = this.#oldSpace;
    return [
      ...super.evidence(),
      floors(this.#space),
      ...(old ? [floors(old), { kind: "range", ...old.mark(this.slot) } as const] : []),
    ];
  }

  protected override judge([
    marks = [],
    oldest = [],
    floors = [],
    oldFloors = [],
    oldMarks = [],
  ]: readonly (readonly KeyValue[])[]) {
    const [[kv], [oldKv]] = [marks, oldMarks];
    return {
      last: kv ?? oldKv,
      seen: { mark: kv, oldMark: oldKv?.modRevision ?? NO_MARK.oldMark },
      oldest,
      // An old mark has the key without the prefix of the cluster.
      start: kv ? 0 : this.path.length - this.name.length,
      state: floors.length + oldFloors.length > 0 ? ("expired" as const) : undefined,
    };
  }

  protected override readsToEnd(): readonly Operation[] {
    return [{ kind: "range", ...this.#space.lowest() }];
  }

  /** It also deletes the marks that are too many. A request may not put and delete the same key. */
  protected override ends({ mark, lowest }: Ended): readonly Operation[] {
    const expiry = lowest ? this.#space.expire(lowest, this.parts.keep) : NOTHING;
    return [...(expiry.expires.has(this.at.key) ? [] : [putMark(this.at, mark, 0n)]), ...expiry.operations];
  }
}

/** A run that was lost is known as such for so long from its begin on, at least. */
const LOST_MS = 3_600_000;

/** A text of a name: each has a lock of its own, and a mark that expires. */
export class TextPlan extends Plan {
  readonly at: MarkKey;
  override readonly begun;
  override readonly ended;

  constructor(
    private readonly name: string,
    private readonly slot: string,
    parts: PlanParts & { readonly keepMs: number },
  ) {
    const encoded = encodeURIComponent(slot);
    super(lockOf(name, slot), parts);
    this.at = MarkSpace.of(parts.services, name).text(encoded);
    const { keepMs } = parts;
    this.begun = [{ ms: Math.max(keepMs, LOST_MS), atLeast: true }];
    this.ended = [{ ms: keepMs, atLeast: true }];
  }

  get what(): string {
    return `slot ${JSON.stringify(this.slot)} of "${this.name}"`;
  }
}

/** The name of the lock of a text, which contains the text without slashes. */
export const lockOf = (name: string, text: string): string => `${name}/${encodeURIComponent(text)}`;
