import { readingsOf, type Hold } from "../../lab/checker/calls.js";
import type { Facts } from "../../lab/checker/facts.js";
import type { Source } from "./export.js";
import type { Grant } from "./grants.js";
import type { ObjectKind, Operation } from "./operation.js";

interface Kind {
  readonly object: Exclude<ObjectKind, "register">;
  readonly permits?: number;
}

/** The acquires that were granted, and how each hold went on. A call that was not granted promises nothing about the lock. */
export function holdOperations(source: Source): Operation[] {
  const kinds = new Map<string, Kind>();
  return source.grants.flatMap((grant) => {
    const { lock } = grant.hold;
    const kind = kinds.get(lock) ?? kindOf(source.facts, lock);
    kinds.set(lock, kind);
    return operationsOf(source, grant, kind);
  });
}

/** By the keys in the queue. */
function kindOf({ places, holds, calls }: Facts, lock: string): Kind {
  if (calls.some((call) => call.weight !== undefined && call.lock === lock)) return { object: "weighted" };
  const queue = places.get(lock) ?? [];
  const limits = queue.flatMap(({ permits }) => permits ?? []);
  if (limits.length > 0) return { object: "semaphore", permits: Math.max(...limits) };
  const shared = holds.some((hold) => hold.shared && hold.lock === lock);
  return { object: shared ? "rwlock" : "mutex" };
}

function operationsOf(
  { facts, times: { at } }: Source,
  grant: Grant,
  { object, permits }: Kind,
): Operation[] {
  const { hold, weight, placed, excused, deleted, downgraded } = grant;
  const { p: client, lock: name, shared, invoked, granted } = hold;
  const of = { object, name, fence: Number(hold.token), ...(weight !== undefined && { weight }) };
  const report = (op: "claim" | "gone", t: bigint): Operation => ({
    ...of,
    op,
    client,
    from: at(t),
    to: at(t),
  });
  const more = { ...(shared && { shared }), ...(permits && { permits }), ...(excused && { excused }) };
  return [
    { ...of, op: "acquire", client, from: at(invoked), to: at(granted), placed, ...more },
    ...(downgraded && !excused ? [{ ...of, op: "downgrade", client: "etcd", ...downgraded } as const] : []),
    ...(deleted && !excused ? [{ ...of, op: "end", client: "etcd", ...deleted } as const] : []),
    ...claimsOf(facts, hold).map((t) => report("claim", t)),
    ...goneOf(grant).map((t) => report("gone", t)),
  ];
}

/**
 * When the process first and last read that it holds, except when a fault had taken its place and it could not know yet. A hold is
 * one stretch of time: if both readings lie in it, so do those between them.
 */
function claimsOf({ early }: Facts, hold: Hold): bigint[] {
  const taking = early.get(hold);
  const excused = (t: bigint): boolean => taking !== undefined && taking.since <= t && t <= taking.until;
  const claims = readingsOf(hold).filter(({ t, held }) => held && !excused(t));
  return [...new Set([claims.at(0), claims.at(-1)])].flatMap((claim) => claim?.t ?? []);
}

/**
 * When the process was notified that etcd had no place or no lease of it. Of several names that were acquired together, only one
 * may be missing. A release that succeeded is no such report: it also succeeds once the session has lost its lease by its own
 * clock.
 */
function goneOf({ hold: { ends }, together }: Grant): bigint[] {
  if (together) return [];
  return ends.flatMap(({ t, reason }) => (reason === "deleted" || reason === "revoked" ? [t] : []));
}
