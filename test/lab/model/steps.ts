import { accidents } from "./accidents.js";
import { etcdSteps } from "./arrivals.js";
import { keyOfPlace } from "./etcd.js";
import {
  decideToWrite,
  heldKeyDeleted,
  heldKeyRead,
  heldKeyWatched,
  watchHeldKey,
  writeArrives,
} from "./holding.js";
import { ask, joinAnswered, mayJoin } from "./joining.js";
import { demandSteps, keepSteps, keptSteps, takeSteps, waitsHere } from "./keeping.js";
import { leave, leaveAnswered } from "./leaving.js";
import { seenBy } from "./reading.js";
import { sessionSteps } from "./sessions.js";
import { accident, may, will, type Step } from "./step.js";
import { heldTransferAnswered, transferSteps } from "./transferring.js";
import { downgradeAnswered, downgradeSteps } from "./downgrading.js";
import {
  beforeDeleted,
  ownDeleted,
  placeGone,
  predecessorDeleted,
  predecessorPut,
  turnRead,
  watching,
} from "./waiting.js";
import {
  isShared,
  keeps,
  looksAtOwnKey,
  placeOf,
  sessionOf,
  tell,
  type Caller,
  type Holding,
  type Turn,
  type Watch,
  type World,
} from "./world.js";

/** Everything that may happen next. */
export function nextSteps(world: World): Step[] {
  const steps = [...etcdSteps(world), ...accidents(world)];
  for (const session of world.sessions) steps.push(...sessionSteps(world, session));
  for (const caller of world.callers) {
    const { client } = sessionOf(world, caller);
    if (client !== "paused" && caller.writing > 0) steps.push(will(caller, "write arrives", writeArrives));
    if (client === "running") steps.push(...callerSteps(world, caller));
  }
  return steps;
}

function callerSteps(world: World, caller: Caller): Step[] {
  const { state } = caller;
  switch (state.at) {
    case "idle":
      if (waitsHere(world, caller)) return [may(caller, "ask", standInLine), ...takeSteps(world, caller)];
      return mayJoin(world, caller) ? [may(caller, "ask", ask)] : [];
    case "line":
      if (waitsHere(world, caller)) return takeSteps(world, caller);
      return mayJoin(world, caller) ? [will(caller, "ask", ask)] : [];
    case "kept":
      return [...keptSteps(world, caller, state), ...takeSteps(world, caller)];
    case "again":
      return mayJoin(world, caller) ? [will(caller, "ask", ask)] : [];
    case "joining": {
      const { answer } = state.call;
      return answer ? [will(caller, "answered", (w, c) => joinAnswered(w, c, answer))] : [];
    }
    case "leaving": {
      const { answer } = state.call;
      return answer ? [will(caller, "answered", (w, c) => leaveAnswered(w, c, state, answer))] : [];
    }
    case "waiting":
      return [...waiterSteps(world, caller, state), ...audited(world, caller)];
    case "holding":
      return holderSteps(world, caller, state);
    case "local":
      return audited(world, caller);
    case "done":
      return [];
  }
}

function standInLine(world: World, caller: Caller): void {
  caller.state = { at: "line" };
  tell(world, `${caller.label} asks to lock "${caller.setup.name}", and waits in the process`);
}

/** The session may list its keys, and read those of its places that are missing, at any time. Nothing depends on that. */
function audited(world: World, caller: Caller): Step[] {
  const isGone = looksAtOwnKey(world, caller) && keyOfPlace(world, placeOf(caller))?.deleted !== 0;
  return isGone ? [may(caller, "places read", placeGone)] : [];
}

function waiterSteps(world: World, caller: Caller, turn: Turn): Step[] {
  const { predecessorWatch, ownWatch, beforeWatch, putsWatch, read } = turn;
  const answer = read?.answer;
  return [
    ...watchSteps(world, caller, predecessorWatch, {
      created: (w, c, watch) => watching(w, c, { ...turn, predecessorWatch: watch }),
      deleted: (w, c, watch, at) => {
        c.state = { ...turn, predecessorWatch: watch };
        // Both in one revision: the own end comes first.
        if (watch.with !== undefined && keyOfPlace(w, placeOf(c))?.deleted === at) ownDeleted(w, c, at);
        else if (isDeletedAt(w, watch.key, at)) predecessorDeleted(w, c, c.state, at);
      },
    }),
    ...watchSteps(world, caller, ownWatch, {
      created: (w, c, watch) => watching(w, c, { ...turn, ownWatch: watch }),
      deleted: (w, c, watch, at) => {
        c.state = { ...turn, ownWatch: watch };
        ownDeleted(w, c, at);
      },
    }),
    ...watchSteps(world, caller, beforeWatch, {
      created: (w, c, watch) => {
        const next = { ...turn, beforeWatch: { ...beforeWatch!, ...watch } };
        if (predecessorWatch) c.state = next;
        else watching(w, c, next);
      },
      deleted: (w, c, watch, at) => {
        c.state = { ...turn, beforeWatch: { ...beforeWatch!, ...watch } };
        beforeDeleted(w, c, c.state, at);
      },
    }),
    ...putSteps(world, caller, turn, putsWatch),
    ...(answer ? [will(caller, "read answered", (w, c) => turnRead(w, c, turn, answer))] : []),
  ];
}

/** The watch for puts reports the only one of its key that a writer makes while a reader waits. */
function putSteps(world: World, caller: Caller, turn: Turn, watch: Watch | undefined): Step[] {
  if (!watch) return [];
  if (watch.createdAt === 0)
    return watchSteps(world, caller, watch, {
      created: (w, c, putsWatch) => watching(w, c, { ...turn, putsWatch }),
      deleted: () => undefined,
    });
  const seen = seenBy(world, sessionOf(world, caller));
  const at = world.keys
    .filter(({ key, created }) => key === watch.key && created === turn.predecessor?.revision)
    .map(({ downgraded = 0 }) => downgraded)
    .find((revision) => revision > watch.position && revision <= seen);
  if (at === undefined) return [];
  const put = (w: World, c: Caller): void => {
    tell(w, `${c.label} hears that ${watch.key} was put at revision ${at}`);
    predecessorPut(w, c, { ...turn, putsWatch: { ...watch, position: at } }, at);
  };
  return [{ ...will(caller, "put heard", put), on: watch.key }];
}

function holderSteps(world: World, caller: Caller, state: Holding): Step[] {
  const { ownWatch, read } = state;
  const answer = read?.answer;
  const steps = watchSteps(world, caller, ownWatch, {
    created: (w, c, watch) => heldKeyWatched(w, c, { ...state, ownWatch: watch }),
    deleted: (w, c, watch, at) => {
      c.state = { ...state, ownWatch: watch };
      heldKeyDeleted(w, c, at);
    },
  });
  if (answer && !state.demand)
    steps.push(will(caller, "read answered", (w, c) => heldKeyRead(w, c, state, answer)));
  const { call } = state;
  const called = call?.answer;
  if (called && call.txn.is === "transfer")
    steps.push(will(caller, "answered", (w, c) => heldTransferAnswered(w, c, call, called)));
  else if (called) steps.push(will(caller, "answered", (w, c) => downgradeAnswered(w, c, state, called)));
  steps.push(...demandSteps(world, caller, state), ...keepSteps(world, caller, state));
  steps.push(...downgradeSteps(world, caller, state), ...transferSteps(world, caller, state));
  if (state.chooses) return steps;
  if (!ownWatch && !state.demand && world.scenario.longHolds && keeps(world, "own-key-is-watched"))
    steps.push(will(caller, "watch held key", (w, c) => watchHeldKey(w, c, state)));
  // A caller that writes waits for the answer before it releases.
  if (caller.writing > 0 && !caller.setup.impatient) return steps;
  steps.push(may(caller, "release", (w, c) => leave(w, c, { releases: true })));
  if (!caller.setup.writes || caller.writing > 0 || isShared(caller)) return steps;
  return [...steps, ...accident(world, "writes", (w) => decideToWrite(w, w.callers[caller.id]!), caller.id)];
}

const isDeletedAt = (world: World, key: string, revision: number): boolean =>
  world.keys.some((other) => other.key === key && other.deleted === revision);

interface OnWatch {
  created(world: World, caller: Caller, watch: Watch): void;
  deleted(world: World, caller: Caller, watch: Watch, at: number): void;
}

/** A watch is created at what its member has applied, and reports what the member applies after that. */
function watchSteps(world: World, caller: Caller, watch: Watch | undefined, on: OnWatch): Step[] {
  if (!watch) return [];
  const seen = seenBy(world, sessionOf(world, caller));
  if (watch.createdAt === 0) {
    const created = (w: World, c: Caller): void => {
      tell(w, `etcd has created ${c.label}'s watch on ${watch.key}, at revision ${seen}`);
      on.created(w, c, { ...watch, createdAt: seen, position: seen });
    };
    return [{ ...will(caller, "watch created", created), on: watch.key }];
  }
  const [next] = world.keys
    .filter(
      ({ key, deleted }) =>
        [watch.key, watch.with].includes(key) && deleted > watch.position && deleted <= seen,
    )
    .sort((a, b) => a.deleted - b.deleted);
  if (!next) return [];
  const deleted = (w: World, c: Caller): void => {
    tell(w, `${c.label} hears that ${next.key} was deleted at revision ${next.deleted}`);
    on.deleted(w, c, { ...watch, position: next.deleted }, next.deleted);
  };
  return [{ ...will(caller, "deletion heard", deleted), on: watch.key }];
}
