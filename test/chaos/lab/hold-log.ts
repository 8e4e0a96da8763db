import type { Lock } from "../../../src/index.js";
import type { End, Operation } from "./history.js";
import { now } from "./journal.js";

/** An acquire and all that is done with its hold. */
export interface Op {
  readonly id: number;
  readonly lock: string;
}
export type Acquire = "acquire" | "tryAcquire";

/** Writes down what a lane asks for, is told and claims. */
export class HoldLog {
  readonly #owner: string;
  readonly #write: (step: object) => void;
  /** Turns of the event loop since an acquire was aborted. */
  readonly #turns = new Map<number, number>();

  constructor(owner: string, write: (step: object) => void) {
    this.#owner = owner;
    this.#write = write;
  }

  note(k: "invoke" | "ok" | "fail" | "info", f: Operation, op: Op, more: object = {}): void {
    this.#write({ k, f, ...op, ...more });
  }

  asked(f: Acquire, op: Op): void {
    this.note("invoke", f, op, { owner: this.#owner });
  }

  failed(error: unknown, op: Op, f: Acquire): void {
    const turns = this.#turns.get(op.id);
    this.#turns.delete(op.id);
    this.note("fail", f, op, { err: describe(error), ...(turns !== undefined && { turns }) });
  }

  /** Counts from the call of `abort` on how often the event loop turns until the acquire is told to have failed. */
  aborted(op: Op, abort: () => void): void {
    this.#write({ k: "abort", ...op });
    this.#turns.set(op.id, 0);
    abort();
    const turn = () => {
      const before = this.#turns.get(op.id);
      if (before === undefined || before > 1000) return;
      this.#turns.set(op.id, before + 1);
      setImmediate(turn);
    };
    setImmediate(turn);
  }

  granted(lock: Lock, op: Op, f: Acquire): void {
    // The time comes first: a process stopped between the two must not seem to have claimed later than it did.
    const t = now();
    this.#turns.delete(op.id);
    this.note("ok", f, op, { t, held: lock.held, token: lock.fence, key: lock.key });
    const end = () =>
      this.#write({ k: "end", ...op, token: lock.fence, reason: reasonOf(lock.signal.reason as Ending) });
    if (lock.signal.aborted) end();
    // Not once: a second end would be a fault of ours.
    else lock.signal.addEventListener("abort", end);
  }

  claim(lock: Lock, op: Op): boolean {
    const t = now();
    const held = lock.held;
    this.#write({ t, k: "claim", ...op, token: lock.fence, held });
    return held;
  }
}

interface Ending {
  readonly code: string;
  readonly loss?: End["reason"];
}

function reasonOf({ code, loss }: Ending): End["reason"] {
  return code === "LOCK_RELEASED" || loss === undefined ? "released" : loss;
}

export function describe(error: unknown): string {
  const { code, name } = error as { code?: string; name?: string };
  return code ?? name ?? String(error);
}
