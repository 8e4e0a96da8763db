import type { Claim, End, Invoke, Outcome, Step } from "../runner/history.js";
import { PairMap } from "./pair-map.js";
import type { Steps } from "./steps.js";
import { earlier, without, type Span } from "./spans.js";

/** An acquire, from its invocation on. */
export interface Call {
  readonly p: string;
  readonly id: number;
  readonly lock: string;
  readonly owner: string | undefined;
  /** All names that the call requests at once if there is more than one; otherwise empty. */
  readonly names: readonly string[];
  /** How many permits of a weighted semaphore it takes; undefined for all other calls. */
  readonly weight: number | undefined;
  readonly invoked: bigint;
  readonly aborted: bigint | undefined;
  readonly outcome: Outcome | undefined;
  /** Set if the call was granted. */
  readonly hold: Hold | undefined;
}

/** A granted acquire and everything that its process recorded about it. */
export interface Hold {
  readonly p: string;
  readonly id: number;
  readonly lock: string;
  readonly token: bigint;
  /** The create revision of its place, which is its fence. */
  readonly create: bigint;
  /** Several holds, one after the other, may have one place. */
  readonly turn: number;
  /** Other shared holds may exist at the same time. */
  readonly shared: boolean;
  /** When it was told to become a reader: from then on, it claims to share the lock. */
  readonly downgrading: bigint | undefined;
  readonly invoked: bigint;
  readonly granted: bigint;
  readonly heldWhenGranted: boolean;
  readonly claims: readonly Claim[];
  readonly ends: readonly End[];
  /** When its release was called. */
  readonly releasing: bigint | undefined;
  readonly released: Outcome | undefined;
}
type Growing<T> = { -readonly [K in keyof T]: T[K] extends readonly (infer U)[] ? U[] : T[K] };
type GrowingCall = Omit<Growing<Call>, "hold"> & { hold: Growing<Hold> | undefined };

/** A stretch between readings that were all true, and when the process was notified of the end, if ever. */
export interface Stretch extends Span {
  readonly told: bigint;
}

export interface Calls {
  /** In the order of their invocations. */
  readonly calls: readonly Call[];
  /** By process and number. */
  readonly callOf: PairMap<string, number, Call>;
  /** In the order of their grants. */
  readonly holds: readonly Hold[];
}

export function callsOf({ onHolds }: Steps): Calls {
  const calls: GrowingCall[] = [];
  const callOf = new PairMap<string, number, GrowingCall>();
  const holds: Growing<Hold>[] = [];
  for (const step of onHolds) {
    const call = callOf.get(step.p, step.id);
    if (step.k === "claim") call?.hold?.claims.push(step);
    else if (step.k === "end") call?.hold?.ends.push(step);
    else if (step.k === "invoke") {
      if (step.f === "release" && call?.hold !== undefined) call.hold.releasing ??= step.t;
      if (step.f === "downgrade" && call?.hold !== undefined) call.hold.downgrading ??= step.t;
      if (!isAcquire(step)) continue;
      const added = newCall(step);
      calls.push(added);
      callOf.set(step.p, step.id, added);
    } else if (call === undefined) continue;
    else if (step.k === "abort") call.aborted ??= step.t;
    else answered(call, step, holds);
  }
  return { calls, callOf, holds };
}

const newCall = ({ p, id, lock, owner, names = [], weight, t }: Invoke): GrowingCall => ({
  ...{ p, id, lock, owner, names: [...names], weight, invoked: t },
  ...{ aborted: undefined, outcome: undefined, hold: undefined },
});

function answered(call: GrowingCall, step: Outcome, holds: Growing<Hold>[]): void {
  if (step.f === "release" && call.hold !== undefined) call.hold.released ??= step;
  if (!isAcquire(step)) return;
  call.outcome = step;
  if (step.k !== "ok" || step.token === undefined) return;
  call.hold = granted(step, step.token, call.invoked);
  holds.push(call.hold);
}

function granted(
  { p, id, lock, t, held, shared = false, turn = 1 }: Outcome,
  token: bigint,
  invoked: bigint,
): Growing<Hold> {
  return {
    ...{ p, id, lock, token, create: token, turn, shared, invoked, granted: t },
    ...{ heldWhenGranted: held === true, downgrading: undefined },
    ...{ claims: [], ends: [], releasing: undefined, released: undefined },
  };
}

/** Whether only one of two holds of a lock may be held at a time. */
export const exclude = (a: Hold, b: Hold): boolean => !(a.shared && b.shared);

export const isAcquire = (step: Step): step is Invoke | Outcome =>
  "f" in step && (step.f === "acquire" || step.f === "tryAcquire");

/** Every time at which the process read whether it holds. */
export function readingsOf({ granted, heldWhenGranted, claims }: Hold): { t: bigint; held: boolean }[] {
  return [{ t: granted, held: heldWhenGranted }, ...claims];
}

/** From the first reading that is true to the last one before a reading that is false. */
export function stretchesOf(hold: Hold): Stretch[] {
  const over = [hold.releasing, ...hold.ends.map(({ t }) => t)].filter((t) => t !== undefined);
  const stretches: Stretch[] = [];
  let open: Span | undefined;
  const close = ({ from, to }: Span, no: readonly bigint[]) => {
    const told = [...over, ...no].filter((t) => t >= to);
    // The process was killed, or the run ended: nothing more was recorded.
    stretches.push({ from, to, told: told.length === 0 ? to : told.reduce(earlier) });
    open = undefined;
  };
  for (const { t, held } of readingsOf(hold)) {
    if (held) open = { from: open?.from ?? t, to: t };
    else if (open !== undefined) close(open, [t]);
  }
  if (open !== undefined) close(open, []);
  return stretches;
}

/**
 * The time in which the process itself claimed to hold, without the time in which it was stopped. A reading made while
 * it was stopped still counts.
 */
export function claimedTime(hold: Hold, still: readonly Span[]): readonly Span[] {
  if (still.length === 0) return stretchesOf(hold);
  const readings = readingsOf(hold).filter(({ held }) => held);
  const points = readings.map(({ t }) => ({ from: t, to: t }));
  const inside = points.filter((point) => without(point, still).length === 0);
  return [...stretchesOf(hold).flatMap((stretch) => without(stretch, still)), ...inside];
}
