import { covers, execute } from "./etcd.js";
import { answerRead } from "./reading.js";
import { progress, will, type Step } from "./step.js";
import { keeps, tell, type Answer, type Caller, type Txn, type World } from "./world.js";

/**
 * Messages arrive at etcd: transactions alone or in batches, reads, and transactions that no caller waits for any
 * longer.
 */
export function etcdSteps(world: World): Step[] {
  const steps = [...transactions(world), ...batches(world), ...lateTransactions(world)];
  for (const caller of world.callers) {
    if ("read" in caller.state && caller.state.read && !caller.state.read.answer) {
      steps.push(will(caller, "read arrives", readArrives));
    }
  }
  if (world.scenario.lags && world.lagging < world.revision) steps.push(progress("catch up", catchUp));
  return steps;
}

function catchUp(world: World): void {
  world.lagging++;
  tell(world, `the lagging member applies revision ${world.lagging}`);
}

function readArrives(world: World, caller: Caller): void {
  const { state } = caller;
  if ("read" in state && state.read) caller.state = { ...state, read: answerRead(world, caller, state.read) };
}

/** Sent but not executed yet. */
const underWay = (caller: Caller): Txn | undefined => {
  const call = "call" in caller.state ? caller.state.call : undefined;
  return call?.answer ? undefined : call?.txn;
};

function answer(caller: Caller, given: Answer | undefined): void {
  const { state } = caller;
  if ("call" in state && state.call)
    caller.state = { ...state, call: { txn: state.call.txn, answer: given } };
}

const transactions = (world: World): Step[] =>
  world.callers.flatMap((caller) => {
    const txn = underWay(caller);
    return txn ? [will(caller, "arrives", (w, c) => answer(c, execute(w, [txn])[0]))] : [];
  });

/** Pairs of callers of one process whose transactions may share a request. */
export function sharing(world: World): (readonly [Caller, Caller])[] {
  if (!world.scenario.batches) return [];
  const sent = world.callers.filter((caller) => underWay(caller) !== undefined);
  const pairs = sent.flatMap((one, i) => sent.slice(i + 1).map((other) => [one, other] as const));
  return pairs.filter(([one, other]) => mayShare(world, underWay(one)!, underWay(other)!));
}

const batches = (world: World): Step[] =>
  sharing(world).map((callers) => progress("batch arrives", (w) => batchArrives(w, callers)));

/** Two transactions conflict when a range of one contains a key of the other. */
function mayShare(world: World, a: Txn, b: Txn): boolean {
  if (!world.leases[a.lease] || !world.leases[b.lease] || a.key === b.key) return false;
  const conflict = covers(a.name, b.name) || covers(b.name, a.name);
  return !conflict || !keeps(world, "conflicting-share-no-batch");
}

function batchArrives(world: World, callers: readonly Caller[]): void {
  const names = callers.map((caller) => caller.label).join(" and ");
  tell(world, `the transactions of ${names} arrive in one batch`);
  const answers = execute(
    world,
    callers.flatMap((caller) => underWay(caller) ?? []),
  );
  callers.forEach(({ id }, i) => answer(world.callers[id]!, answers[i]));
}

function lateTransactions(world: World): Step[] {
  return world.late.flatMap((txn, i) => {
    const take = (w: World): void => {
      w.late = w.late.filter((_, j) => j !== i);
    };
    const arrives = progress("late arrives", (w) => {
      tell(w, `the late ${txn.is} of ${txn.key} arrives`);
      take(w);
      execute(w, [txn]);
    });
    const vanishes = progress("late vanishes", (w) => {
      tell(w, `the late ${txn.is} of ${txn.key} is lost for good`);
      take(w);
    });
    return [arrives, vanishes];
  });
}
