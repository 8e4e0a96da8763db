import { rejoinChannel } from "../diagnostics/channels.js";
import { withJson } from "../diagnostics/message-json.js";
import type { HoldEndMessage, LockKind } from "../diagnostics/messages.js";
import type { CheckedLock } from "../options/lock.js";
import type { EtcdServices } from "../session/connection.js";
import type { Lease } from "../session/lease.js";

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
  /** Of an exclusive hold. */
  readonly fence: bigint | undefined;
}

/** What the messages of one hold have in common. */
export const holdMessage = (
  { kind, name, names = [name], options: { label } }: LockAbout,
  { services, owner, leaseId }: Lease,
  { key, revision, fence }: HoldFacts,
): Omit<HoldEndMessage, "heldMs" | "why" | "reason"> => ({
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
export interface RejoinFacts {
  /** The last one that it had. */
  readonly lease: Lease | undefined;
  readonly error: Error;
  readonly failures: number;
  readonly delayMs: number;
}

export function publishRejoin(
  { options: { hosts } }: EtcdServices,
  { kind, name, names = [name], options: { label } }: LockAbout,
  { lease, ...why }: RejoinFacts,
): void {
  if (!rejoinChannel.hasSubscribers) return;
  const { owner, leaseId } = lease ?? { owner: undefined, leaseId: undefined };
  rejoinChannel.publish(withJson({ hosts, kind, name, names, label, owner, leaseId, ...why }));
}
