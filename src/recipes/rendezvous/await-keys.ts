// What latches and barriers share: a wait for a state of etcd's keys, and leases for keys that outlive the process which puts them.
import { EtcdUnavailableError, WaitTimeoutError } from "../../errors.js";
import { type KeyValue, LeaseNotFoundError } from "../../etcd/port.js";
import { type CheckedWait, rangeError } from "../../base/options/check.js";
import { inOwnContext } from "../../base/util/own-context.js";
import { settleWithin } from "../../base/util/settle.js";
import type { EtcdServices } from "../../lock/session/connection.js";
import { type QueueChange, QueueWatch } from "../../observe/queue-watch.js";
import { type Lifetime, MarkLeases } from "../once/mark-leases.js";

/** What `onCrash` may be. @throws {TypeError | RangeError} */
export function checkOnCrash<T extends string>(value: unknown, choices: readonly [T, ...T[]]): T {
  const choice = value === undefined ? choices[0] : choices.find((each) => each === value);
  if (choice === undefined)
    throw rangeError("onCrash", choices.map((each) => JSON.stringify(each)).join(" or "), value);
  return choice;
}

/** Of a wait for others: the first one is the default. */
export const REJECT_OR_CONTINUE = ["reject", "continue"] as const;

/** Which keys a wait is for. */
export interface AwaitedKeys {
  readonly services: EtcdServices;
  readonly range: { readonly key: string; readonly end: string };
  /** The name of the latch or the barrier. */
  readonly name: string;
  /** What the reads are for, as an EtcdUnavailableError names it. */
  readonly what: string;
  /** The end of these ends the wait, too: those of the cluster, and of the session if the wait has one. */
  readonly ends: readonly AbortSignal[];
}

/** Ends the wait. */
export interface WaitEnds<T> {
  readonly resolve: (value: T) => void;
  readonly reject: (reason: unknown) => void;
}

/**
 * Calls `judge` with the keys as they are, and after each revision that changes them, until it ends the wait. A read and one watch from its
 * revision on; what etcd has compacted is read again. On abort, it rejects at once with the signal's reason.
 * @param missing what is said when `timeoutMs` has passed. `onGiveUp`: the caller waits no longer.
 */
// eslint-disable-next-line max-params -- as settleWithin
export function untilKeys<T>(
  { services, ends, name, ...target }: AwaitedKeys,
  judge: (change: QueueChange<SeenKey>, ends: WaitEnds<T>) => void,
  wait: CheckedWait,
  { missing, onGiveUp }: { readonly missing: () => string; readonly onGiveUp?: () => void },
): Promise<T> {
  let giveUp = (): void => {};
  const found = new Promise<T>((resolve, reject) => {
    let watch: QueueWatch<SeenKey> | undefined;
    const stops: (() => void)[] = [];
    const end = (settle: () => void): void => {
      for (const stop of stops.splice(0)) stop();
      watch?.stop();
      watch = undefined;
      giveUp = () => {};
      settle();
    };
    const over: WaitEnds<T> = {
      resolve: (value) => end(() => resolve(value)),
      reject: (reason) => end(() => reject(reason)),
    };
    giveUp = () => over.reject(wait.signal?.reason);
    const ended = ends.find((signal) => signal.aborted);
    if (ended) return reject(ended.reason as Error);
    for (const signal of ends) stops.push(services.aborts.add(signal, () => over.reject(signal.reason)));
    watch = inOwnContext(
      () =>
        new QueueWatch<SeenKey>(
          { services, ...target, keep: seenKey },
          { changed: (change) => watch && judge(change, over), failed: over.reject },
        ),
    );
  });
  return settleWithin(found, wait, services, {
    onTimeout: () =>
      timedOut(services, { name, what: target.what, timeoutMs: wait.timeoutMs ?? 0 }, missing()),
    onGiveUp: () => {
      giveUp();
      onGiveUp?.();
    },
  });
}

/** The error of a wait whose time has passed: etcd is silent, or it has said what is missing. */
export function timedOut(
  { client: { hosts } }: EtcdServices,
  { name, what, timeoutMs }: { readonly name: string; readonly what: string; readonly timeoutMs: number },
  missing: string,
): Error {
  if (hosts.attemptsFail) return new EtcdUnavailableError(what, hosts.whyUnanswered(timeoutMs));
  return new WaitTimeoutError(name, timeoutMs, missing);
}

/** Of a key that keeps an attempt from being executed late: longer than a request may be on its way. */
export const ATTEMPTS: Lifetime = { ms: 600_000, atLeast: true };

const MOST_LEASES = 3;

/**
 * Puts with a lease that nobody renews, and that lasts for `lifetime`. etcd may not have it any more: then it is granted anew. `renew`: as
 * the put has the lease of a session, too, which may be the one that is gone, and rejects if so.
 */
// eslint-disable-next-line max-params -- `put` is last, as work is everywhere
export async function withLongLease<T>(
  services: EtcdServices,
  lifetime: Lifetime,
  {
    what,
    signal,
    renew,
  }: { readonly what: string; readonly signal: AbortSignal; readonly renew?: () => Promise<void> },
  put: (leaseId: bigint) => Promise<T>,
): Promise<T> {
  const leases = MarkLeases.of(services);
  for (let tries = 1; ; tries++) {
    const [leaseId = 0n] = await leases.for([lifetime], signal);
    try {
      return await put(leaseId);
    } catch (error) {
      if (!(error instanceof LeaseNotFoundError)) throw error;
      leases.forget([leaseId]);
      await renew?.();
      if (tries === MOST_LEASES) throw new EtcdUnavailableError(what, new Map([["etcd", error]]));
    }
  }
}

/** More than ours have. */
const MAX_OWN_VALUE = 16_384;

/** What a wait keeps of a key: none of the buffers in which it came, and no long value of another client. */
export type SeenKey = Omit<KeyValue, "key">;

export const seenKey = ({ value, createRevision, modRevision, leaseId }: KeyValue): SeenKey => ({
  value: value.length > MAX_OWN_VALUE ? "" : value,
  createRevision,
  modRevision,
  leaseId,
});

/** The fields of a value that one of ours may have written; undefined if it is none. */
export function fieldsOf({ value }: Pick<KeyValue, "value">): Readonly<Record<string, unknown>> | undefined {
  if (value.length > MAX_OWN_VALUE || !value.startsWith("{")) return undefined;
  try {
    return JSON.parse(value) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}

/** The owner that a value names: anybody may have written it. */
export function ownerIn(kv: Pick<KeyValue, "value">): string | undefined {
  const owner = fieldsOf(kv)?.["owner"];
  return typeof owner === "string" && Buffer.byteLength(owner) <= 256 ? owner : undefined;
}
