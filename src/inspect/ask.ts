import { settleWithin } from "../async/settle-within.js";
import { EtcdRefusedError, EtcdUnavailableError } from "../errors.js";
import type { CallPolicy } from "../etcd/retry.js";
import type { CheckedWait } from "../options/check.js";
import { servicesOf, type EtcdServices } from "../session/connection.js";

/** Default `timeoutMs` of every call here. */
const TIMEOUT_MS = 5000;

/** How an error names the operation, and its limits. */
export interface Question {
  readonly what: string;
  readonly wait: CheckedWait;
}

/** What all requests of one call share. */
export interface Asking {
  readonly services: EtcdServices;
  readonly policy: CallPolicy;
}

/**
 * Runs a call that needs no session. After its time limit, on abort and when the cluster is closed, it sends no further
 * request. @throws EtcdUnavailableError | EtcdRefusedError | SessionClosedError
 */
export async function ask<T>(
  cluster: object,
  { what, wait }: Question,
  call: (asking: Asking) => Promise<T>,
): Promise<T> {
  const services = servicesOf(cluster);
  const { aborts, closed, client } = services;
  closed.throwIfAborted();
  const { signal, timeoutMs = TIMEOUT_MS } = wait;
  signal?.throwIfAborted();
  const stop = new AbortController();
  const unlisten = aborts.add(closed, () => stop.abort(closed.reason));
  const limitIsGiven = wait.timeoutMs !== undefined;
  const policy = { what, giveUpMs: timeoutMs, limitIsGiven, signal: stop.signal };
  try {
    return await settleWithin(call({ services, policy }), { signal, timeoutMs }, services, {
      onTimeout: () => new EtcdUnavailableError(what, client.lastFailures),
      onGiveUp: () => stop.abort(),
    });
  } finally {
    unlisten();
  }
}

/** etcd has compacted the revision of this read, or lost it in a restore. */
export const revisionIsGone = (error: unknown): boolean =>
  error instanceof EtcdRefusedError && error.details.includes("mvcc: required revision");

/** Repeats `read`, whose requests are all for one revision, until etcd has had it throughout. */
export async function atOneRevision<T>(read: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await read();
    } catch (error) {
      if (!revisionIsGone(error)) throw error;
    }
  }
}
