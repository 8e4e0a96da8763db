import type { Random } from "../../../lab/runner/random.js";
import { keyOf, leaseOf, revisionNear, TEXT_KEYS, textKeyOf, VALUES, weighted } from "./draws.js";
import { drawRange } from "./generate-ranges.js";
import type { PlannedCompare, PlannedOperation, PlannedTxn, Revision } from "./program.js";

const ENDS = ["a0", "b", "zz", "\0", "", "a"];

function drawCompare(random: Random): PlannedCompare {
  const kind = random.pick(["created at", "modified at", "nothing in", "nothing since", "value is"] as const);
  const key = textKeyOf(random);
  switch (kind) {
    case "created at":
    case "modified at":
      return {
        kind,
        key,
        revision: drawCompared(random, kind === "created at" ? "created" : "modified", key),
      };
    case "nothing in":
      return { kind, key, end: random.pick(ENDS) };
    case "nothing since":
      return { kind, key, end: random.pick(ENDS), revision: drawCompared(random, "created", key) };
    case "value is":
      return { kind, key, value: random.pick(VALUES) };
  }
}

const drawCompared = (random: Random, at: "created" | "modified", key: string): Revision =>
  weighted<Revision>(random, [
    [6, { at, key, plus: 0 }],
    [2, { at: "exactly", revision: 0n }],
    [2, revisionNear(random)],
  ]);

function drawOperation(random: Random): PlannedOperation {
  const kind = weighted(random, [
    [5, "put"],
    [2, "delete"],
    [3, "range"],
  ] as const);
  switch (kind) {
    case "put": {
      const leaseId = random.chance(0.75) ? 0n : leaseOf(random);
      return { kind, key: textKeyOf(random), value: random.pick(VALUES), leaseId };
    }
    case "delete":
      return { kind, key: keyOf(random) };
    case "range":
      return { kind, ...drawRange(random) };
  }
}

/** Drops writes of keys that were written before, mostly: etcd rejects them. */
function drawBranch(random: Random, written: Set<string>): PlannedOperation[] {
  const operations: PlannedOperation[] = [];
  const tolerant = random.chance(0.03);
  for (let left = random.between(0, 4); left > 0; left--) {
    const operation = drawOperation(random);
    const key = Buffer.from(operation.key).toString("hex");
    if (operation.kind !== "range" && written.has(key) && !tolerant) continue;
    if (operation.kind !== "range") written.add(key);
    operations.push(operation);
  }
  return operations;
}

/** The branches of one transaction may write the same keys, those of several may not. */
function drawTxn(random: Random, written: Set<string>): PlannedTxn {
  const before = [...written];
  const compare = Array.from({ length: random.pick([0, 0, 1, 1, 2, 3]) }, () => drawCompare(random));
  const success = drawBranch(random, written);
  const other = new Set(before);
  const failure = drawBranch(random, other);
  for (const key of other) written.add(key);
  return { compare, success, failure };
}

/** More operations than etcd accepts in one request (128), or just as many. */
function drawLarge(random: Random): PlannedTxn[] {
  const count = random.pick([127, 128, 129]);
  const operations = Array.from(
    { length: count },
    () => ({ kind: "range", key: random.pick(TEXT_KEYS) }) as const,
  );
  const large = random.pick(["success", "failure", "compare", "txns"] as const);
  const txn: PlannedTxn = { compare: [], success: [], failure: [] };
  if (large === "txns") return operations.map((operation) => ({ ...txn, success: [operation] }));
  if (large !== "compare") return [{ ...txn, [large]: operations }];
  const compare = operations.map(({ key }) => ({ kind: "value is", key, value: "v" }) as const);
  return [{ ...txn, compare }];
}

export function drawTxns(random: Random): PlannedTxn[] {
  if (random.chance(0.004)) return drawLarge(random);
  const written = new Set<string>();
  const count = random.pick([1, 1, 1, 1, 1, 2, 2, 3, 5]);
  return Array.from({ length: count }, () => drawTxn(random, written));
}
