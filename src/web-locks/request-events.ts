import { channel } from "node:diagnostics_channel";
import type { LockRequestArguments } from "./arguments.js";

// The channels of Node's own `navigator.locks`, since Node.js 24.15 and 25.9, with the same messages: a subscriber needs no
// change to see the locks of a cluster. https://nodejs.org/api/diagnostics_channel.html#web-locks
const startChannel = channel("locks.request.start");
const grantChannel = channel("locks.request.grant");
const missChannel = channel("locks.request.miss");
const endChannel = channel("locks.request.end");

/** A request has begun: its arguments are valid. */
export function publishStart({ name, mode }: LockRequestArguments): void {
  if (startChannel.hasSubscribers) startChannel.publish({ name, mode });
}

/** The callback is about to be called with the lock. */
export function publishGrant({ name, mode }: LockRequestArguments): void {
  if (grantChannel.hasSubscribers) grantChannel.publish({ name, mode });
}

/** The callback is about to be called with null. */
export function publishMiss({ name, mode }: LockRequestArguments): void {
  if (missChannel.hasSubscribers) missChannel.publish({ name, mode });
}

/** The promise of the request is about to settle: `error` is undefined, or what it rejects with. */
export function publishEnd(args: LockRequestArguments, error?: unknown): void {
  if (!endChannel.hasSubscribers) return;
  const { name, mode, ifAvailable, steal } = args;
  endChannel.publish({ name, mode, ifAvailable, steal, error });
}
