import { accident as accidentIn, type Does, type Step } from "../step.js";
import { keeps, tell } from "../world.js";
import type { Accidents } from "../scenarios.js";
import {
  answered,
  ask,
  checked,
  deletionHeard,
  goOn,
  join,
  leave,
  left,
  look,
  lose,
  mayJoin,
  noteHeld,
  passed,
  read,
  sessionOver,
  unanswered,
  watching,
} from "./calling.js";
import { deleteKeys, execute } from "./etcd.js";
import {
  type Call,
  type Caller,
  isOurs,
  keyOf,
  type Priorities,
  type Session,
  sessionOf,
  STRANGER,
  type Txn,
} from "./world.js";

type Act = (world: Priorities, caller: Caller) => void;
type Taken = Step<Priorities>;

const progress = (does: Does, run: Taken["run"]): Taken => ({ kind: "progress", does, run });

const will = ({ id }: Caller, does: Does, act: Act): Taken => ({
  ...{ kind: "progress", does, caller: id },
  run: (world) => act(world, world.callers[id]!),
});

const may = (caller: Caller, does: Does, act: Act): Taken => ({ ...will(caller, does, act), kind: "choice" });

const accident = (world: Priorities, which: keyof Accidents, run: Taken["run"]): Taken[] =>
  accidentIn(world, which, run);

/** Everything that may happen next. */
export function nextSteps(world: Priorities): Taken[] {
  const steps = [...lateSteps(world), ...deletions(world)];
  if (world.keys.some(({ lease, deleted }) => lease === STRANGER && deleted === 0))
    steps.push(progress("release", strangerLeaves));
  if (world.scenario.lags && world.lagging < world.revision) steps.push(progress("catch up", catchUp));
  for (const session of world.sessions) steps.push(...sessionSteps(world, session));
  for (const caller of world.callers) {
    const isRunning = sessionOf(world, caller).client === "running";
    steps.push(...requestSteps(caller));
    if (isRunning) steps.push(...callerSteps(world, caller), ...mishaps(world, caller));
  }
  return steps;
}

function strangerLeaves(world: Priorities): void {
  tell(world, "somebody else, who waits at first, gives up");
  deleteKeys(world, ({ lease }) => lease === STRANGER, "its owner");
}

function catchUp(world: Priorities): void {
  world.lagging++;
  tell(world, `the lagging member applies revision ${world.lagging}`);
}

function callsOf({ state }: Caller): readonly Call[] {
  if (state.at === "leaving") return state.calls;
  return state.at === "joining" || state.at === "claiming" ? [state.call] : [];
}

/** Its requests arrive at etcd, each at its own time. */
function requestSteps(caller: Caller): Taken[] {
  const { state, label } = caller;
  const calls = callsOf(caller).filter(({ answer }) => !answer);
  const steps = calls.map(({ txn }) =>
    will(caller, "arrives", (w, c) => replace(c, { txn, answer: execute(w, txn) })),
  );
  const reads =
    state.at === "reading" ? state.answer === 0 : state.at === "waiting" && state.check?.answer === 0;
  if (!reads) return steps;
  const arrives = will(caller, "read arrives", (w, c) => {
    const answer = w.revision;
    tell(w, `etcd answers ${label}'s read as of revision ${answer}`);
    if (c.state.at === "reading") c.state = { at: "reading", answer };
    else if (c.state.at === "waiting") c.state = { ...c.state, check: { answer } };
  });
  return [...steps, arrives];
}

function replace(caller: Caller, call: Call): void {
  const { state } = caller;
  if (state.at === "leaving")
    caller.state = {
      at: "leaving",
      calls: state.calls.map((each) => (each.txn.key === call.txn.key ? call : each)),
    };
  else if (state.at === "joining" || state.at === "claiming") caller.state = { at: state.at, call };
}

function callerSteps(world: Priorities, caller: Caller): Taken[] {
  const { state } = caller;
  switch (state.at) {
    case "idle":
      return [may(caller, "ask", ask)];
    case "line":
      return mayJoin(world, caller) ? [will(caller, "ask", join)] : [];
    case "passing":
      return [will(caller, "let pass", passed)];
    case "joining":
    case "claiming":
      return state.call.answer ? [will(caller, "answered", (w, c) => answered(w, c, state.call))] : [];
    case "waiting":
      return [...watchSteps(world, caller), ...audited(world, caller)];
    case "local":
      return audited(world, caller);
    case "reading": {
      const { answer } = state;
      return answer > 0 ? [will(caller, "read answered", (w, c) => readAnswered(w, c, answer))] : [];
    }
    case "holding": {
      const isGone = keyOf(world, caller.hold!)?.deleted !== 0;
      return [...(isGone ? [will(caller, "deletion heard", lose)] : []), may(caller, "release", leave)];
    }
    case "leaving":
      return state.calls
        .filter(({ answer }) => answer)
        .map((call) =>
          will(caller, "answered", (w, c) =>
            left(
              w,
              c,
              call,
              state.calls.filter((each) => each !== call),
            ),
          ),
        );
    case "done":
      return [];
  }
}

function readAnswered(world: Priorities, caller: Caller, revision: number): void {
  tell(world, `${caller.label} gets the queue of revision ${revision}`);
  look(world, caller, revision);
  goOn(world, caller);
}

/** The session may list its keys, and find that a place is gone, at any time. Nothing depends on that. */
function audited(world: Priorities, caller: Caller): Taken[] {
  const isGone = keyOf(world, caller.place!)?.deleted !== 0;
  return isGone ? [may(caller, "places read", read)] : [];
}

const seenBy = (world: Priorities, caller: Caller): number =>
  sessionOf(world, caller).member === "lagging" ? world.lagging : world.revision;

function watchSteps(world: Priorities, caller: Caller): Taken[] {
  const { state, outlook, label } = caller;
  if (state.at !== "waiting") return [];
  const { watch, check } = state;
  const { key } = outlook!.behind!;
  const seen = seenBy(world, caller);
  const steps: Taken[] = [];
  if (check && check.answer > 0)
    steps.push(will(caller, "read answered", (w, c) => checked(w, c, state, check.answer)));
  if (watch.createdAt === 0) {
    const created = will(caller, "watch created", (w, c) => {
      tell(w, `etcd has created ${label}'s watch on ${key}, at revision ${seen}`);
      watching(w, c, seen);
    });
    return [...steps, created];
  }
  const [next] = world.keys
    .filter((other) => other.key === key && other.deleted > watch.position && other.deleted <= seen)
    .sort((a, b) => a.deleted - b.deleted);
  if (!next || (!keeps(world, "others-are-watched") && next.lease !== sessionOf(world, caller).id))
    return steps;
  const heard = will(caller, "deletion heard", (w, c) => {
    tell(w, `${label} hears that ${key} was deleted at revision ${next.deleted}`);
    deletionHeard(w, c, state, next.deleted);
  });
  return [...steps, heard];
}

function lateSteps({ late }: Priorities): Taken[] {
  return late.flatMap((txn, i) => {
    const take = (w: Priorities): void => void (w.late = w.late.filter((_, j) => j !== i));
    const arrives = progress("late arrives", (w) => {
      tell(w, `the late ${txn.is} of ${txn.key} arrives`);
      take(w);
      execute(w, txn);
    });
    const vanishes = progress("late vanishes", (w) => {
      tell(w, `the late ${txn.is} of ${txn.key} is lost for good`);
      take(w);
    });
    return [arrives, vanishes];
  });
}

function deletions(world: Priorities): Taken[] {
  const living = world.keys.filter(({ deleted }) => deleted === 0);
  return living.flatMap(({ key }) =>
    accident(world, "deletions", (w) => {
      tell(w, `somebody deletes ${key} by hand`);
      deleteKeys(w, (other) => other.key === key, "hand");
    }),
  );
}

function sessionSteps(world: Priorities, session: Session): Taken[] {
  const { id, client, delayLease } = session;
  const alive = world.leases[id];
  const steps: Taken[] = [];
  if (!alive && delayLease > 0 && world.leases[delayLease])
    steps.push(progress("delay over", (w) => endDelay(w, w.sessions[id]!)));
  if (alive && client !== "running") steps.push(progress("run out", (w) => runOut(w, w.sessions[id]!)));
  if (!alive && client === "paused") steps.push(progress("go on", (w) => hear(w, id)));
  if (client !== "running") return steps;
  if (session.sweeps) steps.push(...strays(world, session));
  steps.push(...accident(world, "losses", (w) => hear(w, id)));
  const pause = (w: Priorities): void => {
    w.sessions[id]!.client = "paused";
    tell(w, `${session.label}'s process stops for longer than its lease lasts`);
  };
  steps.push(...accident(world, "pauses", pause));
  if (world.scenario.lags) steps.push(...accident(world, "moves", (w) => move(w, w.sessions[id]!)));
  return steps;
}

function hear(world: Priorities, id: number): void {
  sessionOver(
    world,
    world.callers.find(({ setup }) => setup.session === id)!,
  );
}

function runOut(world: Priorities, { id, label }: Session): void {
  tell(world, `${label}'s lease runs out: etcd deletes its keys`);
  noteHeld(world, id);
  world.leases = world.leases.map((alive, lease) => alive && lease !== id);
  deleteKeys(world, ({ lease }) => lease === id, "its lease");
}

function endDelay(world: Priorities, session: Session): void {
  tell(world, `${session.label}'s delay is over`);
  session.delaying = false;
  world.leases = world.leases.map((alive, lease) => alive && lease !== session.delayLease);
  deleteKeys(world, ({ lease }) => lease === session.delayLease, "its lease");
}

/** Keys of the session that are nobody's: it deletes them. */
function strays(world: Priorities, { id, label, delayLease }: Session): Taken[] {
  if (!keeps(world, "late-claims-are-swept")) return [];
  return world.keys
    .filter((key) => key.deleted === 0 && (key.lease === id || (delayLease > 0 && key.lease === delayLease)))
    .filter((key) => !isOurs(world, key))
    .map((key) =>
      progress("sweep", (w) => {
        tell(w, `${label} sweeps ${key.key}, which is nobody's`);
        deleteKeys(w, (other) => other === key, "its owner");
      }),
    );
}

/** The watch stream broke: whoever waits reads the queue, and watches on the other member. */
function move(world: Priorities, session: Session): void {
  session.member = session.member === "leading" ? "lagging" : "leading";
  tell(world, `${session.label}'s watches move to the ${session.member} member`);
  for (const caller of world.callers) {
    const { state } = caller;
    if (caller.setup.session !== session.id || state.at !== "waiting") continue;
    if (keeps(world, "moved-watches-read-again")) read(world, caller);
    else if (state.watch.createdAt > 0) {
      const now = seenBy(world, caller);
      caller.state = { ...state, watch: { createdAt: now, position: now } };
    }
  }
}

/** What may go wrong with its requests; and its user may give up. */
function mishaps(world: Priorities, caller: Caller): Taken[] {
  const { id, state, gaveUp } = caller;
  const waits = ["line", "passing", "joining", "waiting", "local", "reading", "claiming"].includes(state.at);
  const steps = waits && !gaveUp ? accident(world, "aborts", (w) => giveUp(w, w.callers[id]!)) : [];
  for (const { txn, answer } of callsOf(caller)) {
    const unheard = (w: Priorities, what: string): void => {
      tell(w, `${caller.label}'s ${txn.is} of ${txn.key} ${what}`);
      unanswered(w, w.callers[id]!, txn);
    };
    if (answer)
      steps.push(...accident(world, "lostAnswers", (w) => unheard(w, "was executed, and is not answered")));
    else
      steps.push(
        ...accident(world, "lateRequests", (w) => {
          w.late = [...w.late, txn];
          unheard(w, "is late: nobody waits for this attempt any more");
        }),
      );
  }
  return steps;
}

/** The answer to a request that was sent is awaited: a delete sent now could be executed before. */
function giveUp(world: Priorities, caller: Caller): void {
  const { state, label } = caller;
  caller.gaveUp = true;
  tell(world, `${label} gives up`);
  if (state.at === "line" || state.at === "passing") caller.state = { at: "done" };
  else if (state.at === "waiting" || state.at === "local") leave(world, caller);
  else if (state.at !== "reading" && !keeps(world, "claim-is-waited-for")) leaveEarly(world, caller);
}

function leaveEarly(world: Priorities, caller: Caller): void {
  const late: Txn[] = callsOf(caller).flatMap(({ txn, answer }) => (answer ? [] : [txn]));
  world.late = [...world.late, ...late];
  leave(world, caller);
}
