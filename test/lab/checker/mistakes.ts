// A correct run with one line changed, for the checker's own tests.
import type { Run, ServerEvent, Step } from "../runner/history.js";
import type { Label } from "./judge.js";

/** The run with the mistake at the `nth` line where it is possible; undefined if there is none. */
export type Mistake = (run: Run, nth: number) => Run | undefined;

const MS = 1_000_000n;

const isGrant = (step: Step) => step.k === "ok" && step.f === "acquire";
const isEnd = (step: Step) => step.k === "end";
const isRelease = (step: Step) => step.k === "end" && step.reason === "released";
const isWrite = ({ key, type }: ServerEvent) => key.startsWith("reg/") && type === "PUT";
const isPlace = ({ key, type }: ServerEvent) => key.startsWith("lock/") && type === "PUT";
const isDeletion = (event: ServerEvent) => event.key.startsWith("lock/") && event.type === "DELETE";
const wasGranted = ({ create }: ServerEvent, { history }: Run) =>
  history.some((step) => step.k === "ok" && step.f === "acquire" && step.token === create);
const wasTaken = ({ rev }: ServerEvent, { history }: Run) =>
  history.some((step) => step.k === "nemesis" && step.took?.includes(rev));

/** The invariants that each mistake must break at least. */
export const MISTAKES: Readonly<Record<string, readonly [Label, Mistake]>> = {
  "the fences of two grants are swapped": ["I3", swapFences],
  "a grant comes before its turn": [
    "I1",
    onStep(hasWaited, (step, run) => [{ ...step, t: asked(step, run) }]),
  ],
  "a grant gets lost": ["I7", onStep(isGrant, () => [])],
  "an end is told twice": ["I10", onStep(isEnd, (step) => [step, step])],
  "an end is not told": ["I10", onStep(isEnd, () => [])],
  "an end is told too late": ["I9", onStep(isRelease, (step) => [{ ...step, t: step.t + 2n * MS }])],
  "a release is told as a loss": ["I11", onStep(isRelease, (step) => [asLoss(step)])],
  "a claim comes after the end": ["I10", onStep(isEnd, (step) => [step, claimAfter(step)])],
  "a rejection takes its time": ["I12", onStep(isRejection, (step) => [{ ...step, turns: 9 } as Step])],
  "a rejection is told as a refusal": [
    "I17",
    onStep(isRejection, (step) => [{ ...step, err: "ETCD_REFUSED" } as Step]),
  ],
  "a place is never put": ["I2", onEvent((it, run) => isPlace(it) && wasGranted(it, run))],
  "a place outlives its hold": [
    "I8",
    onEvent((it, run) => isDeletion(it) && wasGranted(it, run) && !wasTaken(it, run)),
  ],
  "an aborted place stays": ["I12", onEvent((it, run) => isDeletion(it) && !wasGranted(it, run))],
  "an update vanishes": ["I4", onEvent(isWrite)],
  "an update was not read": ["I5", onEvent(isWrite, skipped)],
};

function onStep(
  is: (step: Step, run: Run) => boolean,
  change: (step: Step, run: Run) => readonly Step[],
): Mistake {
  return (run, nth) => {
    const found = run.history.filter((step) => is(step, run));
    const chosen = found[nth % found.length];
    const history = run.history.flatMap((step) => (step === chosen ? change(step, run) : [step]));
    return chosen && { ...run, history };
  };
}

/** Without `change`, the event is omitted. */
function onEvent(
  is: (event: ServerEvent, run: Run) => boolean,
  change?: (event: ServerEvent) => ServerEvent,
): Mistake {
  return (run, nth) => {
    const found = run.server.filter((event) => is(event, run));
    const chosen = found[nth % found.length];
    const instead = chosen && change ? [change(chosen)] : [];
    return chosen && { ...run, server: run.server.flatMap((it) => (it === chosen ? instead : [it])) };
  };
}

function swapFences(run: Run, nth: number): Run | undefined {
  const grants = run.history.filter((step) => step.k === "ok" && step.f === "acquire");
  const a = grants[nth % grants.length];
  const b = grants[(nth + 1) % grants.length];
  if (a?.k !== "ok" || b?.k !== "ok" || a === b || a.token === undefined || b.token === undefined)
    return undefined;
  const other = new Map<Step, Step>([
    [a, { ...a, token: b.token }],
    [b, { ...b, token: a.token }],
  ]);
  return { ...run, history: run.history.map((step) => other.get(step) ?? step) };
}

/** Two milliseconds after it was requested. */
function asked(step: Step, { history }: Run): bigint {
  const is = (it: Step) => it.k === "invoke" && it.f === "acquire" && "id" in step && it.id === step.id;
  return (history.find(is)?.t ?? step.t) + 2n * MS;
}

function hasWaited(step: Step, run: Run): boolean {
  return isGrant(step) && asked(step, run) < step.t;
}

function isRejection(step: Step): boolean {
  return step.k === "fail" && step.f === "acquire";
}

function asLoss(step: Step): Step {
  return step.k === "end" ? { ...step, reason: "expired" } : step;
}

function claimAfter(step: Step): Step {
  if (step.k !== "end") return step;
  const { t, p, id, lock, token } = step;
  return { k: "claim", t: t + 1n, p, id, lock, token, held: true };
}

function skipped(event: ServerEvent): ServerEvent {
  const written = JSON.parse(event.value) as { seq: number };
  return { ...event, value: JSON.stringify({ ...written, seq: written.seq + 1 }) };
}
