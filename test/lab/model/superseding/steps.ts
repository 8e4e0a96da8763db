import { accident as accidentIn, type Does, type Step } from "../step.js";
import { tell } from "../world.js";
import type { Accidents } from "../scenarios.js";
import {
  ask,
  asked,
  checked,
  end,
  hold,
  joined,
  leave,
  lostKey,
  sessionOver,
  unanswered,
} from "./calling.js";
import { deleteKeys, execute } from "./etcd.js";
import { type Caller, isOurs, keyOf, queueAt, sessionOf, type State, type Superseding } from "./world.js";

type Act = (world: Superseding, caller: Caller) => void;
type Taken = Step<Superseding>;

const progress = (does: Does, run: Taken["run"]): Taken => ({ kind: "progress", does, run });

const will = ({ id }: Caller, does: Does, act: Act): Taken => ({
  ...{ kind: "progress", does, caller: id },
  run: (world) => act(world, world.callers[id]!),
});

const may = (caller: Caller, does: Does, act: Act): Taken => ({ ...will(caller, does, act), kind: "choice" });

const accident = (world: Superseding, which: keyof Accidents, run: Taken["run"]): Taken[] =>
  accidentIn(world, which, run);

/** Everything that may happen next. */
export function nextSteps(world: Superseding): Taken[] {
  const steps = [...lateSteps(world), ...deletions(world), ...strays(world), ...lostLeases(world)];
  for (const caller of world.callers) steps.push(...callerSteps(world, caller), ...mishaps(world, caller));
  return steps;
}

function callerSteps(world: Superseding, caller: Caller): Taken[] {
  const { state } = caller;
  switch (state.at) {
    case "idle":
      return [may(caller, "ask", ask)];
    case "joining":
    case "leaving":
      return callSteps(caller, state);
    case "asking": {
      const { then, answer } = state;
      if (answer > 0) return [will(caller, "read answered", (w, c) => asked(w, c, then, answer))];
      return [
        will(caller, "read arrives", (_, c) => (c.state = { ...state, answer: then || world.revision })),
      ];
    }
    case "checking":
      return [will(caller, "read answered", checked)];
    case "waiting":
      return turnSteps(world, caller);
    case "holding":
      return [
        ...(keyOf(world, caller.entry!)?.deleted === 0 ? [] : [will(caller, "deletion heard", lose)]),
        may(caller, "release", leave),
      ];
    case "done":
      return [];
  }
}

type Calling = Extract<State, { at: "joining" | "leaving" }>;

function callSteps(caller: Caller, { at, call }: Calling): Taken[] {
  const { txn, answer } = call;
  if (!answer)
    return [will(caller, "arrives", (w, c) => (c.state = { at, call: { txn, answer: execute(w, txn) } }))];
  return [
    will(caller, "answered", (w, c) => {
      if (at === "joining") return joined(w, c, call);
      tell(w, `${c.label} gets the answer`);
      end(c);
    }),
  ];
}

/** What its watches report, in the order of the revisions: `predecessor-wait.ts`, which the other model has, with reads. */
function turnSteps(world: Superseding, caller: Caller): Taken[] {
  const { label, entry } = caller;
  const { created, deleted } = keyOf(world, entry!)!;
  const isFirst = (at: number): boolean => queueAt(world, at)[0]?.created === created;
  const last = deleted === 0 ? world.revision : deleted - 1;
  const turn = Array.from({ length: last - created + 1 }, (_, n) => created + n).some(isFirst);
  if (turn) return [will(caller, "deletion heard", hold)];
  if (deleted === 0) return [];
  const heard = (w: Superseding, c: Caller): void => {
    tell(w, `${label} hears that ${entry!.key} was deleted at revision ${deleted}`);
    lostKey(w, c, deleted);
  };
  // A read of the places of a session shows only that it is gone.
  return [will(caller, "deletion heard", heard), may(caller, "places read", (w, c) => lostKey(w, c, 0))];
}

function lose(world: Superseding, caller: Caller): void {
  tell(world, `${caller.label} is told that its lock is lost`);
  end(caller);
}

function lateSteps({ late }: Superseding): Taken[] {
  return late.flatMap((txn, i) => {
    const take = (w: Superseding): void => void (w.late = w.late.filter((_, j) => j !== i));
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

function deletions(world: Superseding): Taken[] {
  return queueAt(world).flatMap(({ key }) =>
    accident(world, "deletions", (w) => {
      tell(w, `somebody deletes ${key} by hand`);
      deleteKeys(w, (other) => other.key === key, "hand");
    }),
  );
}

const isInUse = ({ sessions }: Superseding, lease: number): boolean =>
  sessions.some((session) => session.lease === lease);

/** Keys of the session that are nobody's: it deletes them. */
function strays(world: Superseding): Taken[] {
  return queueAt(world)
    .filter((key) => isInUse(world, key.lease) && !isOurs(world, key))
    .map((key) =>
      progress("sweep", (w) => {
        tell(w, `its session sweeps ${key.key}, which is nobody's`);
        deleteKeys(w, (other) => other === key, "its owner");
      }),
    );
}

/** Of sessions before. */
function lostLeases(world: Superseding): Taken[] {
  return world.leases.flatMap((alive, lease) => {
    if (!alive || isInUse(world, lease)) return [];
    const runOut = (w: Superseding): void => {
      tell(w, "a lease runs out");
      w.leases = w.leases.map((each, n) => each && n !== lease);
      deleteKeys(w, (key) => key.lease === lease, "its lease");
    };
    return [progress("run out", runOut)];
  });
}

/** What may go wrong with its requests and its session; and its user may give up. */
function mishaps(world: Superseding, caller: Caller): Taken[] {
  const { id, state, gaveUp, label } = caller;
  const steps: Taken[] = [];
  const waits = ["joining", "asking", "checking", "waiting"].includes(state.at);
  if (waits && !gaveUp) steps.push(...accident(world, "aborts", (w) => giveUp(w, w.callers[id]!)));
  // To lose it while a join is on its way is like a late request, and to lose it while it holds is the other model's.
  if (state.at === "waiting" && !gaveUp && world.leases[sessionOf(world, caller).lease])
    steps.push(...accident(world, "losses", (w) => sessionOver(w, w.callers[id]!)));
  if (state.at !== "joining" && state.at !== "leaving") return steps;
  const { txn, answer } = state.call;
  const unheard = (w: Superseding, what: string): void => {
    tell(w, `${label}'s ${txn.is} of ${txn.key} ${what}`);
    unanswered(w, w.callers[id]!, txn);
  };
  if (answer)
    return [
      ...steps,
      ...accident(world, "lostAnswers", (w) => unheard(w, "was executed, and is not answered")),
    ];
  const late = (w: Superseding): void => {
    w.late = [...w.late, txn];
    unheard(w, "is late: nobody waits for this attempt any more");
  };
  return [...steps, ...accident(world, "lateRequests", late)];
}

/** The answer to a join that was sent is awaited: a delete sent now could be executed before. */
function giveUp(world: Superseding, caller: Caller): void {
  caller.gaveUp = true;
  tell(world, `${caller.label} gives up`);
  if (caller.state.at === "waiting") leave(world, caller);
}
