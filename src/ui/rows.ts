import type { Clock } from "../async/clock.js";
import { History } from "./history.js";
import type { Past, Row } from "./protocol.js";
import type { Ending, QueueView, SourceListener } from "./source.js";

/** Free queues that are still shown, with their history. */
const MAX_FREE = 1000;
const FREE_MS = 300_000;

interface Kept {
  row: Row;
  readonly history: History;
  /** As JSON text, for all streams; undefined: to be made. */
  json: string | undefined;
  /** Monotonic milliseconds; undefined: it is not free. */
  freeSince: number | undefined;
}

/** The rows of the overview, and the histories of their queues. */
export class Rows implements SourceListener {
  readonly #kept = new Map<string, Kept>();
  /** The free ones, in the order in which they became free. */
  readonly #free = new Set<string>();
  /** Until the first state has come: nobody saw these holds begin. */
  #isFirst = true;
  #problem: string | null = "connecting to etcd";

  /** @param changed gets the name of each queue that has changed; undefined: only `problem` has. */
  constructor(
    private readonly clock: Clock,
    private readonly onChange: (name: string | undefined) => void,
  ) {}

  get problemText(): string | null {
    return this.#problem;
  }

  has(name: string): boolean {
    return this.#kept.has(name);
  }

  /** The row as JSON; undefined: it is gone. */
  json(name: string): string | undefined {
    const kept = this.#kept.get(name);
    if (kept) kept.json ??= JSON.stringify(kept.row);
    return kept?.json;
  }

  history(name: string): readonly Past[] {
    return this.#kept.get(name)?.history.holds ?? [];
  }

  changed(views: readonly QueueView[]): void {
    for (const view of views) this.#put(view);
    this.#isFirst = false;
    this.#forget();
  }

  ended({ name, revision, end }: Ending): void {
    const kept = this.#kept.get(name);
    if (!kept) return;
    kept.history.ended(revision, end);
    kept.row = { ...kept.row, losses: kept.history.losses };
    kept.json = undefined;
    this.onChange(name);
  }

  problem(text: string | undefined): void {
    if (this.#problem === (text ?? null)) return;
    this.#problem = text ?? null;
    this.onChange(undefined);
  }

  #put(view: QueueView): void {
    const { name, holders, waiters } = view;
    const before = this.#kept.get(name);
    const free = holders.length === 0 && waiters === 0;
    if (free && before === undefined) return;
    const history = before?.history ?? new History(this.#isFirst);
    history.update(holders, this.clock.date().getTime());
    // An empty queue shows no kind.
    const kind = free ? (before?.row.kind ?? view.kind) : view.kind;
    this.#free.delete(name);
    if (free) this.#free.add(name);
    const freeSince = free ? this.clock.monotonic() : undefined;
    this.#kept.set(name, { row: rowOf({ ...view, kind }, history), history, json: undefined, freeSince });
    this.onChange(name);
  }

  /** Free rows beyond the limits. */
  #forget(): void {
    const before = this.clock.monotonic() - FREE_MS;
    for (const name of this.#free) {
      const { freeSince = 0 } = this.#kept.get(name) ?? {};
      if (this.#free.size <= MAX_FREE && freeSince > before) break;
      this.#free.delete(name);
      this.#kept.delete(name);
      this.onChange(name);
    }
  }
}

function rowOf({ name, kind, holders, waiters }: QueueView, history: History): Row {
  const [first] = holders;
  return {
    ...{ name, kind, holders: holders.length, waiters, losses: history.losses },
    holder: first ? (first.owner ?? first.key) : null,
    since: (first && (history.sinceOf(first.revision) ?? first.since?.getTime())) ?? null,
  };
}
