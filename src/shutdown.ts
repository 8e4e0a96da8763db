import { constants } from "node:os";
import { isLeaseholdError } from "./errors.js";
import {
  checkBoolean,
  checkDrain,
  checkFunction,
  checkOptions,
  checkSignal,
  rangeError,
  typeError,
} from "./base/options/check.js";
import { type Cluster, servicesOf } from "./lock/session/cluster.js";
import type { CloseOptions } from "./lock/session/session-options.js";
import { pause } from "./base/util/clock.js";
import { isError } from "./base/util/realm.js";

export interface ShutdownOptions extends CloseOptions {
  /**
   * The first one begins the shutdown. `[]`: none, for a program that listens to the signals of the process itself, and aborts `signal`.
   * @default ["SIGTERM", "SIGINT"]
   */
  readonly signals?: readonly NodeJS.Signals[] | undefined;
  /** A signal whose abort begins the shutdown, too. Its reason is that of the signal of `work`. @default none */
  readonly signal?: AbortSignal | undefined;
  /**
   * The cluster is closed once `work` has ended, or when `drainMs` has passed: until then, calls for locks go on as before. For a server,
   * whose last requests take locks. @default false: waiting and new calls for locks reject from the beginning of the shutdown
   */
  readonly workFirst?: boolean | undefined;
}

/** No process can listen to these. */
const UNHEARD: readonly string[] = ["SIGKILL", "SIGSTOP"];

function checkSignals(value: unknown): readonly NodeJS.Signals[] {
  if (value === undefined) return ["SIGTERM", "SIGINT"];
  if (!Array.isArray(value)) throw typeError("signals", "an array of names such as SIGTERM", value);
  for (const name of value as readonly unknown[]) {
    if (typeof name !== "string" || !Object.hasOwn(constants.signals, name) || UNHEARD.includes(name))
      throw rangeError("signals", "names of signals that a process can listen to, such as SIGTERM", name);
  }
  return value as readonly NodeJS.Signals[];
}

/**
 * Runs `work` until it ends, or until the process gets one of `signals`, or `signal` aborts. Then, in this order: the signal of `work`
 * aborts, so that it begins nothing new; waiting calls of the cluster reject, while its sessions are renewed until every lock is released or
 * `drainMs` (default 5000) has passed; the leases are revoked, and the next waiters proceed. A second signal ends the process at
 * once, as without this function. The exit code stays yours.
 *
 * With `workFirst: true`, calls for locks go on until `work` has ended: a server first stops to listen, and answers its last requests.
 * `drainMs` limits that, and what follows, together.
 *
 * Give what you run under a lock both signals, `lock.signalWith(signal)`: work that follows `lock.signal` alone goes on until `drainMs`
 * has passed, and then loses the lock.
 *
 * Resolves when `work` has ended and the cluster is closed: with the value of `work`, or with undefined if the shutdown ended it. `work`
 * may then reject with the reason of its signal, with an error whose `cause` is that reason (as timers do), or with SessionClosedError.
 * @throws what else `work` throws, after the cluster is closed. Work that was not done after `drainMs` throws LockLostError, or an
 * error with that as its `cause`.
 * @throws {TypeError | RangeError} on invalid options.
 */
export async function untilShutdown<T>(
  cluster: Cluster,
  work: (signal: AbortSignal) => T | PromiseLike<T>,
  options?: ShutdownOptions,
): Promise<T | undefined> {
  const known = ["signals", "signal", "workFirst", "drainMs"];
  const {
    signals: names,
    signal: own,
    workFirst: order,
    ...close
  } = checkOptions("untilShutdown", options, known);
  const drainMs = checkDrain("untilShutdown", close);
  const signals = checkSignals(names);
  const signal = checkSignal(own);
  const workFirst = checkBoolean("workFirst", order);
  checkFunction("work", work);
  const { aborts, clock } = servicesOf(cluster);

  const stop = new AbortController();
  const over = new AbortController();
  let until = Infinity;
  const closed = (): Promise<void> =>
    cluster.close({ drainMs: Math.max(0, Math.min(drainMs, until - clock.monotonic())) });
  const begin = (reason: unknown): void => {
    ignore();
    until = clock.monotonic() + drainMs;
    stop.abort(reason);
    void (workFirst ? pause(clock, drainMs, over.signal).then(closed) : closed());
  };
  const got = (name: NodeJS.Signals): void => begin(new DOMException(`got ${name}`, "AbortError"));
  const forget = aborts.add(signal, () => begin(signal?.reason));
  for (const name of signals) process.on(name, got);
  const ignore = (): void => {
    for (const name of signals) process.off(name, got);
    forget();
  };
  if (signal?.aborted) begin(signal.reason);
  try {
    return await work(stop.signal);
  } catch (error) {
    if (isEndedBy(stop.signal, error)) return undefined;
    throw error;
  } finally {
    ignore();
    over.abort();
    await closed();
  }
}

function isEndedBy({ aborted, reason }: AbortSignal, error: unknown): boolean {
  if (!aborted) return false;
  const { cause } = isError(error) ? error : {};
  return error === reason || cause === reason || isLeaseholdError(error, "SESSION_CLOSED");
}
