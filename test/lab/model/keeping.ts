// What a session does with a key that stays with it after a release, so that it can take the lock again without a request. It needs
// to hear of each join behind the key: the key leaves as soon as one is heard of.
import { keyOfPlace, queueAt } from "./etcd.js";
import { hold, lose } from "./holding.js";
import { siblings } from "./joining.js";
import { gone, leave } from "./leaving.js";
import { readAgain, seenBy } from "./reading.js";
import { may, will, type Step } from "./step.js";
import {
  breaks,
  keeps,
  placeOf,
  sessionOf,
  tell,
  watchOn,
  type Caller,
  type Demand,
  type Holding,
  type Kept,
  type Position,
  type World,
} from "./world.js";

/** Holds a key that may stay, or keeps one. */
type Tenant = Holding | Kept;

const NO_DEMAND: Demand = { watch: undefined, verified: false, wanted: false, passes: 0, passed: 0 };

const demandOf = ({ demand }: Tenant): Demand => demand ?? NO_DEMAND;

/** The one of this session that holds, or keeps, a key that may stay. */
function tenantOf(
  world: World,
  caller: Caller,
): { readonly caller: Caller; readonly state: Tenant } | undefined {
  for (const one of [caller, ...siblings(world, caller)]) {
    const { state } = one;
    const isTenant = state.at === "kept" || (state.at === "holding" && state.demand !== undefined);
    if (isTenant && one.setup.sticky) return { caller: one, state };
  }
  return undefined;
}

/** Whether a call waits in the process, and not in the queue: nobody else is known to want the lock. */
export function waitsHere(world: World, caller: Caller): boolean {
  if (!caller.setup.sticky) return false;
  const tenant = tenantOf(world, caller);
  if (!tenant) return false;
  const { wanted, passes } = demandOf(tenant.state);
  return !wanted || passes > 0;
}

/** A place of the same session stands behind the key, or is about to. */
const isFollowed = (world: World, caller: Caller): boolean =>
  siblings(world, caller).some(({ place }) => place);

const mayBeTaken = (world: World, caller: Caller, { demand }: Kept): boolean =>
  !isFollowed(world, caller) &&
  (demand.verified || !keeps(world, "taken-when-verified")) &&
  (!demand.wanted || !keeps(world, "wanted-ends-the-turns"));

/** A caller that waits in the process, or that asks again: the next turn of the key that its session keeps. */
export function takeSteps(world: World, caller: Caller): Step[] {
  const tenant = tenantOf(world, caller);
  if (caller.rounds === 0) return [];
  if (tenant?.state.at !== "kept" || !mayBeTaken(world, tenant.caller, tenant.state)) return [];
  const keeper = tenant.caller.id;
  const take = (w: World, c: Caller): void => takeAgain(w, c, w.callers[keeper]!);
  return [caller.state.at === "line" ? will(caller, "take again", take) : may(caller, "take again", take)];
}

function takeAgain(world: World, caller: Caller, keeper: Caller): void {
  const { state } = keeper;
  if (state.at !== "kept") return;
  const place = placeOf(keeper);
  keeper.place = undefined;
  keeper.state = ended(keeper);
  const turn = place.turn + (keeps(world, "turns-rise") ? 1 : 0);
  caller.place = { ...place, turn };
  const { verified, watch } = state.demand;
  const heard = watch?.position ?? 0;
  const behind = queueAt(world, caller.setup.name, heard).find(
    ({ created, delays }) => created > place.revision && !delays,
  );
  tell(world, `${caller.label} takes "${caller.setup.name}" again, without a request: turn ${turn}`);
  if (verified && behind)
    breaks(world, "no overtaking", `${caller.label} takes it again after it has heard of ${behind.key}`);
  hold(world, caller, heard, state.demand);
}

const ended = ({ rounds, gaveUp }: Caller): Caller["state"] =>
  rounds > 0 && !gaveUp ? { at: "idle" } : { at: "done" };

/** The holder may let its key stay. */
export function keepSteps(world: World, caller: Caller, state: Holding): Step[] {
  const { demand } = state;
  if (!caller.setup.sticky) return [];
  if (!demand) return state.ownWatch ? [] : [may(caller, "watch joins", watchJoins)];
  if (caller.writing > 0 && !caller.setup.impatient) return [];
  if (isFollowed(world, caller)) return [];
  const isPassed = demand.passes > 0 && nextInLine(world, caller) !== undefined;
  // Until the read, the next one in line waits for it.
  if (!demand.wanted || (isPassed && !demand.verified))
    return [may(caller, "keep", (w, c) => keep(w, c, demand))];
  return passSteps(world, caller, demand);
}

/** The next one of this session that waits in its process. */
const nextInLine = (world: World, caller: Caller): number | undefined =>
  siblings(world, caller).find(({ state: { at } }) => at === "line")?.id;

function passSteps(world: World, caller: Caller, { wanted: isWanted, verified, passes }: Demand): Step[] {
  const next = nextInLine(world, caller);
  if (next === undefined || !isWanted || !verified || passes === 0) return [];
  return [may(caller, "pass", (w, c) => pass(w, c, w.callers[next]!))];
}

/** The holder releases, or has, and the next one that waits in its process takes the lock at once, though somebody else is known to wait. */
function pass(world: World, caller: Caller, next: Caller): void {
  const { watch, ...demand } = demandOf(tenant(caller));
  const place = placeOf(caller);
  next.place = { ...place, turn: place.turn + 1 };
  caller.place = undefined;
  if (caller.state.at === "holding") caller.rounds--;
  caller.state = ended(caller);
  tell(
    world,
    `${caller.label} passes "${caller.setup.name}" on to ${next.label}, without a request: turn ${next.place.turn}`,
  );
  const passed = demand.passed + 1;
  if (passed > (caller.setup.passes ?? 0))
    breaks(world, "no overtaking", `${passed} callers of the process have overtaken the one that waits`);
  const passes = demand.passes - (keeps(world, "passes-are-counted") ? 1 : 0);
  hold(world, next, watch?.position ?? 0, { watch, ...demand, passes, passed });
}

function keep(world: World, caller: Caller, demand: Demand): void {
  caller.rounds--;
  caller.state = { at: "kept", demand, read: tenant(caller).read };
  tell(world, `${caller.label} releases, and its session keeps ${placeOf(caller).key}`);
}

/** A watch on all of the queue, which reports joins and the end of the own key. */
function watchJoins(world: World, caller: Caller): void {
  if (caller.state.at !== "holding") return;
  const watch = watchOn(placeOf(caller).key);
  caller.state = { ...caller.state, demand: { ...NO_DEMAND, watch } };
  tell(world, `${caller.label} asks for a watch on who joins behind it`);
}

export function keptSteps(world: World, caller: Caller, state: Kept): Step[] {
  const steps = demandSteps(world, caller, state);
  if (!isFollowed(world, caller)) steps.push(...passSteps(world, caller, state.demand));
  const leaves = state.demand.wanted && keeps(world, "wanted-key-leaves");
  const giveBack = (w: World, c: Caller): void => leave(w, c, { releases: false });
  // The user closes the session, or nobody has used the key for long.
  steps.push(leaves ? will(caller, "give back", giveBack) : may(caller, "give back", giveBack));
  return steps;
}

/** The watch of a tenant, and its read, which shows who joined before the watch. */
export function demandSteps(world: World, caller: Caller, state: Tenant): Step[] {
  const { demand, read } = state;
  const watch = demand?.watch;
  if (!demand || !watch) return [];
  const seen = seenBy(world, sessionOf(world, caller));
  if (watch.createdAt === 0)
    return [{ ...will(caller, "watch created", (w, c) => created(w, c, seen)), on: watch.key }];
  const steps: Step[] = [];
  const { answer } = read ?? {};
  if (answer) steps.push(will(caller, "read answered", (w, c) => demandRead(w, c, answer)));
  const at = nextEvent(world, caller, demand, seen);
  if (at)
    steps.push({
      ...will(caller, at.ends ? "deletion heard" : "join heard", (w, c) => heard(w, c, at)),
      on: watch.key,
    });
  return steps;
}

const withDemand = (caller: Caller, change: Partial<Demand>): void =>
  void (caller.state = { ...tenant(caller), demand: { ...demandOf(tenant(caller)), ...change } } as Tenant);

const withRead = (caller: Caller, read: Tenant["read"]): void =>
  void (caller.state = { ...tenant(caller), read } as Tenant);

const tenant = ({ state }: Caller): Tenant => state as Tenant;

function created(world: World, caller: Caller, seen: number): void {
  const watch = { ...watchOn(placeOf(caller).key), createdAt: seen, position: seen };
  tell(world, `etcd has created ${caller.label}'s watch on joins, at revision ${seen}`);
  const atLeast = Math.max(seen, placeOf(caller).revision);
  if (!keeps(world, "joins-watch-is-verified")) return withDemand(caller, { watch, verified: true });
  withDemand(caller, { watch });
  withRead(caller, { linearizable: false, atLeast, answer: undefined });
}

function demandRead(world: World, caller: Caller, answer: Position): void {
  tell(world, `${caller.label} gets the answer of revision ${answer.revision}`);
  const next = readAgain(world, tenant(caller).read!, answer);
  withRead(caller, next);
  if (next) return;
  if (!answer.mine) return ownKeyGone(world, caller);
  // It has shown all events up to its revision: a lagging member may report them later.
  const { watch } = demandOf(tenant(caller));
  const position = Math.max(watch?.position ?? 0, answer.revision);
  withDemand(caller, { watch: watch && { ...watch, position }, verified: true });
  if (answer.isFollowed) wanted(world, caller);
}

function wanted(world: World, caller: Caller): void {
  if (demandOf(tenant(caller)).wanted) return;
  tell(world, `${caller.label} knows that somebody waits`);
  // A key that nobody has is for one that waits for the read.
  const isForUs = caller.state.at === "holding" || nextInLine(world, caller) !== undefined;
  const passes = isForUs ? (caller.setup.passes ?? 0) : 0;
  withDemand(caller, { wanted: true, passes });
}

interface Heard {
  readonly revision: number;
  readonly key: string;
  /** It is the end of the own key, and not a join. */
  readonly ends: boolean;
}

/** After the first join, only the end of the own key matters. */
function nextEvent(
  world: World,
  caller: Caller,
  { watch, wanted: isWanted }: Demand,
  seen: number,
): Heard | undefined {
  const { key, revision } = placeOf(caller);
  const position = watch?.position ?? 0;
  const events: Heard[] = [];
  for (const other of world.keys) {
    if (other.name !== caller.setup.name) continue;
    if (other.key === key && other.deleted > position)
      events.push({ revision: other.deleted, key, ends: true });
    const joins = other.created > position && other.created > revision && !other.delays && !isWanted;
    if (joins) events.push({ revision: other.created, key: other.key, ends: false });
  }
  return events.filter((event) => event.revision <= seen).sort((a, b) => a.revision - b.revision)[0];
}

function heard(world: World, caller: Caller, { revision, key, ends }: Heard): void {
  const { watch } = demandOf(tenant(caller));
  tell(world, `${caller.label} hears that ${key} was ${ends ? "deleted" : "put"} at revision ${revision}`);
  withDemand(caller, { watch: watch && { ...watch, position: revision } });
  if (!ends) return wanted(world, caller);
  if (revision <= placeOf(caller).revision) return;
  if (keeps(world, "own-end-of-kept-key") || caller.state.at === "holding") ownKeyGone(world, caller);
}

/** A holder is told. A session that keeps the key of nobody is not, and the next call joins. */
function ownKeyGone(world: World, caller: Caller): void {
  if (caller.state.at === "holding") return lose(world, caller);
  tell(world, `${caller.label}'s session finds the key that it keeps gone`);
  if (keyOfPlace(world, placeOf(caller))?.deleted === 0)
    breaks(world, "true losses", `it takes ${placeOf(caller).key} for lost, but that lives`);
  gone(world, caller, undefined, ended(caller));
}

/** The stream has moved, and may have missed a join: a key that is kept leaves, and one that is held leaves with its release. */
export function demandMoved(world: World, caller: Caller): void {
  const state = tenant(caller);
  const { watch } = demandOf(state);
  if (!state.demand) return;
  if (keeps(world, "kept-key-leaves-with-the-stream")) {
    const leaving = state.at === "kept" || !watch ? undefined : { ...watch, createdAt: 0, position: 0 };
    withRead(caller, undefined);
    return withDemand(caller, { wanted: true, watch: leaving, passes: 0 });
  }
  const now = seenBy(world, sessionOf(world, caller));
  if (watch && watch.createdAt > 0)
    withDemand(caller, { watch: { ...watch, createdAt: now, position: now } });
}
