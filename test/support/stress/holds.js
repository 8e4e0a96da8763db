/** @import { Claim, Hold, Nemesis, Span, Step } from "./history.js" */

/**
 * @param {readonly Step[]} history by time
 * @returns {Hold[]} every granted acquire, by the time of the grant
 */
export function holdsOf(history) {
  const pauses = pausesOf(history);
  const invoked = new Map();
  /** @type {Map<string, Claim[]>} */
  const claims = new Map();
  /** @type {(Omit<Hold, "spans">)[]} */
  const holds = [];
  for (const step of history) {
    const of = "id" in step ? `${step.p}#${step.id}` : "";
    if (step.k === "claim") claims.get(of)?.push(step);
    if (step.k === "invoke" && isAcquire(step)) invoked.set(of, step.t);
    if (step.k !== "ok" || !isAcquire(step) || step.token === undefined) continue;
    const { p, id, lock, token, key } = step;
    const mine = /** @type {Claim[]} */ ([]);
    claims.set(of, mine);
    const times = { invoked: invoked.get(of) ?? step.t, granted: step.t };
    holds.push({ p, id, lock, token, key, ...times, heldWhenGranted: step.held === true, claims: mine });
  }
  return holds.map((hold) => ({ ...hold, spans: spansOf(hold, pauses.get(hold.p) ?? []) }));
}

/** @param {Step} step */
export const isAcquire = (step) => "f" in step && (step.f === "acquire" || step.f === "tryAcquire");

/**
 * The time in which the process itself said that it holds, without the time in which it was stopped.
 * @param {Omit<Hold, "spans">} hold
 * @param {readonly Span[]} pauses
 * @returns {Span[]}
 */
function spansOf(hold, pauses) {
  /** @type {Span[]} */
  const spans = [];
  /** @type {Span | undefined} */
  let open;
  const readings = [{ t: hold.granted, held: hold.heldWhenGranted }, ...hold.claims];
  for (const { t, held } of readings) {
    if (held) open = { from: open?.from ?? t, to: t };
    else if (open !== undefined) spans.push(open);
    if (!held) open = undefined;
  }
  if (open !== undefined) spans.push(open);
  return spans.flatMap((span) => without(span, pauses));
}

/** @param {Span} span @param {readonly Span[]} pauses @returns {Span[]} */
function without(span, pauses) {
  let rest = [span];
  for (const pause of pauses) {
    rest = rest.flatMap(({ from, to }) => {
      if (pause.to < from || pause.from > to) return [{ from, to }];
      const before = from < pause.from ? [{ from, to: pause.from }] : [];
      return pause.to < to ? [...before, { from: pause.to, to }] : before;
    });
  }
  return rest;
}

/** @param {readonly Step[]} history @returns {Map<string, Span[]>} per process */
export function pausesOf(history) {
  /** @type {Map<string, Span[]>} */
  const pauses = new Map();
  for (const { target, from, to } of faultsOf(history, ["pause-worker"])) {
    const mine = pauses.get(target) ?? [];
    mine.push({ from, to });
    pauses.set(target, mine);
  }
  return pauses;
}

/**
 * @param {readonly Step[]} history
 * @param {readonly Nemesis["fault"][]} [kinds] default: all
 * @returns {(Span & { fault: Nemesis["fault"], target: string })[]} one that was never healed lasts for ever
 */
export function faultsOf(history, kinds) {
  /** @type {Nemesis[]} */
  const steps = [];
  for (const step of history)
    if (step.k === "nemesis" && (kinds?.includes(step.fault) ?? true)) steps.push(step);
  return steps.flatMap((step, at) => {
    if (!step.on) return [];
    const off = steps.slice(at).find((s) => !s.on && s.fault === step.fault && s.target === step.target);
    return [{ fault: step.fault, target: step.target, from: step.t, to: off?.t ?? FOREVER }];
  });
}
const FOREVER = 2n ** 62n;
