import type { Operation, Txn } from "../../../src/etcd/port.js";
import { bytesOf } from "./bytes.js";
import { DUPLICATE_KEY, EMPTY_KEY, TOO_MANY_OPERATIONS } from "./refusals.js";
import type { Refusal } from "./types.js";

/** What etcd rejects in a transaction before it executes anything (api/v3rpc/key.go). */

/** The default of `--max-txn-ops`. */
const MAX_OPERATIONS = 128;

/** Several transactions are nested in one that compares nothing: those take as many operations off the limit of each. */
export function checkTxns(txns: readonly Txn[]): Refusal | undefined {
  const [only] = txns;
  if (only && txns.length === 1)
    return checkTxn(only, MAX_OPERATIONS) ?? checkBranch(only.success) ?? checkBranch(only.failure);
  if (txns.length > MAX_OPERATIONS) return TOO_MANY_OPERATIONS;
  for (const txn of txns) {
    const refusal = checkTxn(txn, MAX_OPERATIONS - txns.length);
    if (refusal) return refusal;
  }
  return checkNested(txns);
}

function checkTxn({ compare, success, failure }: Txn, most: number): Refusal | undefined {
  if (Math.max(compare.length, success.length, failure.length) > most) return TOO_MANY_OPERATIONS;
  return compare.some(hasNoKey) || success.some(hasNoKey) || failure.some(hasNoKey) ? EMPTY_KEY : undefined;
}

const hasNoKey = ({ key }: { readonly key: string | Buffer }): boolean => key.length === 0;

interface Writes {
  readonly puts: Set<string>;
  readonly deletions: Set<string>;
}

/** The keys that a branch writes. A key that it puts may be in it only once. */
function writesOf(operations: readonly Operation[]): Refusal | Writes {
  const deletions = new Set<string>();
  for (const { kind, key } of operations) if (kind === "delete") deletions.add(bytesOf(key));
  const puts = new Set<string>();
  for (const operation of operations) {
    if (operation.kind !== "put") continue;
    const key = bytesOf(operation.key);
    if (puts.has(key) || deletions.has(key)) return DUPLICATE_KEY;
    puts.add(key);
  }
  return { puts, deletions };
}

function checkBranch(operations: readonly Operation[]): Refusal | undefined {
  if (operations.length < 2) return undefined;
  const writes = writesOf(operations);
  return "refused" in writes ? writes : undefined;
}

/**
 * checkIntervals, level by level: a put is compared with the puts and the deletions of the transactions before it. A deletion
 * of what a transaction before it puts is not noticed.
 */
function checkNested(txns: readonly Txn[]): Refusal | undefined {
  const puts = new Set<string>();
  const deletions = new Set<string>();
  for (const { success, failure } of txns) {
    const then = writesOf(success);
    if ("refused" in then) return then;
    const otherwise = writesOf(failure);
    if ("refused" in otherwise) return otherwise;
    for (const key of then.puts) {
      if (puts.has(key) || deletions.has(key)) return DUPLICATE_KEY;
      puts.add(key);
    }
    for (const key of otherwise.puts) {
      // Only one of the two branches is executed.
      if ((puts.has(key) && !then.puts.has(key)) || deletions.has(key)) return DUPLICATE_KEY;
      puts.add(key);
    }
    for (const key of [...then.deletions, ...otherwise.deletions]) deletions.add(key);
  }
  return undefined;
}
