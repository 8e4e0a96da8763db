import type { End, Operation } from "./history.js";
import type { Context } from "./context.js";
import type { Grip, Gripped, Subject } from "./subject.js";

/** An acquire of one name and all steps with its hold. The ops of one call for several names are recorded together. */
export interface Op {
  readonly id: number;
  readonly lock: string;
}
export type Acquire = "acquire" | "tryAcquire";

/** Records what a lane requests, is granted and claims: one line per name. */
export class HoldLog {
  readonly #owner: string;
  readonly #write: Context["note"];
  readonly #time: Context["time"];
  readonly #wanted: boolean;
  /** Event-loop turns since an acquire was aborted. */
  readonly #turns = new Map<number, number>();
  /** Holds whose signal has not aborted: whether `held` was read as false in an earlier turn of the event loop. */
  readonly #live = new WeakMap<Grip["hold"], { late: boolean }>();

  constructor(owner: string, { note, time, wanted }: Pick<Context, "note" | "time" | "wanted">) {
    this.#owner = owner;
    this.#wanted = wanted;
    this.#write = note;
    this.#time = time;
  }

  note(k: "invoke" | "ok" | "fail" | "info", f: Operation, ops: readonly Op[], more?: object): void {
    for (const { id, lock } of ops)
      this.#write(more === undefined ? { k, f, id, lock } : { k, f, id, lock, ...more });
  }

  asked(f: Acquire, ops: readonly Op[], subject: Pick<Subject, "owner" | "weight">): void {
    const { owner = this.#owner, weight } = subject;
    const names = ops.map(({ lock }) => lock);
    this.note("invoke", f, ops, {
      owner,
      ...(names.length > 1 && { names }),
      ...(weight !== undefined && { weight }),
    });
  }

  failed(error: unknown, ops: readonly Op[], f: Acquire): void {
    for (const op of ops) {
      const turns = this.#turns.get(op.id);
      this.#turns.delete(op.id);
      this.note("fail", f, [op], { ...failureOf(error), ...(turns !== undefined && { turns }) });
    }
  }

  /** Counts, from the call of `abort`, how often the event loop turns until the acquire rejects. */
  aborted(ops: readonly Op[], abort: () => void): void {
    for (const op of ops) {
      this.#write({ k: "abort", ...op });
      this.#turns.set(op.id, 0);
    }
    abort();
    const turn = () => {
      const counted = ops.filter(({ id }) => (this.#turns.get(id) ?? Infinity) <= 1000);
      for (const { id } of counted) this.#turns.set(id, (this.#turns.get(id) ?? 0) + 1);
      if (counted.length > 0) this.#time.turn(turn);
    };
    this.#time.turn(turn);
  }

  granted({ hold, places, shared }: Grip, ops: readonly Op[], f: Acquire): void {
    // The time is read first: a process that is stopped between the two must not seem to have claimed later than it
    // did.
    const t = this.#time.now();
    const { held } = hold;
    each(ops, places, (op, { token, key, turn }) => {
      this.#turns.delete(op.id);
      const more = { ...(shared && { shared }), ...(turn !== undefined && turn > 1 && { turn }) };
      this.note("ok", f, [op], { t, held, token, key, ...more });
    });
    const end = () => {
      const reason = reasonOf(hold.signal.reason as Ending);
      const late = this.#live.get(hold)?.late === true;
      this.#live.delete(hold);
      each(ops, places, (op, { token }) =>
        this.#write({ k: "end", ...op, token, reason, ...(late && { late }) }),
      );
    };
    if (hold.signal.aborted) return end();
    this.#live.set(hold, { late: false });
    // Without `once`: a second event would be a bug in leasehold, which the checker must see.
    hold.signal.addEventListener("abort", end);
    if (!held) this.#mustEnd(hold);
    if (this.#wanted) this.#listen(hold, places, ops);
  }

  #listen(hold: Grip["hold"], places: readonly Gripped[], ops: readonly Op[]): void {
    if (!hold.onWanted) return;
    each(ops, places, (op, { token }) => this.#write({ k: "asks", ...op, token }));
    hold.onWanted(({ name, key, revision: rev }) =>
      each(ops, places, (op, { token }) => {
        if (op.lock === name) this.#write({ k: "wanted", ...op, token, key, rev });
      }),
    );
  }

  /** `again`: what a call for a lock that its async context holds has just resolved with. */
  claim(
    { hold, places }: Pick<Grip, "hold" | "places">,
    ops: readonly Op[],
    again?: Pick<Grip["hold"], "held">,
  ): boolean {
    const t = this.#time.now();
    const { held } = again ?? hold;
    each(ops, places, ({ id, lock }, { token }) =>
      this.#write({ t, k: "claim", id, lock, token, held, ...(again && { entered: true }) }),
    );
    if (!held) this.#mustEnd(hold);
    return held;
  }

  /** `held` was read as false: the signal aborts in this turn of the event loop, or is late. */
  #mustEnd(hold: Grip["hold"]): void {
    const live = this.#live.get(hold);
    if (live !== undefined && !live.late) this.#time.turn(() => (live.late = true));
  }
}

function each(ops: readonly Op[], places: readonly Gripped[], tell: (op: Op, place: Gripped) => void): void {
  ops.forEach((op, n) => {
    const place = places[n];
    if (place !== undefined) tell(op, place);
  });
}

interface Ending {
  readonly code: string;
  readonly loss?: End["reason"];
}

function reasonOf({ code, loss }: Ending): End["reason"] {
  return code === "LOCK_RELEASED" || loss === undefined ? "released" : loss;
}

/** The error fields of a failed step. */
export const failureOf = (error: unknown) => ({ err: describe(error), said: (error as Error).message });

export function describe(error: unknown): string {
  const { code, name } = error as { code?: string; name?: string };
  return code ?? name ?? String(error);
}
