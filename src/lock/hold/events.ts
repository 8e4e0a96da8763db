import {
  LockTimeoutError,
  QueueFullError,
  SessionClosedError,
  SessionLostError,
  SupersededError,
} from "../../errors.js";
import type { CheckedWait } from "../../base/options/check.js";
import type { CheckedLock } from "../../base/options/lock.js";
import type { LeaseSource } from "../session/cluster.js";
import type { EtcdServices } from "../session/connection.js";
import type { Lease } from "../session/lease.js";
import { acquireChannel, rejoinChannel } from "../../base/telemetry/channels.js";
import type {
  AcquireMessage,
  AcquireOutcome,
  HoldEndMessage,
  LockKind,
} from "../../base/telemetry/messages.js";
import { tracePromise, withJson } from "../../base/telemetry/publish.js";
import type { HoldBase } from "./hold-base.js";

/** What events say of a lock. A lock object makes it once, for all of its calls and holds. */
export interface LockAbout {
  readonly kind: LockKind;
  readonly name: string;
  /** All names; set only if there are several. */
  readonly names?: readonly string[];
  readonly options: CheckedLock;
}

/** What events say of a hold. */
export interface HoldFacts {
  readonly key: string;
  readonly revision: bigint;
  /** Only an exclusive hold has one. */
  readonly fence: bigint | undefined;
}

/** What the messages of one hold have in common. */
export const holdMessage = (
  { kind, name, names = [name], options: { label } }: LockAbout,
  { services, owner, leaseId }: Lease,
  { key, revision, fence }: HoldFacts,
): Omit<HoldEndMessage, "heldMs" | "reason" | "error"> => ({
  hosts: services.options.hosts,
  kind,
  name,
  names,
  label,
  owner,
  leaseId,
  key,
  revision,
  fence,
});

/** Why a call begins again, and when. */
interface RejoinFacts {
  /** The last one that it had. */
  readonly lease: Lease | undefined;
  readonly error: Error;
  readonly failures: number;
  readonly delayMs: number;
}

export function publishRejoin(
  { options: { hosts } }: EtcdServices,
  { kind, name, names = [name], options: { label } }: LockAbout,
  { lease, ...rejoin }: RejoinFacts,
): void {
  if (!rejoinChannel.hasSubscribers) return;
  const { owner, leaseId } = lease ?? { owner: undefined, leaseId: undefined };
  rejoinChannel.publish(withJson({ hosts, kind, name, names, label, owner, leaseId, ...rejoin }));
}

/** What a call acquires, and with which leases. */
export interface AcquireTarget extends LockAbout {
  readonly source: LeaseSource;
  /** Called with the number of entries that must end before the new one, if the answer to its join shows it. */
  readonly onAhead?: (ahead: number) => void;
}

interface TracedCall {
  /** The call does not wait for its turn. */
  readonly tries: boolean;
  /** The signal of the caller. */
  readonly signal: AbortSignal | undefined;
}

/**
 * Runs `call` for the subscribers of the channel `leasehold.acquire`. The target that it passes reports to the message of the
 * call. Only for a channel with subscribers: without them, a call has no message and no object more.
 */
export function traceAcquire<T extends AcquireTarget, H extends HoldBase | undefined>(
  target: T,
  traced: TracedCall,
  call: (target: T) => Promise<H>,
): Promise<H> {
  const trace = new AcquireTrace(target, traced);
  return tracePromise(acquireChannel, trace.message, () =>
    trace.run(() => call({ ...target, ...trace.hooks })),
  );
}

/** The message of one call. */
class AcquireTrace {
  readonly message: AcquireMessage;
  readonly #start: number;

  constructor(
    private readonly target: AcquireTarget,
    private readonly traced: TracedCall,
  ) {
    const { source, kind, name, names = [name], options } = target;
    const { clock, options: cluster } = source.services;
    this.#start = clock.monotonic();
    this.message = withJson({
      hosts: cluster.hosts,
      kind,
      name,
      names,
      label: options.label,
      tries: traced.tries,
      owner: undefined,
      leaseId: undefined,
      ahead: undefined,
      holder: undefined,
      waitedMs: undefined,
      key: undefined,
      revision: undefined,
      fence: undefined,
      outcome: undefined,
    });
  }

  /** Replaces members of the target. */
  get hooks(): Pick<AcquireTarget, "source" | "onAhead"> {
    const { source } = this.target;
    const lease = (wait: CheckedWait): Lease | Promise<Lease> => {
      const found = source.lease(wait);
      return found instanceof Promise ? found.then((opened) => this.#uses(opened)) : this.#uses(found);
    };
    return {
      source: { ...source, lease },
      onAhead: (ahead) => (this.message.ahead = ahead),
    };
  }

  async run<H extends HoldBase | undefined>(call: () => Promise<H>): Promise<H> {
    try {
      const hold = await call();
      this.#resolved(hold);
      return hold;
    } catch (error) {
      this.message.outcome = this.#outcomeOf(error);
      if (error instanceof LockTimeoutError) this.message.holder = error.holder;
      throw error;
    } finally {
      this.message.waitedMs = this.target.source.services.clock.monotonic() - this.#start;
    }
  }

  /** After the loss of a session, the call may use the next one. */
  #uses(lease: Lease): Lease {
    this.message.owner = lease.owner;
    this.message.leaseId = lease.leaseId;
    return lease;
  }

  #resolved(hold: HoldBase | undefined): void {
    const { message } = this;
    message.outcome = hold ? "granted" : "busy";
    if (!hold) return;
    const { key, revision, fence } = hold.facts;
    message.key = key;
    message.revision = revision;
    message.fence = fence;
    // The entry of a call that does not wait is put only if nothing is before it.
    if (message.tries) message.ahead = 0;
  }

  #outcomeOf(error: unknown): AcquireOutcome {
    const { signal } = this.traced;
    if (signal?.aborted && error === signal.reason) return "aborted";
    if (error instanceof LockTimeoutError) return "timeout";
    if (error instanceof QueueFullError) return "busy";
    if (error instanceof SupersededError) return "superseded";
    if (error instanceof SessionLostError) return "session_lost";
    return error instanceof SessionClosedError || isManagerClosed(error) ? "session_closed" : "error";
  }
}

/** The error of the Web Locks API for a manager, or its cluster, that was closed. */
const isManagerClosed = (error: unknown): boolean =>
  error instanceof DOMException && error.name === "InvalidStateError";
