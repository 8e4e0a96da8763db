import { sharing } from "./arrivals.js";
import { covers, deleteKeys, execute } from "./etcd.js";
import { joinUnanswered } from "./joining.js";
import { leave, leaveUnanswered } from "./leaving.js";
import { endLease, loseSession, moveStream } from "./sessions.js";
import { accident, may, type Step } from "./step.js";
import { keeps, sessionOf, tell, type Caller, type Session, type Txn, type World } from "./world.js";

/** What may go wrong or be done to a client: each as often as the scenario allows. */
export function accidents(world: World): Step[] {
  if (world.scenario.inTransfers && !transferUnderWay(world)) return [];
  // Before a process ends, other scenarios have them.
  if (world.left.adoptions > 0) return [];
  const steps: Step[] = [];
  for (const session of world.sessions) {
    if (session.client === "running") steps.push(...toSession(world, session));
  }
  for (const caller of world.callers) {
    if (sessionOf(world, caller).client === "running") steps.push(...toCaller(world, caller));
  }
  for (const [one, other] of sharing(world)) {
    const both = (w: World): Caller[] => [w.callers[one.id]!, w.callers[other.id]!];
    if (both(world).every((caller) => sessionOf(world, caller).client === "running"))
      steps.push(...accident(world, "lateRequests", (w) => batchIsLate(w, both(w))));
  }
  const living = world.keys.filter(({ deleted }) => deleted === 0);
  for (const { key } of living) steps.push(...accident(world, "deletions", (w) => deleteByHand(w, key)));
  for (const name of new Set(living.map((key) => key.name)))
    steps.push(...accident(world, "purges", (w) => purge(w, name)));
  return steps;
}

const transferUnderWay = ({ callers, late }: World): boolean =>
  late.some(({ is }) => is === "transfer") ||
  callers.some(({ state }) => state.at === "leaving" && state.call.txn.is === "transfer");

function toSession(world: World, { id }: Session): Step[] {
  const session = (w: World): Session => w.sessions[id]!;
  const alive = world.leases[session(world).lease];
  const steps = [...accident(world, "pauses", (w) => pause(w, session(w)))];
  if (world.scenario.lags) steps.push(...accident(world, "moves", (w) => moveStream(w, session(w))));
  if (!alive) return steps;
  steps.push(...accident(world, "losses", (w) => renewalsFail(w, session(w))));
  steps.push(...accident(world, "revokes", (w) => revoke(w, session(w))));
  return steps;
}

function pause(world: World, session: Session): void {
  session.client = "paused";
  tell(world, `${session.label}'s process stops for longer than its lease lasts`);
}

/**
 * The deadline counts from the time at which the last accepted renewal was sent: it passes before etcd ends the lease.
 */
function renewalsFail(world: World, session: Session): void {
  tell(world, `${session.label}'s renewals do not get through`);
  if (keeps(world, "deadline-before-expiry")) return loseSession(world, session);
  tell(world, "etcd deletes its keys");
  endLease(world, session, "its lease");
}

function revoke(world: World, session: Session): void {
  tell(world, `somebody revokes ${session.label}'s lease by hand`);
  endLease(world, session, "hand");
}

function deleteByHand(world: World, key: string): void {
  tell(world, `somebody deletes ${key} by hand`);
  deleteKeys(world, (other) => other.key === key, "hand");
  world.revision++;
}

/** As `etcdctl del --prefix` does. */
function purge(world: World, name: string): void {
  tell(world, `somebody deletes all keys of "${name}" by hand`);
  deleteKeys(world, (key) => covers(name, key.name), "hand");
  world.revision++;
}

function toCaller(world: World, caller: Caller): Step[] {
  const { id, state, gaveUp, asked } = caller;
  const waits = ["line", "again", "joining", "local", "waiting"].includes(state.at);
  const steps = waits && !gaveUp ? accident(world, "aborts", (w) => abort(w, w.callers[id]!), id) : [];
  // Its time is short.
  if (asked && waits && !gaveUp) steps.push(may(caller, "give up", abort));
  if (!("call" in state) || !state.call) return steps;
  const { answer } = state.call;
  steps.push(...accident(world, "repeats", (w) => copyIsLate(w, w.callers[id]!), id));
  if (answer) steps.push(...accident(world, "repeats", (w) => repeat(w, w.callers[id]!), id));
  if (answer) return [...steps, ...accident(world, "lostAnswers", (w) => loseAnswer(w, w.callers[id]!), id)];
  return [...steps, ...accident(world, "lateRequests", (w) => beLate(w, w.callers[id]!), id)];
}

/** The connection behind a proxy broke before the answer came: the proxy sends the transaction again. */
function repeat(world: World, caller: Caller): void {
  const { state } = caller;
  if (!("call" in state) || !state.call) return;
  const { txn } = state.call;
  tell(world, `a proxy sends ${caller.label}'s ${txn.is} again`);
  caller.state = { ...state, call: { txn, answer: execute(world, [txn])[0] } };
}

/** The client gets its answer; the second copy may be executed much later. */
function copyIsLate(world: World, { state, label }: Caller): void {
  if (!("call" in state) || !state.call) return;
  tell(world, `a proxy keeps a copy of ${label}'s ${state.call.txn.is}`);
  world.late = [...world.late, state.call.txn];
}

function loseAnswer(world: World, caller: Caller): void {
  tell(world, `the answer to ${caller.label} is lost`);
  unanswered(world, caller);
}

/** The transaction was sent, but has not arrived when the client gives up on it. */
function beLate(world: World, caller: Caller): void {
  const { state } = caller;
  if (!("call" in state) || !state.call) return;
  tell(world, `${caller.label}'s ${state.call.txn.is} is late: nobody waits for this attempt any more`);
  world.late = [...world.late, state.call.txn];
  unanswered(world, caller);
}

/** Each of its transactions arrives at its own time, if at all, which permits at least as much as arriving together. */
function batchIsLate(world: World, callers: readonly Caller[]): void {
  const names = callers.map(({ label }) => label).join(" and ");
  tell(world, `the batch of ${names} is late: nobody waits for this attempt any more`);
  for (const caller of callers) {
    const { state } = caller;
    if (!("call" in state) || !state.call) continue;
    world.late = [...world.late, state.call.txn];
    // A transaction that is in transit remains so, in a request of its own.
    if (keeps(world, "unanswered-batch-is-in-doubt")) unanswered(world, caller);
  }
}

function unanswered(world: World, caller: Caller): void {
  const { state } = caller;
  if (state.at === "joining") joinUnanswered(world, caller, state.call.txn);
  else if (state.at === "leaving") leaveUnanswered(world, caller, state);
  else if (state.at === "holding" && state.call) sendAgain(world, caller, state.call.txn);
}

/** A writer becomes a reader: the put is repeated until it is answered. */
function sendAgain(world: World, caller: Caller, txn: Txn): void {
  const { state } = caller;
  if (state.at === "holding") caller.state = { ...state, call: { txn, answer: undefined } };
  tell(world, `${caller.label} sends its put again`);
}

/**
 * The caller stops waiting. It first waits for the answer to a join that was sent: a delete sent now could be executed
 * before the join.
 */
function abort(world: World, caller: Caller): void {
  const { state } = caller;
  caller.gaveUp = true;
  tell(world, `${caller.label} gives up waiting for "${caller.setup.name}"`);
  if (state.at === "again" || state.at === "line") {
    caller.state = { at: "done" };
    return;
  }
  if (state.at === "joining") {
    if (keeps(world, "join-is-waited-for")) return;
    if (!state.call.answer) world.late = [...world.late, state.call.txn];
  }
  leave(world, caller, { releases: false });
}
