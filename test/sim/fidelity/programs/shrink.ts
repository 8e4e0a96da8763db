import type { PlannedTxn, Program, Step } from "./program.js";

/** Whether the difference that is looked for remains in this program. */
export type Remains = (program: Program) => Promise<boolean>;

/** Drops steps, and parts of steps, while the difference remains. */
export async function shrink(program: Program, remains: Remains): Promise<Program> {
  let smallest = await dropSteps(program, remains);
  for (let index = 0; index < smallest.length; index++) smallest = await shrinkStep(smallest, index, remains);
  return dropSteps(smallest, remains);
}

/** Halves first, then smaller and smaller parts. */
async function dropSteps(program: Program, remains: Remains): Promise<Program> {
  let left = program;
  for (let size = Math.ceil(left.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2))
    for (let at = left.length - size; at > -size; at -= size) {
      const from = Math.max(at, 0);
      const without = [...left.slice(0, from), ...left.slice(at + size)];
      if (without.length < left.length && without.length > 0 && (await remains(without))) left = without;
    }
  return left;
}

async function shrinkStep(program: Program, index: number, remains: Remains): Promise<Program> {
  let smallest = program;
  for (let again = true; again;) {
    again = false;
    for (const smaller of smallerSteps(smallest[index]!)) {
      const changed = smallest.map((step, at) => (at === index ? smaller : step));
      if (!(await remains(changed))) continue;
      smallest = changed;
      again = true;
      break;
    }
  }
  return smallest;
}

function smallerSteps(step: Step): Step[] {
  if (step.kind === "range") return smallerFields(step.range).map((range) => ({ ...step, range }));
  if (step.kind !== "txns") return [];
  const fewer = without(step.txns).filter((txns) => txns.length > 0);
  const smaller = step.txns.flatMap((txn, at) =>
    smallerTxns(txn).map((other) => step.txns.map((each, n) => (n === at ? other : each))),
  );
  return [...fewer, ...smaller].map((txns) => ({ ...step, txns }));
}

function smallerTxns(txn: PlannedTxn): PlannedTxn[] {
  return (["failure", "success", "compare"] as const).flatMap((part) => {
    const items: readonly { readonly kind: string }[] = txn[part];
    const smaller = items.flatMap((item, at) =>
      item.kind === "range"
        ? smallerFields(item).map((other) => items.map((each, n) => (n === at ? other : each)))
        : [],
    );
    return [...without(items), ...smaller].map((kept) => ({ ...txn, [part]: kept }));
  });
}

const without = <T>(items: readonly T[]): T[][] => items.map((_, at) => items.filter((__, n) => n !== at));

const NEEDED = new Set(["kind", "key"]);

/** The same range with one option less. */
function smallerFields<T extends object>(range: T): T[] {
  const names = Object.keys(range).filter((name) => !NEEDED.has(name));
  return names.map(
    (name) => Object.fromEntries(Object.entries(range).filter(([each]) => each !== name)) as T,
  );
}
